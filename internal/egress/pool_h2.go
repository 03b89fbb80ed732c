// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"context"
	"slices"
	"time"

	"bawn/internal/addr"
)

// share returns a request on a connection that others use as well or that waits
// for one; nil if there is none that will do.
func (p *pool) share(x *exchange, key poolKey, vet addr.Vet) *h2Request {
	for _, up := range p.candidates(key) {
		if !p.claim(up, x.rec.Revision, vet) {
			continue
		}
		if r := up.open(x); r != nil {
			return r
		}
		p.free(up) // it carries as many as the server lets it
	}
	return nil
}

func (p *pool) candidates(key poolKey) []*h2Upstream {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.shared[key] // never changed in place
}

// claim counts a use of a connection. It reports false if the connection will
// not do: it is broken, or its address is not one that the policy of another
// revision lets in.
func (p *pool) claim(up *h2Upstream, revision uint64, vet addr.Vet) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if up.retired || !up.client.Usable() {
		return false
	}
	if up.revision != revision {
		if _, ok := vet.Check(up.addr); !ok {
			up.retired = true
			return false
		}
		up.revision = revision
	}
	p.use(up)
	return true
}

// use counts a use. mu is held.
func (p *pool) use(up *h2Upstream) {
	if up.uses == 0 {
		p.waiting--
		p.s.live.idle.Add(-1)
	}
	up.uses++
}

// add takes a new connection in, with one use.
func (p *pool) add(up *h2Upstream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	up.uses, up.retired = 1, p.closed
	if p.shared == nil {
		p.shared = map[poolKey][]*h2Upstream{}
	}
	p.shared[up.key] = append(slices.Clip(p.shared[up.key]), up)
}

// free takes one use back. A connection that nothing uses then is closed if it
// will not be used again; if too many wait, the one that has waited longest is.
func (p *pool) free(up *h2Upstream) {
	if over := p.freed(up); over != nil {
		over.close()
	}
}

// freed is free but for the closing of what it returns.
func (p *pool) freed(up *h2Upstream) (over *h2Upstream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	up.uses--
	if up.uses > 0 {
		return nil
	}
	up.since = time.Duration(p.s.live.clock.Load())
	p.waiting++
	p.s.live.idle.Add(1)
	switch {
	case up.retired || p.closed || !up.client.Usable():
		over = up
	case p.waiting > p.s.lim.IdleUpstreams:
		over = p.oldestShared()
	}
	if over != nil {
		p.forget(over)
	}
	return over
}

// oldestShared returns what has waited longest. mu is held.
func (p *pool) oldestShared() (oldest *h2Upstream) {
	for _, list := range p.shared {
		for _, up := range list {
			if up.uses == 0 && (oldest == nil || up.since < oldest.since) {
				oldest = up
			}
		}
	}
	return oldest
}

// forget takes out a connection that nothing uses. mu is held.
func (p *pool) forget(up *h2Upstream) {
	up.retired = true
	list := slices.DeleteFunc(slices.Clone(p.shared[up.key]), func(u *h2Upstream) bool { return u == up })
	if len(list) == 0 {
		delete(p.shared, up.key)
	} else {
		p.shared[up.key] = list
	}
	p.waiting--
	p.s.live.idle.Add(-1)
}

// sweepShared closes the connections that nothing uses and that are broken or
// old.
func (p *pool) sweepShared(old func(*h2Upstream) bool) {
	var out []*h2Upstream
	p.mu.Lock()
	for _, list := range p.shared {
		for _, up := range list {
			if up.uses == 0 && (old(up) || !up.client.Usable()) {
				out = append(out, up)
			}
		}
	}
	for _, up := range out {
		p.forget(up)
	}
	p.mu.Unlock()
	for _, up := range out {
		up.close()
	}
}

// retire lets no other request onto the connections of today, and closes those
// that nothing uses.
func (p *pool) retire() {
	p.mu.Lock()
	for _, list := range p.shared {
		for _, up := range list {
			up.retired = true
		}
	}
	p.mu.Unlock()
	p.sweepShared(func(*h2Upstream) bool { return true })
}

// A dialing is a connection on its way that others may want to share.
type dialing struct{ done chan struct{} }

// await waits while somebody else connects for key, and reports true if
// somebody did. Otherwise it is the caller who connects, and calls arrived when
// it is done.
func (p *pool) await(ctx context.Context, key poolKey) bool {
	p.mu.Lock()
	d := p.dials[key]
	if d == nil {
		if p.dials == nil {
			p.dials = map[poolKey]*dialing{}
		}
		p.dials[key] = &dialing{done: make(chan struct{})}
		p.mu.Unlock()
		return false
	}
	p.mu.Unlock()
	select {
	case <-d.done:
	case <-ctx.Done():
	}
	return true
}

func (p *pool) arrived(key poolKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.dials[key].done)
	delete(p.dials, key)
}
