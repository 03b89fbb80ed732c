// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"sync"
	"time"
)

// latencies are single measurements.
type latencies struct {
	mu   sync.Mutex
	list []latency
}

type latency struct {
	due  time.Time // when it was meant to begin
	took time.Duration
}

// add takes one: from the moment at which it was meant to begin, whether or not
// it could then.
func (l *latencies) add(due, end time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, latency{due, end.Sub(due)})
}

// A window is the time between the first and the last of its marks.
type window struct {
	mu          sync.Mutex
	first, last time.Time
}

func (w *window) mark(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.first.IsZero() {
		w.first = now
	}
	w.last = now
}

func (w *window) holds(t time.Time) bool { return !t.Before(w.first) && t.Before(w.last) }

// A summary is what is told of latencies, in microseconds.
type summary struct {
	N    int     `json:"n"`
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// summary looks at those that were due within the window.
func (l *latencies) summary(w *window) summary {
	l.mu.Lock()
	defer l.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	var in []time.Duration
	for _, x := range l.list {
		if w.holds(x.due) {
			in = append(in, x.took)
		}
	}
	if len(in) == 0 {
		return summary{}
	}
	slices.Sort(in)
	at := func(q float64) float64 { return us(in[min(len(in)-1, int(q*float64(len(in))))]) }
	return summary{N: len(in), P50: at(0.5), P99: at(0.99), P999: at(0.999), Max: us(in[len(in)-1])}
}
