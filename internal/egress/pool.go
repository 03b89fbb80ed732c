// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"bufio"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"bawn/internal/addr"
	"bawn/internal/names"
)

// An upstream is one connection to a server.
type upstream struct {
	key      poolKey
	conn     net.Conn // the TLS, where there is TLS
	sock     socket   // under it
	r        *bufio.Reader
	addr     netip.Addr
	name     string // address and port, for the record
	revision uint64 // by which the address was vetted last
	since    time.Duration
}

// A poolKey is what two requests of one lease must share to use one connection.
type poolKey struct {
	rule  string
	host  names.Host
	port  uint16
	plain bool
}

// A pool holds the upstream connections of one lease that wait for another
// request.
type pool struct {
	s      *Server
	mu     sync.Mutex
	idle   map[poolKey][]*upstream // those of a key that came last are last
	count  int                     // of all
	closed bool
}

func (p *pool) init(s *Server) { p.s, p.idle = s, map[poolKey][]*upstream{} }

// get takes a connection out of the pool; nil if none will do. One that the
// server has closed, or said something on, will not; nor one whose address the
// policy of another revision does not let in any more.
func (p *pool) get(key poolKey, revision uint64, vet addr.Vet) *upstream {
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

// quiet reports whether the connection is open and the server has said nothing
// since its last response. What came in one segment with that response is in
// neither the buffer nor the kernel: TLS has it, and would give it out as the
// answer to the next request.
func (up *upstream) quiet() bool {
	if up.r.Buffered() > 0 || !up.sock.usable() {
		return false
	}
	if up.conn == up.sock.conn {
		return true
	}
	up.conn.SetReadDeadline(time.Unix(1, 0))   //nolint:errcheck // shows in the read
	defer up.conn.SetReadDeadline(time.Time{}) //nolint:errcheck // shows in the next read
	_, err := up.r.Peek(1)
	return errors.Is(err, os.ErrDeadlineExceeded)
}

func (p *pool) take(key poolKey) *upstream {
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
func (p *pool) put(up *upstream) {
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
	var oldest *upstream
	if p.count > p.s.lim.IdleUpstreams {
		oldest = p.takeOldest()
	}
	p.mu.Unlock()
	if oldest != nil {
		oldest.close()
	}
}

// takeOldest takes out what has waited longest. mu is held.
func (p *pool) takeOldest() *upstream {
	var oldest *upstream
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
	p.remove(func(up *upstream) bool { return up.since < before })
}

// drain closes everything that waits.
func (p *pool) drain() { p.remove(func(*upstream) bool { return true }) }

func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.drain()
}

func (p *pool) remove(old func(*upstream) bool) {
	var out []*upstream
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

// close closes the connection without a farewell, which could block.
func (up *upstream) close() { up.sock.conn.Close() }

// abort closes it so that the server sees a failure: what it has got is not the
// whole.
func (up *upstream) abort() { reset(up.sock.conn) }
