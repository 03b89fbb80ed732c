// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"bufio"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"bawn/internal/codes"
	"bawn/internal/wswire"
)

// A wsEnd is one end of a WebSocket: the agent's or the server's. One goroutine
// reads from it. Another writes messages to it, and both write control frames;
// they take turns by the lock.
type wsEnd struct {
	s    *Server
	conn net.Conn // the TLS, where there is TLS
	raw  net.Conn // under it, for deadlines
	in   wswire.Reader
	sent atomic.Int64 // octets

	src   *bufio.Reader // that in reads from; nil while a frame is waited for over TLS
	give  func(any)     // gives src back
	first firstOctet    // of a frame that was waited for

	mu     sync.Mutex
	out    wswire.Writer
	w      *bufio.Writer // while something is not flushed
	dirty  atomic.Bool   // w is there
	closed bool          // a close frame was written
	broken error         // what writing failed with

	due struct { // what whoever has the lock next is to write
		sync.Mutex
		pong     []byte // the payload of the last ping
		hasPong  bool
		ping     bool
		lastPing int64 // on live.clock
	}
	controls int64 // how long until the pings and pongs that were heard are forgotten
	heardAt  int64 // on live.clock
}

// A writeError is a failure to write to the other end.
type writeError struct{ err error }

func (e *writeError) Error() string { return e.err.Error() }
func (e *writeError) Unwrap() error { return e.err }

var errSaidGoodbye = errors.New("a close frame has been sent")

// Write puts octets on the connection and counts them.
func (e *wsEnd) Write(p []byte) (int, error) {
	n, err := e.conn.Write(p)
	e.sent.Add(int64(n))
	return n, err
}

// begin begins a message.
func (e *wsEnd) begin(op wswire.Opcode, compress bool) {
	e.mu.Lock()
	e.out.Begin(op, compress)
	e.unlock()
}

// piece writes a piece of a message. It goes out at the next flush, if not
// before.
func (e *wsEnd) piece(p []byte, fin bool) error {
	e.mu.Lock()
	defer e.unlock()
	return e.writing(func() error { return e.out.Write(p, fin) })
}

// flush sends what was written.
func (e *wsEnd) flush() error {
	if !e.dirty.Load() {
		return nil
	}
	e.mu.Lock()
	defer e.unlock()
	return e.flushed()
}

// close writes a close frame, unless there was one.
func (e *wsEnd) close(s wswire.Status, reason string) error {
	e.mu.Lock()
	defer e.unlock()
	err := e.writing(func() error { return e.out.Close(s, reason) })
	if err == nil {
		err = e.flushed()
	}
	e.closed = true
	return err
}

// writing runs write with a buffer to write to. The lock is held.
func (e *wsEnd) writing(write func() error) error {
	switch {
	case e.broken != nil:
		return &writeError{e.broken}
	case e.closed:
		return &writeError{errSaidGoodbye}
	}
	if e.w == nil {
		e.w = e.s.writers.Get().(*bufio.Writer)
		e.w.Reset(e)
		e.out.To(e.w)
		e.dirty.Store(true)
	}
	if err := write(); err != nil {
		e.broken = err
		return &writeError{err}
	}
	return nil
}

// flushed sends what was written and gives the buffer back. The lock is held.
func (e *wsEnd) flushed() error {
	if e.w == nil {
		return nil
	}
	if e.broken == nil {
		e.broken = e.w.Flush()
	}
	e.w.Reset(nil)
	e.s.writers.Put(e.w)
	e.w = nil
	e.dirty.Store(false)
	if e.broken != nil {
		return &writeError{e.broken}
	}
	return nil
}

// unlock gives the lock back, once nothing is due.
func (e *wsEnd) unlock() {
	for {
		if e.owes() {
			e.pay()
		}
		e.mu.Unlock()
		if !e.owes() || !e.mu.TryLock() {
			return
		}
	}
}

// owe has a control frame written by whoever has the lock or gets it next, so
// that a reader does not wait for a writer.
func (e *wsEnd) owe(set func()) {
	e.due.Lock()
	set()
	e.due.Unlock()
	if e.mu.TryLock() {
		e.unlock()
	}
}

func (e *wsEnd) owes() bool {
	e.due.Lock()
	defer e.due.Unlock()
	return e.due.hasPong || e.due.ping
}

// pay writes what is due. The lock is held.
func (e *wsEnd) pay() {
	var payload [wswire.MaxControl]byte
	e.due.Lock()
	pong, ping := e.due.hasPong, e.due.ping
	n := copy(payload[:], e.due.pong)
	e.due.hasPong, e.due.ping = false, false
	e.due.Unlock()
	waiting := e.w != nil // for its own flush
	err := e.writing(func() error {
		if pong {
			if err := e.out.Control(wswire.Pong, payload[:n]); err != nil {
				return err
			}
		}
		if ping {
			return e.out.Control(wswire.Ping, nil)
		}
		return nil
	})
	if err == nil && !waiting {
		e.flushed() //nolint:errcheck // kept in broken
	}
}

// answer answers a ping. Of several that wait the last is answered (RFC 6455
// section 5.5.3).
func (e *wsEnd) answer(payload []byte) {
	e.owe(func() {
		e.due.pong, e.due.hasPong = append(e.due.pong[:0], payload...), true
	})
}

// keepAlive sends a ping of Bawn's own, without payload, at most once in a
// while: the other end was heard, and who counts silence here should know.
func (e *wsEnd) keepAlive() {
	now := e.s.live.clock.Load()
	e.owe(func() {
		if e.due.lastPing == 0 || now-e.due.lastPing >= int64(e.s.lim.Keepalive) {
			e.due.ping, e.due.lastPing = true, max(now, 1)
		}
	})
}

// controlsPerSecond is how many pings and pongs an end may send, beside
// [Limits.Controls] at once.
const controlsPerSecond = 10

// hear takes a ping or pong into account. Too many of them are an attempt to
// keep Bawn busy.
func (e *wsEnd) hear() error {
	const one = int64(time.Second) / controlsPerSecond // how long one counts
	now := e.s.live.clock.Load()
	e.controls = max(0, e.controls-(now-e.heardAt)) + one
	e.heardAt = now
	if e.controls > int64(e.s.lim.Controls)*one {
		return &wswire.Error{Code: codes.RateLimited, Status: wswire.StatusPolicy, Detail: "too many pings"}
	}
	return nil
}

// free gives back what is left at the end.
func (e *wsEnd) free() {
	e.giveReader()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.w != nil {
		e.w.Reset(nil)
		e.s.writers.Put(e.w)
		e.w = nil
	}
}
