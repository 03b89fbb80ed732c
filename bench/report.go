// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// report prints the tables and keeps them beside earlier ones. It fails if a
// sample did.
func report(s settings, samples []sample) error {
	text := tables(s, samples)
	fmt.Print(text)
	if err := os.MkdirAll(s.results, 0o755); err != nil {
		return err
	}
	name := time.Now().UTC().Format("20060102-150405") + ".md"
	if err := os.WriteFile(filepath.Join(s.results, name), []byte(text), 0o644); err != nil {
		return err
	}
	var failed []error
	for _, x := range samples {
		if x.failed != "" {
			failed = append(failed, errors.New(x.line()))
		}
	}
	return errors.Join(failed...)
}

// tables is one table for each row of the bench, in Markdown.
func tables(s settings, samples []sample) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d runs, %s each after %s, peers interleaved row by row; %d CPUs, %s, %s, load average %s at the end\n",
		s.runs, s.measure, s.warm, runtime.NumCPU(), runtime.Version(), kernel(), loadAverage())
	fmt.Fprintf(&b, "Peers: %s\n", versions())
	b.WriteString("Figures are medians; behind them the spread of the runs. Ratios are taken within each run.\n")
	for _, r := range s.rows {
		fmt.Fprintf(&b, "\n### %s: %s\n\n", r.name, r.what)
		t := table{s, r, samples}
		switch {
		case r.fresh:
			t.memory(&b)
		case r.open:
			t.latency(&b)
		default:
			t.cost(&b)
		}
	}
	return b.String()
}

// A table is one row of the bench.
type table struct {
	s       settings
	r       *row
	samples []sample
}

// of returns a figure of a peer, run by run.
func (t *table) of(peer string, figure func(*sample) float64) (list []float64) {
	for i := range t.samples {
		if x := &t.samples[i]; x.row == t.r && x.peer == peer && x.ok() {
			list = append(list, figure(x))
		}
	}
	return list
}

// why returns why a peer has no figures.
func (t *table) why(peer string) string {
	for i := range t.samples {
		if x := &t.samples[i]; x.row == t.r && x.peer == peer && !x.ok() {
			if x.failed != "" {
				return "FAILED: " + x.failed
			}
			return x.skipped
		}
	}
	return "not run"
}

// within divides a figure of two peers run by run: what else the machine did
// was alike for both then.
func (t *table) within(a, b string, figure func(*sample) float64) []float64 {
	var list []float64
	for run := range t.s.runs {
		x, y := t.sample(a, run), t.sample(b, run)
		if x != nil && y != nil && figure(y) > 0 {
			list = append(list, figure(x)/figure(y))
		}
	}
	return list
}

func (t *table) sample(peer string, run int) *sample {
	for i := range t.samples {
		if x := &t.samples[i]; x.row == t.r && x.peer == peer && x.run == run && x.ok() {
			return x
		}
	}
	return nil
}

// lines writes one line for each peer, and its reason where it has none.
func (t *table) lines(b *strings.Builder, head string, line func(peer string) string) {
	fmt.Fprintf(b, "| |%s\n|---|%s\n", head, strings.Repeat("---|", strings.Count(head, "|")))
	for _, peer := range t.s.peers {
		if peer == "direct" && !t.r.open {
			continue
		}
		if len(t.of(peer, (*sample).amount)) == 0 {
			fmt.Fprintf(b, "| %s | %s |%s\n", peer, t.why(peer), strings.Repeat(" |", strings.Count(head, "|")-1))
			continue
		}
		fmt.Fprintf(b, "| %s |%s\n", peer, line(peer))
	}
}

func (t *table) cost(b *strings.Builder) {
	head := fmt.Sprintf(" CPU us/%s | of the floor | Bawn's of it | %s/s |", t.r.unit, t.r.units())
	t.lines(b, head, func(peer string) string {
		cpu := (*sample).perUnit
		return fmt.Sprintf(" %s | %s | %s | %.0f |", figure(t.of(peer, cpu), "%.1f"),
			figure(t.within(peer, "floor", cpu), "%.2f"), t.bawns(peer, cpu), median(t.of(peer, (*sample).perSecond)))
	})
}

// bawns is Bawn's figure as a part of a peer's.
func (t *table) bawns(peer string, f func(*sample) float64) string {
	if peer == "bawn" || peer == "direct" {
		return ""
	}
	return figure(t.within("bawn", peer, f), "%.2f")
}

func (t *table) latency(b *strings.Builder) {
	head := fmt.Sprintf(" %s/s | p50 us | p99 us | added p50 | added p99 | Bawn's added p50 of it | p99 | CPU us/%s | Bawn's of it |", t.r.units(), t.r.unit)
	t.lines(b, head, func(peer string) string {
		p50, p99 := t.added(func(s *summary) float64 { return s.P50 }), t.added(func(s *summary) float64 { return s.P99 })
		base := fmt.Sprintf(" %.0f | %s | %s |", median(t.of(peer, (*sample).perSecond)),
			figure(t.of(peer, func(x *sample) float64 { return x.latency.P50 }), "%.0f"),
			figure(t.of(peer, func(x *sample) float64 { return x.latency.P99 }), "%.0f"))
		if peer == "direct" {
			return base + " | | | | | |"
		}
		return base + fmt.Sprintf(" %s | %s | %s | %s | %s | %s |",
			figure(t.of(peer, p50), "%.0f"), figure(t.of(peer, p99), "%.0f"), t.bawns(peer, p50), t.bawns(peer, p99),
			figure(t.of(peer, (*sample).perUnit), "%.1f"), t.bawns(peer, (*sample).perUnit))
	})
}

// added is a latency without what there is without a peer: at the same rate
// where that is the peer's own, else in the same run.
func (t *table) added(q func(*summary) float64) func(*sample) float64 {
	return func(x *sample) float64 {
		base := x.baseline
		if base.N == 0 {
			if d := t.sample("direct", x.run); d != nil {
				base = d.latency
			}
		}
		return q(&x.latency) - q(&base)
	}
}

func (t *table) memory(b *strings.Builder) {
	head := " KB each | of the floor | Bawn's of it | connections | MB in all |"
	t.lines(b, head, func(peer string) string {
		each := (*sample).each
		return fmt.Sprintf(" %s | %s | %s | %.0f | %.0f |", figure(t.of(peer, each), "%.1f"),
			figure(t.within(peer, "floor", each), "%.2f"), t.bawns(peer, each),
			median(t.of(peer, (*sample).amount)), median(t.of(peer, func(x *sample) float64 { return mb(x.after) })))
	})
}

func median(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}

// figure is the median, with the spread where there is one.
func figure(list []float64, form string) string {
	if len(list) == 0 {
		return "-"
	}
	text := fmt.Sprintf(form, median(list))
	if len(list) == 1 {
		return text
	}
	return text + fmt.Sprintf(" ("+form+"-"+form+")", slices.Min(list), slices.Max(list))
}

// loadAverage is what the machine did: the bench itself makes about 3.
func loadAverage() string {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(raw), " ")
	return first
}

func kernel() string {
	out, err := exec.Command("uname", "-sr").Output()
	if err != nil {
		return runtime.GOOS
	}
	return strings.TrimSpace(string(out))
}

func moduleVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "?"
	}
	for _, d := range info.Deps {
		if d.Path == path {
			return d.Version
		}
	}
	return "?"
}
