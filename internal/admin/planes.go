// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"slices"
	"sync"
	"time"

	"bawn/internal/apitype"
)

// planes keeps who holds a lease and on what.
//
// A plane's ask arrives here later than the plane made it, and the plane
// counts from its making, so a lease has lapsed there at the latest LeaseTTL
// after it was last seen here.
type planes struct {
	now func() time.Time

	mu      sync.Mutex
	byPID   map[int32]apitype.Plane // Tag of the snapshot is kept beside
	tags    map[int32]string
	current apitype.Snapshot
	parent  apitype.ParentHealth // that a plane reported last
	check   uint64               // number of the newest check of resolvers that was asked for
	report  apitype.ResolverReport
	changed chan struct{} // closed when current is replaced, or a plane has asked
}

func newPlanes(now func() time.Time) *planes {
	return &planes{now: now, byPID: map[int32]apitype.Plane{}, tags: map[int32]string{}, changed: make(chan struct{})}
}

// set makes s the snapshot that planes are to enforce.
func (p *planes) set(s apitype.Snapshot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current = s
	p.announce()
}

func (p *planes) announce() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// asked records a beat and returns the snapshot in force and a channel that is
// closed at the next change.
func (p *planes) asked(name string, pid int32, have string) (apitype.Snapshot, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := apitype.Plane{Name: name, PID: pid, Asked: p.now()}
	if have == p.current.Tag {
		seen.Revision = p.current.Revision
	} else {
		seen.Revision = p.byPID[pid].Revision
	}
	news := p.tags[pid] != have
	p.byPID[pid], p.tags[pid] = seen, have
	if news {
		p.announce()
	}
	return p.current, p.changed
}

// reported records how the parent proxy does.
func (p *planes) reported(h apitype.ParentHealth) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h.At.After(p.parent.At) {
		p.parent = h
	}
}

// askResolvers has the planes check their resolvers, and returns the number of
// the check.
func (p *planes) askResolvers() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.check++
	p.announce()
	return p.check
}

// checkAsked is the number that planes are told.
func (p *planes) checkAsked() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.check
}

// resolversReported records how the resolvers did.
func (p *planes) resolversReported(r apitype.ResolverReport) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Check > p.report.Check && r.Check <= p.check {
		p.report = r
		p.announce()
	}
}

// resolverReport returns what was reported last, and what is closed when that
// changes.
func (p *planes) resolverReport() (apitype.ResolverReport, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.report, p.changed
}

// parentHealth returns what was reported last; its time is zero if nothing was.
func (p *planes) parentHealth() apitype.ParentHealth {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.parent
}

// forget drops planes whose lease has lapsed long ago: their processes are
// gone.
const forgetAfter = 10 * apitype.LeaseTTL

// list returns the planes, live or lately so. One whose lease has lapsed is left
// out once another process has taken its place.
func (p *planes) list() []apitype.Plane {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []apitype.Plane
	for pid, seen := range p.byPID {
		age := p.now().Sub(seen.Asked)
		if age > forgetAfter {
			delete(p.byPID, pid)
			delete(p.tags, pid)
			continue
		}
		seen.Live = age < apitype.LeaseTTL
		if seen.Live || !p.replaced(seen) {
			list = append(list, seen)
		}
	}
	slices.SortFunc(list, func(a, b apitype.Plane) int { return a.Asked.Compare(b.Asked) })
	return list
}

// replaced reports whether another process of the same plane asked later.
func (p *planes) replaced(old apitype.Plane) bool {
	for _, other := range p.byPID {
		if other.Name == old.Name && other.Asked.After(old.Asked) {
			return true
		}
	}
	return false
}

// settle blocks until every plane enforces the snapshot with tag or its lease
// has lapsed (I10).
func (p *planes) settle(ctx context.Context, tag string) error {
	for {
		p.mu.Lock()
		wait, changed := p.unsettled(tag), p.changed
		p.mu.Unlock()
		if wait <= 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case <-time.After(wait):
		}
	}
}

// unsettled returns how long the last of the leases on another snapshot can
// still be used.
func (p *planes) unsettled(tag string) time.Duration {
	var longest time.Duration
	for pid, seen := range p.byPID {
		if p.tags[pid] == tag {
			continue
		}
		if left := apitype.LeaseTTL - p.now().Sub(seen.Asked); left > longest {
			longest = left
		}
	}
	return longest
}

// snapshot returns what planes are to enforce.
func (p *planes) snapshot() apitype.Snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current
}
