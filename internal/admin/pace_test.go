// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"net/http"
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	var p pace
	now := time.Unix(1_000_000, 0)
	asked := func(n int) (got int) {
		for range n {
			if p.take(now) {
				got++
			}
		}
		return got
	}
	for i, step := range []struct {
		later time.Duration
		want  int
	}{{0, planeActsAtOnce}, {0, 0}, {planeActEvery, 1}, {3 * planeActEvery, 3}, {-time.Hour, 0}, {time.Hour, planeActsAtOnce}} {
		now = now.Add(step.later)
		if got := asked(100); got != step.want {
			t.Errorf("step %d: %d, want %d", i, got, step.want)
		}
	}
}

// TestAPlaneCannotFillTheRecord: a proxy that was taken over asks for signatures
// all the time.
func TestAPlaneCannotFillTheRecord(t *testing.T) {
	s, _, _ := newServer(t)
	var route route
	for _, r := range routes {
		if r.pattern == "POST /plane/intermediate" {
			route = r
		}
	}
	before := len(actsOf(t, s))
	refused := 0
	for range 200 {
		if err := s.paced(route, func() error {
			q, _ := http.NewRequestWithContext(t.Context(), "POST", "http://admin/", http.NoBody)
			return s.perform(route, discard{}, q, peerOf(proxyUID))
		}); err != nil && err.Error() == errTooOften.Error() {
			refused++
		}
	}
	if n := len(actsOf(t, s)) - before; n > planeActsAtOnce+5 || refused < 160 {
		t.Errorf("%d acts are on record, and %d were refused", n, refused)
	}
}
