// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package h2conn

import (
	"errors"
	"slices"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"bawn/internal/codes"
	"bawn/internal/h2head"
	"bawn/internal/httpwire"
)

// A stream is what both ends of a stream have in common. conn.mu guards it.
type stream struct {
	c      *conn
	id     uint32
	ofUs   *ClientStream // nil: the peer opened it
	body   Body
	writes sync.Cond // a window has opened, or nothing can be written any more

	sendWindow int
	starving   bool  // in conn.starved
	ended      bool  // from here
	sendErr    error // why nothing can be written

	aborted bool // before its end, by whomever
	done    chan struct{}
	onAbort func() // by the peer
}

func (s *stream) init(c *conn, id uint32) {
	s.c, s.id = c, id
	s.writes.L = &c.mu
	s.sendWindow = c.peerWindow
	s.body.init(s)
}

// ID returns the number of the stream.
func (s *stream) ID() uint32 { return s.id }

// Body returns what the peer sends on the stream.
func (s *stream) Body() *Body { return &s.body }

// Done returns a channel that is closed when the stream is over: it was reset,
// from either side, the connection has ended, or both ends have ended it.
func (s *stream) Done() <-chan struct{} {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.done == nil {
		s.done = make(chan struct{})
		if s.over() {
			close(s.done)
		}
	}
	return s.done
}

// Err returns why the stream ended before its end, nil if it did not.
func (s *stream) Err() error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if !s.aborted {
		return nil
	}
	return s.sendErr
}

// Reset ends the stream at once: the peer hears the code, and whoever reads or
// writes here wakes. It does not wait, and does nothing on a stream that is
// over. Of a request that was malformed the peer hears that instead of
// NO_ERROR.
func (s *stream) Reset(code http2.ErrCode) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if code == http2.ErrCodeNo && s.body.refused {
		code = s.body.sentence
	}
	s.reset(code, ErrReset)
}

// reset resets the stream, for a reason that readers and writers get.
func (s *stream) reset(code http2.ErrCode, why error) {
	c := s.c
	s.body.discard(truncated(why))
	if c.err != nil || s.over() {
		return
	}
	c.rst(s.id, code)
	if !s.body.ended {
		c.remember(s.id)
	}
	s.abort(why)
	c.remove(s)
	c.kick()
}

// over reports whether neither end will send any more.
func (s *stream) over() bool { return s.aborted || s.ended && s.body.ended }

// abort wakes whoever waits for a stream that ends before its end. A body that
// has come whole stays.
func (s *stream) abort(why error) {
	if s.aborted {
		return
	}
	s.aborted = true
	if s.sendErr == nil {
		s.sendErr = why
	}
	if !s.body.ended {
		s.body.discard(truncated(why))
	}
	if s.ofUs != nil {
		s.ofUs.fail(why)
	}
	if s.done != nil {
		close(s.done)
	}
	if s.onAbort != nil && !s.ended && !errors.Is(why, ErrReset) {
		go s.onAbort()
	}
	s.body.reads.Broadcast()
	s.writes.Broadcast()
	s.c.room.Broadcast()
}

// settle takes the stream out when both ends have ended well.
func (s *stream) settle() {
	if s.ended && s.body.ended && !s.aborted {
		if !s.body.refused {
			s.c.churn.give(1)
		}
		s.c.remove(s)
		if s.done != nil {
			close(s.done)
		}
	}
}

// Write sends octets of the body. It waits for the windows of the peer. Small
// pieces wait for a Flush.
func (s *stream) Write(p []byte) (n int, err error) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := s.writable(); err != nil {
		return 0, err
	}
	for n < len(p) {
		if err := s.makeRoom(); err != nil {
			return n, err
		}
		k, err := s.claim(len(p) - n)
		if err != nil {
			return n, err
		}
		c.data(s, p[n:n+k])
		n += k
	}
	if c.out != nil && len(c.out.b) >= flushAt {
		c.kick()
	}
	return n, nil
}

// writable returns why nothing can be written.
func (s *stream) writable() error {
	switch {
	case s.sendErr != nil:
		return s.sendErr
	case s.c.err != nil:
		return s.c.err
	case s.ended:
		return errEnded
	}
	return nil
}

// makeRoom waits until a writer may add to what is queued.
func (s *stream) makeRoom() error {
	c := s.c
	for c.out != nil && len(c.out.b) >= maxOut {
		if err := s.writable(); err != nil {
			return err
		}
		c.kick()
		c.room.Wait()
	}
	return s.writable()
}

// claim waits until the peer's windows are open, and takes of both what one
// frame of up to n octets needs. Streams that wait for the connection's window
// get a frame each, in turn.
func (s *stream) claim(n int) (int, error) {
	c := s.c
	for {
		if err := s.writable(); err != nil {
			s.leave()
			return 0, err
		}
		switch {
		case s.sendWindow <= 0:
			s.leave()
		case c.sendWindow > 0 && (len(c.starved) == 0 || c.starved[0] == s):
			n = min(n, maxData, s.sendWindow, c.sendWindow)
			s.sendWindow -= n
			c.sendWindow -= n
			s.leave()
			return n, nil
		case !s.starving:
			s.starving = true
			c.starved = append(c.starved, s)
		}
		c.kick() // the peer opens no window for what it has not got
		s.writes.Wait()
	}
}

// leave gives up the place among those who wait for the connection's window.
func (s *stream) leave() {
	c := s.c
	if s.starving {
		s.starving = false
		i := slices.Index(c.starved, s)
		c.starved = slices.Delete(c.starved, i, i+1)
	}
	c.feed()
}

// feed wakes the stream that has waited longest for the connection's window.
func (c *conn) feed() {
	if c.sendWindow > 0 && len(c.starved) > 0 {
		c.starved[0].writes.Signal()
	}
}

// Flush has everything sent that was written so far. It does not wait until it
// is.
func (s *stream) Flush() error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.c.kick()
	if s.sendErr != nil {
		return s.sendErr
	}
	return s.c.err
}

// End sends the end of the body, with trailers if there are any, and all that
// was written.
func (s *stream) End(trailers httpwire.Fields) error {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := s.writable(); err != nil {
		return err
	}
	if len(trailers) > 0 {
		withList(func(list []hpack.HeaderField) []hpack.HeaderField {
			list = h2head.AppendTrailers(list, trailers)
			c.headers(s, list, true)
			return list
		})
	} else {
		c.endStream(s)
	}
	s.end()
	return nil
}

// end is what follows when END_STREAM is queued.
func (s *stream) end() {
	s.c.tail = tail{}
	s.ended = true
	s.settle()
	s.c.kick()
}

// malformed ends a message that breaks its framing, or whose trailers are none.
// ended says that the peer sends no more of it.
// A request whose answer has not begun is answered first: the handler finds the
// error where it reads.
func (s *stream) malformed(why *httpwire.Error, ended bool) error {
	c := s.c
	if !c.churn.take(1) {
		return flood("malformed messages")
	}
	if s.ofUs == nil && !s.body.answered {
		s.body.ended = ended
		s.body.refuse(why)
		return nil
	}
	s.reset(http2.ErrCodeProtocol, why)
	return nil
}

func framing(detail string) *httpwire.Error { return httpwire.Refuse(codes.FramingInvalid, detail) }
