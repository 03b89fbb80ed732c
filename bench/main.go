// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Command bench measures what Bawn costs, beside its peers.
//
// Each row of the bench is one kind of traffic; every peer that can do it
// serves the same client and the same upstream, over lo of a host of its own.
// The cost is the CPU time, or the memory, of all processes of the peer, from
// /proc. Bawn runs as it does for an operator, with policy, inspection and
// journal; the peers as their configurations in peers/ and goproxy.go say: with
// rules, verified upstreams and a line on record for each request. Upstream and
// logs are counted: a row in which a peer did not do the work fails.
//
//	bench -bawn ../bin/bawn
//	bench -bawn ../bin/bawn -rows keep,new -peers floor,bawn -quick
//
// It needs root, squid-openssl, mitmproxy and iproute2. This module is apart
// from Bawn's own so that what the peers need does not become Bawn's
// dependency.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"bawn/internal/world"
)

// settings are what the flags say.
type settings struct {
	bawn     string        // binary under test; empty: without Bawn as it is run
	peers    []string      // which, in this order
	rows     []*row        // which, in this order
	runs     int           // of everything, one after the other
	warm     time.Duration // before each measurement
	measure  time.Duration // each
	idle     time.Duration // that connections wait before memory is looked at
	results  string        // directory for the report
	profiles string        // directory for profiles of the bare egress plane; empty: none
}

func main() {
	world.Main()
	if len(os.Args) > 1 {
		if role, ok := roles[os.Args[1]]; ok {
			exit(role(os.Args[2:]))
		}
	}
	s, err := parseFlags(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	exit(run(ctx, s))
}

// roles are the processes that the bench starts of itself.
var roles = map[string]func(args []string) error{
	"origin":  originMain,
	"load":    loadMain,
	"floor":   floorMain,
	"goproxy": goproxyMain,
	"egress":  egressMain,
	"index":   indexMain,
	"doctor":  doctorMain,
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func parseFlags(args []string) (settings, error) {
	s := settings{}
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.StringVar(&s.bawn, "bawn", "", "`path` of the bawn binary")
	peers := fs.String("peers", "direct,floor,bawn,squid,goproxy,mitmproxy", "peers to run, in this order; there is egress as well: Bawn's egress plane alone")
	names := fs.String("rows", "", "rows to run, by the `beginnings` of their names; empty: all")
	quick := fs.Bool("quick", false, "one short run, without the rows of 10,000 connections")
	fs.IntVar(&s.runs, "runs", 3, "runs of everything")
	fs.DurationVar(&s.warm, "warm", 400*time.Millisecond, "time before each measurement")
	fs.DurationVar(&s.measure, "measure", 1500*time.Millisecond, "time of each measurement")
	fs.DurationVar(&s.idle, "idle", 2*time.Second, "time that connections wait before memory is looked at")
	fs.StringVar(&s.results, "results", "results", "`directory` for the report")
	fs.StringVar(&s.profiles, "profiles", "", "`directory` for profiles of the peer egress")
	if err := fs.Parse(args); err != nil {
		return s, err
	}
	if *quick {
		s.runs, s.warm, s.measure, s.idle = 1, 300*time.Millisecond, time.Second, time.Second
	}
	if err := s.choosePeers(*peers); err != nil {
		return s, err
	}
	if err := s.chooseRows(*names, *quick); err != nil {
		return s, err
	}
	for _, p := range []*string{&s.bawn, &s.results, &s.profiles} { // the place is elsewhere
		if *p == "" {
			continue
		}
		abs, err := filepath.Abs(*p)
		if err != nil {
			return s, err
		}
		*p = abs
	}
	return s, nil
}

func (s *settings) choosePeers(list string) error {
	for _, p := range strings.Split(list, ",") {
		switch {
		case makerOf(p) == nil:
			return fmt.Errorf("there is no peer %q", p)
		case p == "bawn" && s.bawn == "":
			continue
		}
		s.peers = append(s.peers, p)
	}
	return nil
}

func (s *settings) chooseRows(list string, quick bool) error {
	beginnings := strings.Split(list, ",")
	used := map[string]bool{}
	for i := range rows {
		r := &rows[i]
		if list == "" && quick && r.large() {
			continue
		}
		for _, b := range beginnings {
			if strings.HasPrefix(r.name, b) {
				s.rows, used[b] = append(s.rows, r), true
				break
			}
		}
	}
	for _, b := range beginnings {
		if !used[b] {
			return fmt.Errorf("no row begins with %q", b)
		}
	}
	return nil
}
