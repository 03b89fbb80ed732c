// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"testing"
	"testing/synctest"
	"time"

	"bawn/internal/apitype"
)

func snap(tag string, n uint64) apitype.Snapshot { return apitype.Snapshot{Tag: tag, Revision: n} }

func TestI10ApplyWaitsForEveryPlane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlanes(time.Now)
		p.set(snap("old", 1))
		p.asked("proxy", 10, "old")
		p.asked("proxy", 11, "old")
		p.set(snap("new", 2))
		settled := make(chan time.Duration, 1)
		began := time.Now()
		go func() {
			p.settle(t.Context(), "new")
			settled <- time.Since(began)
		}()
		time.Sleep(200 * time.Millisecond)
		p.asked("proxy", 10, "new")
		synctest.Wait()
		select {
		case <-settled:
			t.Fatal("settled while one plane judges by the old revision")
		default:
		}
		p.asked("proxy", 11, "old") // it has the answer on the way, and the old policy until it acknowledges
		time.Sleep(300 * time.Millisecond)
		p.asked("proxy", 11, "new")
		if took := <-settled; took != 500*time.Millisecond {
			t.Errorf("settled after %v, not when the last plane had acknowledged", took)
		}
	})
}

func TestI10ApplyWaitsUntilADeadPlanesLeaseHasLapsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlanes(time.Now)
		p.set(snap("old", 1))
		p.asked("proxy", 10, "old")
		time.Sleep(time.Second)
		p.set(snap("new", 2))
		began := time.Now()
		if err := p.settle(t.Context(), "new"); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != apitype.LeaseTTL-time.Second {
			t.Errorf("settled after %v, the lease had %v left", took, apitype.LeaseTTL-time.Second)
		}
		for _, seen := range p.list() {
			if seen.Live {
				t.Errorf("plane %d counts as live", seen.PID)
			}
		}
	})
}

func TestApplyWithoutPlanesReturnsAtOnce(t *testing.T) {
	p := newPlanes(time.Now)
	p.set(snap("new", 1))
	if err := p.settle(t.Context(), "new"); err != nil {
		t.Error(err)
	}
}
