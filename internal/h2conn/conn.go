// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package h2conn

import (
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"bawn/internal/codes"
)

// A conn is what both ends of a connection have in common.
type conn struct {
	nc     net.Conn
	lim    Limits
	server *Server // nil: a client's

	// Of the reader.
	first  [9]byte // octets that ended a wait; see Read
	waited []byte  // those of them that are still to be read
	hdec   *hpack.Decoder
	in     *inBuffer
	hello  bool // the peer's first SETTINGS have come
	block  headerBlock

	mu sync.Mutex // guards what follows

	streams []*stream // that are open, by their number
	lastID  uint32    // the highest that was opened
	resets  []uint32  // the latest that were reset from here before the peer's end
	nextOld int       // where the next of these goes
	noise   budget
	churn   budget

	recvWindow int // octets of DATA that the peer may still send
	credit     int // octets that were read but not given back yet
	sendWindow int
	starved    []*stream // that wait for sendWindow, the longest first
	acked      bool      // our settings

	peerWindow  int // of new streams
	peerStreams int
	peerTable   uint32

	henc    *hpack.Encoder
	out     *outBuffer // what is to be written
	tail    tail
	writer  func()    // writeOut
	writing bool      // it runs, and will come back for more
	room    sync.Cond // out was taken, or there is no more writing

	draining bool // after GOAWAY: no more streams
	goneID   uint32
	err      error // why it ended
}

func newConn(nc net.Conn, lim Limits, server *Server) *conn {
	c := &conn{
		nc: nc, lim: lim.orDefault(server != nil), server: server,
		noise: newBudget(noiseSize, noisePerSecond), churn: newBudget(resetSize, resetPerSecond),
		recvWindow: initWindow, sendWindow: initWindow, peerWindow: initWindow, peerTable: defaultTable,
	}
	c.peerStreams = c.lim.Streams
	c.room.L = &c.mu
	c.writer = c.writeOut
	return c
}

// begin queues what each side says first, except for the client's preface.
func (c *conn) begin() {
	settings := []http2.Setting{
		{ID: http2.SettingInitialWindowSize, Val: uint32(c.lim.StreamWindow)},
		{ID: http2.SettingMaxHeaderListSize, Val: uint32(c.lim.Wire.Head)},
	}
	if c.server != nil {
		settings = append(settings, http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: uint32(c.lim.Streams)})
	} else {
		settings = append(settings, http2.Setting{ID: http2.SettingEnablePush, Val: 0})
	}
	c.settings(settings)
	more := c.lim.Room.take(c.lim.ConnWindow - initWindow)
	c.lim.ConnWindow = initWindow + more
	if more > 0 {
		c.windowUpdate(0, more)
		c.recvWindow += more
	}
}

// find returns the open stream of that number, nil if there is none.
func (c *conn) find(id uint32) *stream {
	if n := len(c.streams); n > 0 && c.streams[n-1].id == id {
		return c.streams[n-1]
	}
	i, ok := slices.BinarySearchFunc(c.streams, id, func(s *stream, id uint32) int { return int(s.id) - int(id) })
	if !ok {
		return nil
	}
	return c.streams[i]
}

// stream is find for those who do not hold the lock.
func (c *conn) stream(id uint32) *stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.find(id)
}

// idle reports whether a stream of that number was never opened. A server's
// numbers are even and never open, since there is no push.
func (c *conn) idle(id uint32) bool { return id%2 == 0 || id > c.lastID }

// remove takes a stream out whose two ends have ended, or that was reset.
func (c *conn) remove(s *stream) {
	i, ok := slices.BinarySearchFunc(c.streams, s.id, func(s *stream, id uint32) int { return int(s.id) - int(id) })
	if ok {
		c.streams = slices.Delete(c.streams, i, i+1)
	}
	s.leave()
	c.maybeOver()
}

// remember keeps the number of a stream that was reset before the peer ended
// it: what the peer had sent by then is no fault.
func (c *conn) remember(id uint32) {
	if size := 4 * c.lim.Streams; len(c.resets) < size {
		c.resets = append(c.resets, id)
		return
	}
	c.resets[c.nextOld] = id
	c.nextOld = (c.nextOld + 1) % len(c.resets)
}

// excused reports whether the peer may still send on a stream that is no more.
func (c *conn) excused(id uint32) bool {
	return c.draining && c.server != nil && id > c.goneID || slices.Contains(c.resets, id)
}

// useful refills the budget of frames that are not.
func (c *conn) useful() { c.noise.give(noisePerUse) }

// fail ends the connection for a reason, of which the peer hears if it is one
// of the protocol. It does not wait.
func (c *conn) fail(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	code := http2.ErrCodeNo
	detail := ""
	if e, ok := errors.AsType[*ConnError](err); ok {
		code, detail = e.HTTP2, e.Detail
	}
	c.goAway(code, detail)
	for _, s := range slices.Clone(c.streams) {
		s.abort(err)
	}
	c.streams = nil
	c.kick()
}

// drain makes the connection take no more streams.
func (c *conn) drain() {
	if c.err != nil || c.draining {
		return
	}
	c.draining, c.goneID = true, c.lastID
	c.goAway(http2.ErrCodeNo, "")
	c.kick()
	c.maybeOver()
}

// patience is how long the end of a connection may take the peer: to read what
// was last said, and to close.
const patience = time.Second

// maybeOver ends a connection on which nothing will happen any more.
func (c *conn) maybeOver() {
	if !c.draining || c.err != nil || len(c.streams) > 0 || c.server != nil && c.server.running > 0 {
		return
	}
	c.err = errClosed
	if c.kick(); !c.writing {
		c.closeWrite()
	}
	left := patience
	if c.server == nil {
		left = 0 // the server has said its last
	}
	c.nc.SetReadDeadline(time.Now().Add(left)) //nolint:errcheck // wakes the reader, which ends it
}

// close ends the connection without waiting.
func (c *conn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fail(errClosed)
	c.nc.SetDeadline(time.Now().Add(patience)) //nolint:errcheck // it is closed in any case
	go c.hangUp()
}

// hangUp closes the connection when what is queued has been written, or cannot
// be.
func (c *conn) hangUp() {
	c.mu.Lock()
	for c.writing {
		c.room.Wait()
	}
	c.mu.Unlock()
	c.nc.Close() //nolint:errcheck // nothing depends on it
}

// run reads until the connection ends, and closes it.
func (c *conn) run() error {
	defer c.lim.Room.give(c.lim.ConnWindow - initWindow)
	err := c.readAll()
	c.mu.Lock()
	if c.err == nil && len(c.streams) == 0 && errors.Is(err, io.EOF) {
		err = errClosed
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	c.fail(err) // unless it has failed before
	err = c.err
	c.mu.Unlock()
	c.nc.SetDeadline(time.Now().Add(patience)) //nolint:errcheck // it is closed in any case
	if !errors.Is(err, errClosed) {
		c.linger()
	}
	c.hangUp()
	if errors.Is(err, errClosed) {
		return nil
	}
	return err
}

// readAll reads until the connection ends. A panic over what the peer has sent
// ends this connection and no other.
func (c *conn) readAll() (err error) {
	defer func() {
		if p := recover(); p != nil {
			if c.lim.Panicked != nil {
				c.lim.Panicked(p)
			}
			err = &ConnError{Code: codes.InternalError, HTTP2: http2.ErrCodeInternal, Detail: "panic"}
		}
	}()
	return c.read()
}

// maxLinger bounds what is read of a connection that has ended.
const maxLinger = 1 << 20

// linger reads on for a while, so that the kernel does not take back what the
// peer has not read yet.
func (c *conn) linger() { io.Copy(io.Discard, io.LimitReader(c.nc, maxLinger)) } //nolint:errcheck // as far as it goes
