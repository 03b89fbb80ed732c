// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package steady tells whether a program that works for long stays as it is.
//
// A test lets its subject work in portions. After each portion, with nothing
// under way, it calls [AtRest], which waits until the process is quiet and says
// what is in use then. [Check] looks at all these samples: what grows with the
// work that was done is a leak, what grew once and stayed is not.
//
// # How growth is told
//
// The first quarter of the samples is warm-up and does not count: caches fill,
// pools get their size. Of the rest the growth of each figure is the median of
// the slopes between all pairs of samples (Theil and Sen), times the work that
// was done. Single samples that stand out, up to a quarter of all, do not move
// it, and a test of this package shows the least leak that is found.
package steady

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"
)

// A Sample is what is in use at one moment of rest.
type Sample struct {
	Done        int   // units of work so far
	Goroutines  int64 //
	Descriptors int64 // open ones
	Memory      int64 // octets of the heap that are reachable
}

func (s Sample) String() string {
	return fmt.Sprintf("after %d: %d goroutines, %d descriptors, %d KiB", s.Done, s.Goroutines, s.Descriptors, s.Memory>>10)
}

// What a figure may grow by over all of the work.
const (
	goroutines  = 4
	descriptors = 4
	memory      = 1 << 20
	memoryPart  = 10 // or one part in so many of what is in use
)

// A figure is one thing that must not grow.
type figure struct {
	name  string
	of    func(Sample) int64
	bound func(have int64) int64
}

var figures = []figure{
	{"goroutines", func(s Sample) int64 { return s.Goroutines }, func(int64) int64 { return goroutines }},
	{"descriptors", func(s Sample) int64 { return s.Descriptors }, func(int64) int64 { return descriptors }},
	{"octets of memory", func(s Sample) int64 { return s.Memory }, func(have int64) int64 { return max(memory, have/memoryPart) }},
}

// fewest samples tell a slope from chance.
const fewest = 8

// A Leak says that a figure grows with the work.
type Leak struct {
	What  string // goroutines, descriptors or octets of memory
	Grown int64  // over all of the work
	Done  int    // units of it
	Bound int64
}

// Error says what has grown, and by how much for each unit of work.
func (l *Leak) Error() string {
	return fmt.Sprintf("%d %s more after %d units of work (%.4g each), more than %d",
		l.Grown, l.What, l.Done, float64(l.Grown)/float64(l.Done), l.Bound)
}

// Check returns a [*Leak] for each figure that grows, joined, and nil if all are
// flat. Samples are in the order in which they were taken.
func Check(samples []Sample) error {
	if len(samples) < fewest {
		return fmt.Errorf("%d samples tell nothing, %d are needed", len(samples), fewest)
	}
	samples = samples[len(samples)/4:]
	first, last := samples[0].Done, samples[len(samples)-1].Done
	var leaks []error
	for _, f := range figures {
		slope, ok := slope(samples, f.of)
		if !ok {
			return errors.New("no work was done between the samples")
		}
		grown := int64(slope * float64(last-first))
		if bound := f.bound(f.of(samples[0])); grown > bound {
			leaks = append(leaks, &Leak{f.name, grown, last - first, bound})
		}
	}
	return errors.Join(leaks...)
}

// slope is the median of those between all pairs.
func slope(samples []Sample, of func(Sample) int64) (float64, bool) {
	var all []float64
	for i, a := range samples {
		for _, b := range samples[i+1:] {
			if b.Done > a.Done {
				all = append(all, float64(of(b)-of(a))/float64(b.Done-a.Done))
			}
		}
	}
	if len(all) == 0 {
		return 0, false
	}
	slices.Sort(all)
	n := len(all)
	return (all[(n-1)/2] + all[n/2]) / 2, true
}

// How long the process has to be quiet to be at rest, and how long that is
// waited for. What is not at rest by then is sampled as it is.
const (
	quiet   = 200 * time.Millisecond
	look    = 25 * time.Millisecond
	patient = 15 * time.Second
	timers  = 800 * time.Millisecond // for memory that has grown to go
	slack   = 64 << 10
)

// AtRest waits until the number of goroutines and of descriptors of this
// process stays the same, a little longer where there are more than at the rest
// before, collects garbage and takes a sample. done is the work so far. before is the sample of
// the rest before this one, the zero Sample at the first.
func AtRest(done int, before Sample) (Sample, error) {
	runtime.GC() // descriptors of what is not reachable any more are closed
	s, err := here(done)
	began, since := time.Now(), time.Now()
	for err == nil && time.Since(began) < patient {
		settled := time.Since(since) >= quiet
		grown := before.Goroutines > 0 && (s.Goroutines > before.Goroutines || s.Descriptors > before.Descriptors)
		if settled && (!grown || time.Since(since) >= 3*quiet) {
			break
		}
		time.Sleep(look)
		var now Sample
		if now, err = here(done); now != s {
			s, since = now, time.Now()
		}
	}
	if err != nil {
		return s, err
	}
	s.Memory = reachable()
	// Timers hold memory until they are due.
	for began := time.Now(); before.Memory > 0 && s.Memory > before.Memory+slack && time.Since(began) < timers; {
		time.Sleep(quiet)
		s.Memory = reachable()
	}
	return s, nil
}

// reachable collects garbage, twice since what pools hold survives once, and
// returns what is left.
func reachable() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// here is a sample without memory.
func here(done int) (Sample, error) {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return Sample{}, fmt.Errorf("counting descriptors: %w", err)
	}
	return Sample{Done: done, Goroutines: int64(runtime.NumGoroutine()), Descriptors: int64(len(open))}, nil
}
