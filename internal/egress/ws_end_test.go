// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"testing"
	"time"
)

// TestPingsAreForgotten: as many as may come at once, and then ten a second, be
// it a long time later.
func TestPingsAreForgotten(t *testing.T) {
	s := New(Config{Policies: noPolicies{}, Recorder: noRecorder{}})
	e := &wsEnd{s: s}
	heard := func() (n int) {
		for e.hear() == nil {
			n++
		}
		e.controls = int64(s.lim.Controls) * int64(time.Second) / controlsPerSecond // the one too many ends a WebSocket
		return n
	}
	for i, step := range []struct {
		later time.Duration
		want  int
	}{{0, 100}, {0, 0}, {time.Second, 10}, {250 * time.Millisecond, 2}, {time.Hour, 100}} {
		s.live.clock.Add(int64(step.later))
		if n := heard(); n != step.want {
			t.Errorf("step %d: %d pings were heard, want %d", i, n, step.want)
		}
	}
}
