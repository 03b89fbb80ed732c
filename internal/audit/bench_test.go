// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import "testing"

// BenchmarkRequest is one allowed request: a decision, then its outcome.
func BenchmarkRequest(b *testing.B) {
	j, err := OpenJournal(b.TempDir(), Options{Plane: "egress"})
	if err != nil {
		b.Fatal(err)
	}
	defer j.Close()
	d, o := testDecision("r-0123456789abcdef"), testOutcome("r-0123456789abcdef")
	b.ReportAllocs()
	for b.Loop() {
		d.Time = start
		if err := j.Decide(d); err != nil {
			b.Fatal(err)
		}
		o.Time = start
		j.Outcome(o)
	}
}

func BenchmarkRequestParallel(b *testing.B) {
	j, err := OpenJournal(b.TempDir(), Options{Plane: "egress"})
	if err != nil {
		b.Fatal(err)
	}
	defer j.Close()
	b.ReportAllocs()
	b.SetParallelism(16)
	b.RunParallel(func(p *testing.PB) {
		d, o := testDecision("r-0123456789abcdef"), testOutcome("r-0123456789abcdef")
		for p.Next() {
			d.Time, o.Time = start, start
			if err := j.Decide(d); err != nil {
				b.Fatal(err)
			}
			j.Outcome(o)
		}
	})
}

func BenchmarkEncodeDecision(b *testing.B) {
	var e encoder
	d := testDecision("r-0123456789abcdef")
	d.Time = start
	var buf []byte
	for b.Loop() {
		buf = e.decision(buf[:0], d)
	}
}

func BenchmarkParseLine(b *testing.B) {
	line := seeds()[0]
	b.ReportAllocs()
	for b.Loop() {
		if _, err := parseLine(line); err != nil {
			b.Fatal(err)
		}
	}
}
