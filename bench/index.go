// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"syscall"
	"time"

	"bawn/internal/index"
)

// indexMain measures the audit index on a journal that it makes.
func indexMain(args []string) error {
	fs := flag.NewFlagSet("index", flag.ContinueOnError)
	records := fs.Int("records", 10_000_000, "`records` of the journal")
	days := fs.Int("days", 30, "that they span")
	dir := fs.String("dir", "", "`directory` to work in; the journal in it is used again; empty: one that is removed")
	profile := fs.String("profile", "", "`file` for a profile of the ingest")
	cores := fs.Int("cores", 1, "that the ingest may use")
	ask := fs.Bool("ask", false, "only ask the index that is in -dir already")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *dir == "" {
		var err error
		if *dir, err = os.MkdirTemp("", "bawn-index"); err != nil {
			return err
		}
		defer os.RemoveAll(*dir)
	}
	journal := filepath.Join(*dir, "journal")
	if _, err := os.Stat(journal); err != nil {
		if err := os.MkdirAll(journal, 0o755); err != nil {
			return err
		}
		fmt.Printf("writing a journal of %d records over %d days\n", *records, *days)
		if err := generate(journal, *records, *days, time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)); err != nil {
			return err
		}
	}
	runtime.GOMAXPROCS(*cores)
	path := filepath.Join(*dir, "index.db")
	if *ask {
		return askAll(index.Options{Path: path, Journals: []string{journal}})
	}
	for _, side := range []string{"", "-wal", "-shm"} {
		os.Remove(path + side)
	}
	o := index.Options{Path: path, Journals: []string{journal}}
	if err := ingest(o, *profile); err != nil {
		return err
	}
	return askAll(o)
}

// ingest measures how long the journal takes to be in the index.
func ingest(o index.Options, profile string) error {
	if profile != "" {
		f, err := os.Create(profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	x := index.Open(context.Background(), o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	before, began := cpuTime(), time.Now()
	go func() { x.Run(ctx); close(done) }()
	x.CatchUp(ctx)
	wall, cpu := time.Since(began), cpuTime()-before
	time.Sleep(time.Second)
	h := x.Health()
	cancel()
	<-done
	if err := x.Close(); err != nil {
		return err
	}
	var n uint64
	for _, s := range h.Series {
		n += s.Records
	}
	info, err := os.Stat(o.Path)
	if err != nil {
		return err
	}
	fmt.Printf("ingest: %d records in %.1f s, %.1f s of CPU: %.0f a second, %.0f a CPU second\n",
		n, wall.Seconds(), cpu.Seconds(), float64(n)/wall.Seconds(), float64(n)/cpu.Seconds())
	fmt.Printf("size: %.2f GB, %.0f bytes a record; resident at most %d MB\n", float64(info.Size())/1e9, float64(info.Size())/float64(n), maxResident()>>20)
	return nil
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u) //nolint:errcheck // cannot fail for itself
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func maxResident() int64 {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u) //nolint:errcheck // cannot fail for itself
	return u.Maxrss << 10
}
