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

// costs are a peer's CPU times per request, run by run.
func costs(samples []sample, peer string) (list []float64) {
	for _, x := range samples {
		if x.peer == peer {
			list = append(list, us(x.perRequest()))
		}
	}
	return list
}

func rates(samples []sample, peer string) (list []float64) {
	for _, x := range samples {
		if x.peer == peer {
			list = append(list, x.perSecond())
		}
	}
	return list
}

// ratios compares two peers within each run: what else the machine does is
// alike for both then.
func ratios(a, b []float64) []float64 {
	list := make([]float64, min(len(a), len(b)))
	for i := range list {
		list[i] = a[i] / b[i]
	}
	return list
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}

func spread(list []float64, form string) string {
	return fmt.Sprintf(form+"-"+form, slices.Min(list), slices.Max(list))
}

func table(s settings, samples []sample) string {
	var b strings.Builder
	fmt.Fprintf(&b, "1 KB over %d connections that stay open, CONNECT and TLS ended on both sides\n", s.conns)
	fmt.Fprintf(&b, "%d runs of %s each, interleaved; %d CPUs, %s, %s, load %s\n",
		s.runs, s.measure, runtime.NumCPU(), runtime.Version(), kernel(), loadAverage())
	fmt.Fprintf(&b, "CPU: user and system time of all of the peer's processes; requests counted at the upstream\n")
	fmt.Fprintf(&b, "/ PEER: ratio of CPU, median and spread of the ratios within each run\n\n")
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	head := "peer\tCPU us/request\tspread\treq/s\t"
	for _, name := range s.peers {
		head += "/ " + name + "\t"
	}
	fmt.Fprintln(w, head)
	for _, name := range s.peers {
		own := costs(samples, name)
		fmt.Fprintf(w, "%s\t%.1f\t%s\t%.0f\t", name, median(own), spread(own, "%.1f"), median(rates(samples, name)))
		for _, other := range s.peers {
			if other == name {
				fmt.Fprint(w, "1\t")
				continue
			}
			r := ratios(own, costs(samples, other))
			fmt.Fprintf(w, "%.2f (%s)\t", median(r), spread(r, "%.2f"))
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	return b.String()
}

// loadAverage is what the machine did besides: the bench itself makes about 3.
func loadAverage() string {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(raw), " ")
	return first
}

func us(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

func kernel() string {
	out, err := exec.Command("uname", "-sr").Output()
	if err != nil {
		return runtime.GOOS
	}
	return strings.TrimSpace(string(out))
}
