// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package budget_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"bawn/internal/budget"
	"bawn/internal/quota"
	"bawn/internal/roottest"
)

// An oracle counts as simply as can be: what was let through in each period of
// the clock, and how much of it crashes may have cost.
type oracle struct {
	through map[int64]int64 // by window
	lost    map[int64]int64
	window  int64 // the one that counts now
	used    int64 // the last in which something was let through
	before  int64 // how much that was
}

// crash forgets a window that has begun and in which nothing was let through.
func (o *oracle) crash(costs int64) {
	if o.through[o.window] == 0 && o.before > 0 {
		o.window = o.used
		o.through[o.window] = o.before
	}
	o.lost[o.window] += costs
}

// turn is what a clock says. Set back by a little, it shows a window in which
// nothing begins anew; set back by much, what was used counts for the window that
// it shows.
func (o *oracle) turn(w int64) {
	switch {
	case w == o.window-1:
	case w < o.window:
		o.through[w], o.lost[w] = o.through[o.window], o.lost[o.window]
		delete(o.through, o.window)
		delete(o.lost, o.window)
		o.window = w
		o.used, o.before = w, o.through[w]
	case w > o.window:
		o.window = w
		delete(o.through, w)
		delete(o.lost, w)
	}
}

// TestI13NeverMoreThanTheBudget plays random histories: amounts, clocks that go on
// and back, bounds that change, orderly ends and crashes. What is let through in a
// window is never beyond the bound, and what is refused would have been, but for
// what crashes cost.
func TestI13NeverMoreThanTheBudget(t *testing.T) {
	for seed := range uint64(roottest.Count(40, 800)) {
		if why := history(t, seed); why != "" {
			t.Fatalf("seed %d: %s", seed, why)
		}
	}
}

// most is the largest bound of a history.
const most = 400_000

func history(t *testing.T, seed uint64) (why string) {
	r := rand.New(rand.NewPCG(seed, 5))
	dir := t.TempDir()
	m := openMeter(t, dir)
	what := []quota.What{quota.EgressBytes, quota.Requests, quota.Messages}[r.IntN(3)]
	per := []quota.Period{quota.Second, quota.Minute, quota.Hour, quota.Day}[r.IntN(4)]
	length := time.Duration(per.Seconds()) * time.Second
	now := morning
	limit := int64(1 + r.IntN(most))
	o := oracle{through: map[int64]int64{}, lost: map[int64]int64{}}
	share := int64(64 << 10) // of the largest bound, at most
	if per == quota.Second {
		share = most
	}
	defer func() { m.Close() }()
	for step := range 60 {
		switch p := r.IntN(20); {
		case p == 0:
			now = now.Add(-time.Duration(r.Int64N(int64(4 * length))))
		case p < 4:
			now = now.Add(time.Duration(r.Int64N(int64(length))))
		case p == 4:
			limit = int64(1 + r.IntN(most))
		case p == 5:
			m.Close()
			o.used, o.before = o.window, o.through[o.window]
			m = openMeter(t, dir)
		case p == 6: // a crash: what is on the disk is all that is left
			left := t.TempDir()
			copyFiles(t, dir, left)
			m.Close()
			dir = left
			m = openMeter(t, dir)
			o.crash(share)
		}
		o.turn(per.Window(now))
		n := int64(1 + r.IntN(60_000))
		p := m.NewPass("dev")
		b := []quota.Budget{of(what, limit, per)}
		// Begun without a count of its own, as what is open when a policy comes.
		if v := p.Adopt(b, nil, now); !v.Allowed() && o.through[o.window]+o.lost[o.window] <= limit {
			return fmt.Sprintf("step %d: not adopted: %s", step, v.Detail)
		}
		ok := p.Take(what, n, func() time.Time { return now }).Allowed()
		had := o.through[o.window]
		switch {
		case ok && had+n > limit:
			return fmt.Sprintf("step %d: %d let through after %d, and the bound is %d", step, n, had, limit)
		case !ok && had+o.lost[o.window]+n <= limit:
			return fmt.Sprintf("step %d: %d refused after %d, and crashes cost %d of %d at most", step, n, had, o.lost[o.window], limit)
		case ok:
			o.through[o.window] += n
			o.used, o.before = o.window, o.through[o.window]
		}
	}
	return ""
}

// useForever is what a child of the test does until it is killed.
func useForever(dir string) error {
	m, err := budget.OpenMeter(dir, nil)
	if err == nil {
		err = m.Keep(map[string]string{"dev": dev})
	}
	for err == nil {
		if v := m.NewPass("dev").Begin([]quota.Budget{of(quota.Requests, killLimit, quota.Day)}, nil, api, morning); !v.Allowed() {
			time.Sleep(time.Millisecond) // used up, by this and those before it
			continue
		}
		os.Stdout.WriteString("let through\n")
	}
	return err
}

const killLimit = 64 * 20_000 // a share is 20,000

// TestI13KilledAtAnyInstantNoUseIsLost: what was let through is counted, and a kill
// costs one share at most.
func TestI13KilledAtAnyInstantNoUseIsLost(t *testing.T) {
	rounds := roottest.Count(8, 300)
	dir := t.TempDir()
	through := 0
	for round := range rounds {
		through += killed(t, dir, "METER_TEST_DIR", round)
	}
	n := used(t, openMeter(t, dir), morning, of(quota.Requests, killLimit, quota.Day))
	if n < min(int64(through), killLimit) || n > int64(through)+int64(rounds)*20_001 {
		t.Errorf("%d kills, %d let through, %d counted", rounds, through, n)
	}
	t.Logf("%d kills, %d let through, %d counted", rounds, through, n)
}
