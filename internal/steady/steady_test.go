// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package steady_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"bawn/internal/steady"
)

// series makes n samples a thousand units apart, each as at says.
func series(n int, at func(i int, s *steady.Sample)) []steady.Sample {
	list := make([]steady.Sample, n)
	for i := range list {
		list[i] = steady.Sample{Done: (i + 1) * 1000, Goroutines: 20, Descriptors: 30, Memory: 8 << 20}
		at(i, &list[i])
	}
	return list
}

func TestFlatIsFlat(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for name, at := range map[string]func(i int, s *steady.Sample){
		"as it was": func(int, *steady.Sample) {},
		"noise": func(_ int, s *steady.Sample) {
			s.Goroutines += rng.Int64N(6)
			s.Descriptors += rng.Int64N(6)
			s.Memory += rng.Int64N(1 << 20)
		},
		"warm-up": func(i int, s *steady.Sample) {
			s.Goroutines += int64(min(i, 8)) * 20
			s.Memory += int64(min(i, 8)) << 20
		},
		"a step that stays": func(i int, s *steady.Sample) {
			if i > 18 {
				s.Goroutines += 50
				s.Descriptors += 50
				s.Memory += 4 << 20
			}
		},
		"some stand out": func(i int, s *steady.Sample) {
			if i%5 == 4 {
				s.Goroutines += int64(i) * 10
				s.Descriptors += int64(i) * 10
				s.Memory += int64(i) << 20
			}
		},
		"it shrinks": func(i int, s *steady.Sample) {
			s.Goroutines -= int64(i) / 2
			s.Memory -= int64(i) << 16
		},
	} {
		if err := steady.Check(series(40, at)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The least that is found: five goroutines or descriptors over all of the
// work, and a megabyte, in the midst of noise.
func TestGrowthIsFound(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	noise := func(s *steady.Sample) {
		s.Goroutines += rng.Int64N(3)
		s.Descriptors += rng.Int64N(3)
		s.Memory += rng.Int64N(256 << 10)
	}
	for name, c := range map[string]struct {
		what string
		at   func(i int, s *steady.Sample)
	}{
		"goroutines":  {"goroutines", func(i int, s *steady.Sample) { s.Goroutines += int64(i) / 4 }},
		"descriptors": {"descriptors", func(i int, s *steady.Sample) { s.Descriptors += int64(i) / 4 }},
		"memory":      {"octets of memory", func(i int, s *steady.Sample) { s.Memory += int64(i) * (48 << 10) }},
		"memory that the collector seems to free": {"octets of memory", func(i int, s *steady.Sample) {
			if s.Memory += int64(i) * (96 << 10); i%5 == 4 {
				s.Memory = 8 << 20
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			err := steady.Check(series(40, func(i int, s *steady.Sample) {
				noise(s)
				c.at(i, s)
			}))
			leak, ok := errors.AsType[*steady.Leak](err)
			if !ok || leak.What != c.what || leak.Grown <= leak.Bound {
				t.Errorf("got %v", err)
			}
			if ok && strings.Count(err.Error(), "\n") > 0 {
				t.Errorf("more than one leak: %v", err)
			}
		})
	}
}

func TestTooLittleTellsNothing(t *testing.T) {
	if steady.Check(series(7, func(int, *steady.Sample) {})) == nil {
		t.Error("seven samples were enough")
	}
	if steady.Check(series(20, func(_ int, s *steady.Sample) { s.Done = 1000 })) == nil {
		t.Error("no work was enough")
	}
}

// What really leaks in this process is found.
func TestAtRestSeesWhatLeaks(t *testing.T) {
	var kept [][]byte
	var files []*os.File
	block := make(chan struct{})
	defer close(block)
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	for name, c := range map[string]struct {
		what string
		leak func()
	}{
		"nothing":    {"", func() {}},
		"goroutine":  {"goroutines", func() { go func() { <-block }() }},
		"descriptor": {"descriptors", func() { f, _ := os.Open(os.DevNull); files = append(files, f) }},
		"memory":     {"octets of memory", func() { kept = append(kept, make([]byte, 512<<10)) }},
	} {
		t.Run(name, func(t *testing.T) {
			var samples []steady.Sample
			var last steady.Sample
			for i := range 8 {
				for range 2 {
					c.leak()
				}
				s, err := steady.AtRest(i+1, last)
				if err != nil {
					t.Fatal(err)
				}
				samples, last = append(samples, s), s
			}
			err := steady.Check(samples)
			leak, ok := errors.AsType[*steady.Leak](err)
			if ok != (c.what != "") || ok && leak.What != c.what {
				t.Errorf("got %v from %v", err, samples)
			}
		})
	}
	if len(kept) == 0 {
		t.Error("nothing was kept")
	}
}
