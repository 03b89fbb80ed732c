// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"
)

// A sample is one measurement of one peer.
type sample struct {
	row  *row
	peer string
	run  int

	units         int64
	cpu           time.Duration // of the peer's processes
	took          time.Duration
	latency       summary
	baseline      summary // without the peer, at its rate
	before, after int64   // octets of memory

	skipped string // why it was not measured
	failed  string // why it does not count
}

func (s *sample) ok() bool { return s.skipped == "" && s.failed == "" }

func (s *sample) amount() float64 {
	return float64(max(s.units, 1))
}

// perUnit is the CPU time of one unit, in microseconds.
func (s *sample) perUnit() float64 { return us(s.cpu) / s.amount() }

// perSecond is the rate that the machine reached, client and upstream included.
func (s *sample) perSecond() float64 { return s.amount() / s.took.Seconds() }

// each is the memory of one connection, in KB.
func (s *sample) each() float64 { return float64(s.after-s.before) / 1024 / s.amount() }

// line tells the sample while others are still to come.
func (s *sample) line() string {
	head := fmt.Sprintf("run %d %-18s %-10s", s.run+1, s.row.name, s.peer)
	switch {
	case s.skipped != "":
		return head + " - " + s.skipped
	case s.failed != "":
		return head + " FAILED " + s.failed
	case s.row.fresh:
		return fmt.Sprintf("%s %7d connections, %6.1f KB each, %.0f MB in all", head, s.units, s.each(), mb(s.after))
	case s.row.open:
		return fmt.Sprintf("%s %7d %s, p50 %.0f us, p99 %.0f us, %6.1f us CPU each, %.0f/s",
			head, s.units, s.row.units(), s.latency.P50, s.latency.P99, s.perUnit(), s.perSecond())
	}
	return fmt.Sprintf("%s %7d %s, %8.1f us CPU each, %7.0f/s", head, s.units, s.row.units(), s.perUnit(), s.perSecond())
}

func us(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

func mb(octets int64) float64 { return float64(octets) / (1 << 20) }
