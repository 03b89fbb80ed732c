// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"net/http"
	"sync"
	"time"

	"bawn/internal/apitype"
	"bawn/internal/codes"
)

// A plane has something done for it (a certificate signed) once when it starts,
// and now and then. One that was taken over must not fill admin's record by
// asking all the time: a full disk would end what operators do.
const (
	planeActsAtOnce = 30
	planeActEvery   = 2 * time.Second
)

// A pace lets acts of planes through: some at once, and then one in a while.
// Zero, nothing was asked yet. It may be used by many goroutines.
type pace struct {
	mu   sync.Mutex
	owed time.Duration // what was asked for and is not yet over
	last time.Time
}

func (p *pace) take(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.owed = max(0, p.owed-max(0, now.Sub(p.last)))
	p.last = now
	if p.owed+planeActEvery > planeActsAtOnce*planeActEvery {
		return false
	}
	p.owed += planeActEvery
	return true
}

var errTooOften = &apitype.Error{Status: http.StatusTooManyRequests, Code: string(codes.RateLimited), Message: "a plane asks for this too often"}

// paced does what a route does, unless it is an act of a plane and there were too
// many.
func (s *Server) paced(r route, do func() error) error {
	if r.scope == plane && r.act.name != "" && !s.planeActs.take(time.Now()) {
		return errTooOften
	}
	return do()
}
