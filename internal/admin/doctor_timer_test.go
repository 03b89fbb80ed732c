// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"testing"
	"time"

	"bawn/internal/apitype"
)

// TestSelfTestIsRepeatedSoonWhileAPlacementIsShut: a self-test can fail for a
// reason that passes, such as a process that was just being started again. What
// it shut is opened without a hand, soon; a reason that stays costs a run a
// minute.
func TestSelfTestIsRepeatedSoonWhileAPlacementIsShut(t *testing.T) {
	began := time.Unix(1_000_000, 0)
	w := watch{every: time.Hour, jitter: func() float64 { return 0 }, began: began}
	newest := began
	var pauses []time.Duration
	for now := began; len(pauses) < 8; now = now.Add(time.Second) {
		cause := w.due(now, true, newest, true)
		if cause == "" {
			continue
		}
		if cause != causeFailed {
			t.Fatalf("it ran for %q", cause)
		}
		pauses = append(pauses, now.Sub(newest))
		w.ran(cause, now)
		newest = now
	}
	for i, want := range []time.Duration{2, 4, 8, 16, 32, 60, 60, 60} {
		if pauses[i] != want*time.Second {
			t.Errorf("pause %d is %v, want %v s", i, pauses[i], want)
		}
	}
	if cause := w.due(newest.Add(10*time.Minute), true, newest, false); cause != "" {
		t.Errorf("all is well, and it runs for %q", cause)
	}
	if cause := w.due(newest.Add(2*time.Second), true, newest, true); cause != causeFailed {
		t.Errorf("after a good run a failure is tried again at once, not %q", cause)
	}
}

// TestASelfTestThatRanOutOfTimeIsRepeated: what it shut before its time was over
// is not forgotten until the next hour.
func TestASelfTestThatRanOutOfTimeIsRepeated(t *testing.T) {
	s, _, _ := newServer(t)
	s.open(s.o.Config.Placement, "it was too slow")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.finish(ctx, &apitype.Doctor{At: time.Now()}); err != nil {
		t.Error(err)
	}
	if at, lacking := s.newestTest(); at.IsZero() || !lacking {
		t.Errorf("at %v, lacking %v", at, lacking)
	}
}
