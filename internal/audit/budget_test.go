// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"testing"
	"time"

	"bawn/internal/verdict"
)

// TestI11FloodHidesNothingSensitive: what an agent tries at a metadata address has a
// record of its own, however much else it was denied in that second, and whatever
// its share of the journal is.
func TestI11FloodHidesNothingSensitive(t *testing.T) {
	for name, opt := range map[string]Options{"denials": {Denials: 10}, "share": {Denials: 10, AgentBytes: 1, AgentFlow: 1}} {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
			opt.Now = func() time.Time { return now }
			j := open(t, t.TempDir(), opt)
			defer j.Close()
			deny := func(sensitive bool) uint64 {
				d := testDecision("r-1")
				d.Verdict, d.Sensitive = verdict.Deny, sensitive
				if err := j.Decide(d); err != nil {
					t.Fatal(err)
				}
				return d.Seq
			}
			for range 100 {
				deny(false)
			}
			if deny(false) != 0 || deny(true) == 0 {
				t.Error("the flood hides it")
			}
			for range 100 {
				deny(true)
			}
			if deny(true) != 0 {
				t.Error("there is no bound")
			}
		})
	}
}

// TestSharesGrowByTheClock, not by when requests say that they came: one that was
// held back would let time pass twice.
func TestSharesGrowByTheClock(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	j := open(t, t.TempDir(), Options{AgentBytes: 10_000, AgentFlow: 100, Now: func() time.Time { return now }})
	defer j.Close()
	ask := func(came time.Time) bool {
		d := testDecision("r-1")
		d.Time, d.Verdict, d.Code = came, verdict.Allow, ""
		return j.Decide(d) == nil
	}
	let := 0
	for range 1000 {
		if ask(now.Add(-time.Hour)) {
			let++
		}
		if ask(now) {
			let++
		}
	}
	if let > 200 {
		t.Errorf("%d requests were let through", let)
	}
}
