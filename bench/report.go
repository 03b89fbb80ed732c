// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// report prints the table and keeps it beside earlier ones.
func report(s settings, samples []sample) error {
	text := table(s, samples)
	fmt.Print(text)
	if err := os.MkdirAll(s.results, 0o755); err != nil {
		return err
	}
	name := time.Now().UTC().Format("20060102-150405") + ".txt"
	return os.WriteFile(filepath.Join(s.results, name), []byte(text), 0o644)
}

// A row is what a peer's runs come to.
type row struct {
	peer           string
	low, mid, high time.Duration // CPU per request
	rate           float64       // median
}

func rows(s settings, samples []sample) []row {
	var list []row
	for _, name := range s.peers {
		var costs []time.Duration
		var rates []float64
		for _, x := range samples {
			if x.peer == name {
				costs, rates = append(costs, x.perRequest()), append(rates, x.perSecond())
			}
		}
		slices.Sort(costs)
		slices.Sort(rates)
		list = append(list, row{name, costs[0], costs[len(costs)/2], costs[len(costs)-1], rates[len(rates)/2]})
	}
	return list
}

func table(s settings, samples []sample) string {
	list := rows(s, samples)
	var b strings.Builder
	fmt.Fprintf(&b, "1 KB over %d connections that stay open, CONNECT and TLS ended on both sides\n", s.conns)
	fmt.Fprintf(&b, "%d runs of %s each, interleaved; %d CPUs, %s, %s\n", s.runs, s.measure, runtime.NumCPU(), runtime.Version(), kernel())
	fmt.Fprintf(&b, "CPU: user and system time of all of the peer's processes; requests counted at the upstream\n\n")
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	head, rule := "peer\tCPU us/request\tspread\treq/s\t", "----\t--------------\t------\t-----\t"
	for _, r := range list {
		head += "/ " + r.peer + "\t"
		rule += "------\t"
	}
	fmt.Fprintln(w, head)
	fmt.Fprintln(w, rule)
	for _, r := range list {
		fmt.Fprintf(w, "%s\t%.1f\t%.1f-%.1f\t%.0f\t", r.peer, us(r.mid), us(r.low), us(r.high), r.rate)
		for _, other := range list {
			fmt.Fprintf(w, "%.2f\t", us(r.mid)/us(other.mid))
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	return b.String()
}

func us(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

func kernel() string {
	out, err := exec.Command("uname", "-sr").Output()
	if err != nil {
		return runtime.GOOS
	}
	return strings.TrimSpace(string(out))
}
