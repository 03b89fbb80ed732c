// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"sync"
	"time"

	"bawn/internal/addr"
	"bawn/internal/names"
)

// A poolKey is what two requests of one lease must share to use one connection.
type poolKey struct {
	rule       string // the first of those that allow them
	credential string
	addresses  string // what all of those let the host resolve to, beside public addresses
	host       names.Host
	port       uint16
	plain      bool
}

// A pool holds the upstream connections of one lease that wait for another
// request.
type pool struct {
	s      *Server
	mu     sync.Mutex
	idle   map[poolKey][]*h1Upstream // those of a key that came last are last
	count  int                       // of all
	closed bool

	// Of HTTP/2. A list is never changed in place.
	shared  map[poolKey][]*h2Upstream
	waiting int // of all shared: those that nothing uses
	dials   map[poolKey]*dialing
}

func (p *pool) init(s *Server) { p.s, p.idle = s, map[poolKey][]*h1Upstream{} }

// get takes a connection out of the pool; nil if none will do. One that the
// server has closed, or said something on, will not; nor one whose address the
// policy of another revision does not let in any more.
func (p *pool) get(key poolKey, revision uint64, vet addr.Vet) *h1Upstream {
	for {
		up := p.take(key)
		if up == nil {
			return nil
		}
		ok := up.quiet()
		if ok && up.revision != revision {
			_, ok = vet.Check(up.addr)
			up.revision = revision
		}
		if ok {
			return up
		}
		up.close()
	}
}

func (p *pool) take(key poolKey) *h1Upstream {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.idle[key]
	if len(list) == 0 {
		return nil
	}
	last := len(list) - 1
	up := list[last]
	list[last] = nil
	p.idle[key] = list[:last]
	p.count--
	p.s.live.idle.Add(-1)
	return up
}

// put gives a connection back, or closes it where there are enough of its key.
// Where there are enough in all, it closes the one that has waited longest.
func (p *pool) put(up *h1Upstream) {
	p.mu.Lock()
	list := p.idle[up.key]
	if p.closed || len(list) >= p.s.lim.IdlePerHost {
		p.mu.Unlock()
		up.close()
		return
	}
	up.since = time.Duration(p.s.live.clock.Load())
	p.idle[up.key] = append(list, up)
	p.count++
	p.s.live.idle.Add(1)
	var oldest *h1Upstream
	if p.count > p.s.lim.IdleUpstreams {
		oldest = p.takeOldest()
	}
	p.mu.Unlock()
	if oldest != nil {
		oldest.close()
	}
}

// takeOldest takes out what has waited longest. mu is held.
func (p *pool) takeOldest() *h1Upstream {
	var oldest *h1Upstream
	for _, list := range p.idle {
		if len(list) > 0 && (oldest == nil || list[0].since < oldest.since) {
			oldest = list[0]
		}
	}
	if oldest == nil {
		return nil
	}
	list := p.idle[oldest.key]
	copy(list, list[1:])
	list[len(list)-1] = nil
	if p.idle[oldest.key] = list[:len(list)-1]; len(list) == 1 {
		delete(p.idle, oldest.key)
	}
	p.count--
	p.s.live.idle.Add(-1)
	return oldest
}

// expire closes what has waited since before a moment of the sweep's clock.
func (p *pool) expire(before time.Duration) {
	p.remove(func(up *h1Upstream) bool { return up.since < before })
	p.sweepShared(func(up *h2Upstream) bool { return up.since < before })
}

// drain closes everything that waits.
func (p *pool) drain() {
	p.remove(func(*h1Upstream) bool { return true })
	p.retire()
}

func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.drain()
}

func (p *pool) remove(old func(*h1Upstream) bool) {
	var out []*h1Upstream
	p.mu.Lock()
	for key, list := range p.idle {
		kept := list[:0]
		for _, up := range list {
			if old(up) {
				out = append(out, up)
			} else {
				kept = append(kept, up)
			}
		}
		clear(list[len(kept):])
		if len(kept) == 0 {
			delete(p.idle, key)
		} else {
			p.idle[key] = kept
		}
	}
	p.count -= len(out)
	p.mu.Unlock()
	p.s.live.idle.Add(-int64(len(out)))
	for _, up := range out {
		up.close()
	}
}
