// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"io"
	"testing"
)

const benchRecords = 20000

func benchRig(b *testing.B) *rig {
	r := newRig(b, 700)
	r.opt.FileBytes = 4 << 20
	r.write(b, benchRecords)
	r.close(b)
	return r
}

// perRecord reports what one record costs.
func perRecord(b *testing.B) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchRecords, "ns/record")
}

func BenchmarkSign(b *testing.B) {
	r := benchRig(b)
	for b.Loop() {
		x := r.copied(b)
		x.restart(b)
		x.sign(b)
	}
	perRecord(b)
}

func BenchmarkVerify(b *testing.B) {
	r := benchRig(b)
	r.sign(b)
	for b.Loop() {
		if rep := r.verify(b); !rep.OK() {
			b.Fatal(lines(rep))
		}
	}
	perRecord(b)
}

func BenchmarkChoose(b *testing.B) {
	r := benchRig(b)
	r.sign(b)
	for b.Loop() {
		if _, err := Choose(io.Discard, r.Layout, r.key.Key, Wish{Agent: "eve"}); err != nil {
			b.Fatal(err)
		}
	}
	perRecord(b)
}
