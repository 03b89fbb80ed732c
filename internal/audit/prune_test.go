// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"slices"
	"testing"
	"time"
)

// TestPruneDeletesWholeOldFilesThatAreDoneWith and nothing else, and the chain of
// what is left holds.
func TestPruneDeletesWholeOldFilesThatAreDoneWith(t *testing.T) {
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		before int // file; -1: none, 9: a name of another plane
		keep   Keep
		now    time.Duration // after the first record
		gone   int
	}{
		"nobody is through":         {-1, Keep{Age: day}, 100 * day, 0},
		"another series":            {9, Keep{Age: day}, 100 * day, 0},
		"all are young":             {4, Keep{Age: 90 * day}, 10 * day, 0},
		"two are old":               {4, Keep{Age: 2 * day}, 5 * day, 2},
		"all are old":               {4, Keep{Age: day}, 100 * day, 4},
		"they are needed from here": {1, Keep{Age: day}, 100 * day, 1},
		"too much":                  {4, Keep{Size: 1000}, 0, 4},
		"no bound":                  {4, Keep{}, 1000 * day, 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir, now := t.TempDir(), start
			j := open(t, dir, Options{Now: func() time.Time { return now }})
			for range 5 { // a file a day
				decide(t, j, testDecision("r-1"))
				now = now.Add(day)
			}
			j.Close()
			files, err := listSeries(dir)
			if err != nil {
				t.Fatal(err)
			}
			before := ""
			switch {
			case c.before == 9:
				before = "other-000000009-20260101.jsonl"
			case c.before >= 0:
				before = files["egress"][c.before].String()
			}
			gone, err := Prune(dir, "egress", before, c.keep, start.Add(c.now))
			if err != nil || len(gone) != c.gone {
				t.Fatalf("deleted %v, %v; want %d", gone, err, c.gone)
			}
			left, err := listSeries(dir)
			if err != nil || !slices.Equal(left["egress"], files["egress"][c.gone:]) {
				t.Errorf("left %v, %v", left, err)
			}
			if r, err := Verify(dir); err != nil || !r.OK() {
				t.Errorf("what is left: %+v, %v", r, err)
			}
		})
	}
}
