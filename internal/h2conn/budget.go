// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package h2conn

import "time"

// A budget is how much of something a peer may still ask for. It is refilled by
// the time, slowly, and by what the peer does that has a use, so that it ends
// with those who do nothing else.
type budget struct {
	left, size int
	perSecond  int
	since      time.Time // when time refilled it last
}

func newBudget(size, perSecond int) budget {
	return budget{left: size, size: size, perSecond: perSecond, since: time.Now()}
}

// take draws n and reports whether there was as much.
func (b *budget) take(n int) bool {
	if b.left < n {
		b.refill(time.Now())
	}
	b.left -= n
	return b.left >= 0
}

func (b *budget) refill(now time.Time) {
	passed := min(now.Sub(b.since), time.Hour)
	if n := int(passed * time.Duration(b.perSecond) / time.Second); n > 0 {
		b.give(n)
		b.since = now
	}
}

// give puts n back.
func (b *budget) give(n int) { b.left = min(b.left+n, b.size) }

// The budgets of a connection.
const (
	// Frames that carry nothing: pings, settings, priorities, window updates,
	// empty DATA, unknown ones, frames on closed streams. A gRPC client that
	// measures the bandwidth sends a ping or two for each DATA frame, and many
	// a client a window update or two; each useful frame pays for four.
	noiseSize      = 1000
	noisePerSecond = 50
	noisePerUse    = 4
	settingsNoise  = 20 // changes every stream's window

	// Streams that are opened and reset, by the peer or by what it does wrong
	// (CVE-2023-44487 and CVE-2025-8671). A stream that comes to its end pays
	// for one.
	resetSize      = 400
	resetPerSecond = 33
)
