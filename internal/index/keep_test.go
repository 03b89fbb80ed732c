// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package index_test

import (
	"testing"
	"time"

	"bawn/internal/audit"
)

// fast is a clock that begins at a time and runs a hundred times as fast as ours,
// so that what is done every few seconds is done in a test.
func fast(at time.Time) func() time.Time {
	began := time.Now()
	return func() time.Time { return at.Add(100 * time.Since(began)) }
}

// eventually waits for what has to come by itself.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

func TestOldDaysLeaveTheIndex(t *testing.T) {
	w := newWorld(t, 21)
	w.step = 6 * time.Minute
	w.write(3000) // some six days
	w.close()
	all := w.oracle(audit.Filter{})
	o := w.options()
	x := run(t, o)
	same(t, "all", all, x.read(audit.Filter{}))
	x.stop()

	o.Now, o.Keep = fast(w.now), audit.Keep{Age: 48 * time.Hour}
	x = run(t, o)
	oldest := w.now.Add(-o.Keep.Age).Truncate(24 * time.Hour)
	want := w.oracle(audit.Filter{Since: oldest})
	if len(want) == 0 || len(want) == len(all) {
		t.Fatalf("%d entries of %d are young", len(want), len(all))
	}
	eventually(t, "old days leave", func() bool {
		got := x.read(audit.Filter{})
		for _, e := range got { // whole days, at any time
			if at, _ := timeOf(e); at.Before(oldest) && len(got) < len(want) {
				t.Fatal("something young left before something old")
			}
		}
		return len(got) == len(want)
	})
	same(t, "young", want, x.read(audit.Filter{}))
	totals, err := x.Totals(t.Context(), audit.Filter{}, 0)
	must(t, err)
	if w := w.added(audit.Filter{Since: oldest}, 0); totals[0] != w[0] {
		t.Errorf("total %+v, want %+v", totals[0], w[0])
	}
	// A late outcome of what has left is an entry without its decision, and an
	// index that is made anew does not take in what is too old.
	x.stop()
	must(t, removeAll(o.Path))
	x = run(t, o)
	same(t, "made anew", want, x.read(audit.Filter{Since: oldest}))
}

func TestAnIndexBeyondItsSizeLosesTheOldest(t *testing.T) {
	w := newWorld(t, 22)
	w.step = 30 * time.Second // all in one day or two
	w.write(4000)
	w.close()
	o := w.options()
	x := run(t, o)
	x.catchUp()
	eventually(t, "its size is known", func() bool { return x.Health().Bytes > 0 })
	size := x.Health().Bytes
	x.stop()

	o.Now, o.Keep = fast(w.now), audit.Keep{Size: size / 2}
	x = run(t, o)
	eventually(t, "it gets smaller", func() bool { x.catchUp(); return x.Health().Bytes <= size/2 })
	got := x.read(audit.Filter{})
	if len(got) == 0 {
		t.Fatal("nothing is left")
	}
	first, _ := timeOf(got[0])
	same(t, "what is left", w.oracle(audit.Filter{Since: first}), got)
}
