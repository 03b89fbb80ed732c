// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package h2conn

import (
	"errors"
	"io"
	"sync"

	"golang.org/x/net/http2"

	"bawn/internal/codes"
	"bawn/internal/httpwire"
)

// A Body is what the peer sends on one stream. One goroutine reads it.
type Body struct {
	s      *stream
	reads  sync.Cond // something has come
	in     chunks
	window int // what the peer may still send
	credit int // what was read, and not given back yet

	declared int64 // the Content-Length; -1: none
	got      int64
	ended    bool // the peer has said so
	trailers httpwire.Fields
	err      error // what Read returns from now on, whatever waits
	gone     bool  // nothing is kept any more

	// Of a server's stream:
	answered bool          // the final head has been written
	refused  bool          // the stream has to end with an error after the answer
	sentence http2.ErrCode // which
}

func (b *Body) init(s *stream) {
	b.s, b.declared = s, -1
	b.reads.L = &s.c.mu
	b.window = s.c.lim.StreamWindow
	if !s.c.acked {
		b.window = max(b.window, initWindow) // the peer may not know yet that it is less
	}
}

// declare sets how long the body is to be.
func (b *Body) declare(f httpwire.Framing) {
	switch f.Kind {
	case httpwire.Length:
		b.declared = f.Length
	case httpwire.None:
		b.declared = 0
	}
}

// Read reads octets of the body, and gives the peer room for as many. It
// returns io.EOF at the good end, and an [*httpwire.Error] at any other: with
// framing_invalid when the body is not as long as was said, body_truncated when
// the stream or the connection ended before it.
func (b *Body) Read(p []byte) (int, error) {
	c := b.s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case b.err != nil:
			return 0, b.err
		case b.in.size > 0:
			n := b.in.read(p)
			b.consumed(n)
			return n, nil
		case b.ended:
			return 0, io.EOF
		case len(p) == 0:
			return 0, nil
		}
		b.reads.Wait()
	}
}

// Ready reports whether Read returns without waiting for the peer.
func (b *Body) Ready() bool {
	b.s.c.mu.Lock()
	defer b.s.c.mu.Unlock()
	return b.err != nil || b.in.size > 0 || b.ended
}

// Arrived returns how many octets wait to be read, and whether they are all
// that will come.
func (b *Body) Arrived() (n int, whole bool) {
	b.s.c.mu.Lock()
	defer b.s.c.mu.Unlock()
	return b.in.size, b.ended && b.err == nil
}

// Done reports whether the whole body was read and its end was good.
func (b *Body) Done() bool {
	b.s.c.mu.Lock()
	defer b.s.c.mu.Unlock()
	return b.ended && b.err == nil && b.in.size == 0
}

// Ended reports whether the peer has sent the end, whoever reads up to it.
func (b *Body) Ended() bool {
	b.s.c.mu.Lock()
	defer b.s.c.mu.Unlock()
	return b.ended || b.s.aborted
}

// Trailers returns the trailer fields, after Read returned io.EOF.
func (b *Body) Trailers() httpwire.Fields {
	b.s.c.mu.Lock()
	defer b.s.c.mu.Unlock()
	return b.trailers
}

var errStopped = errors.New("nobody reads the body any more")

// Stop wakes whoever reads. None of the body will be read any more.
func (b *Body) Stop() {
	b.s.c.mu.Lock()
	defer b.s.c.mu.Unlock()
	b.discard(truncated(errStopped))
}

// consumed gives the peer room for n octets that were read.
func (b *Body) consumed(n int) {
	c := b.s.c
	if b.credit += n; b.credit >= c.lim.StreamWindow/4 && !b.ended && c.err == nil {
		c.windowUpdate(b.s.id, b.credit)
		b.window += b.credit
		b.credit = 0
		c.kick()
	}
	c.giveBack(n)
}

// giveBack gives the peer room on the connection for n octets that were read or
// will not be.
func (c *conn) giveBack(n int) {
	c.credit += n
	if c.credit >= c.lim.ConnWindow/4 && c.err == nil {
		c.windowUpdate(0, c.credit)
		c.recvWindow += c.credit
		c.credit = 0
		c.kick()
	}
}

// discard ends the reading with err, if it has not ended yet. What waits and
// what still comes is given back.
func (b *Body) discard(err error) {
	if b.err == nil {
		b.err = err
	}
	b.gone = true
	b.s.c.giveBack(b.in.drop())
	b.reads.Broadcast()
}

// refuse makes a request one that is answered and then ends with an error. One
// that is only too long breaks no rule of HTTP/2.
func (b *Body) refuse(why *httpwire.Error) {
	b.refused, b.sentence = true, http2.ErrCodeProtocol
	if why.Code == codes.HeadTooLarge {
		b.sentence = http2.ErrCodeNo
	}
	b.discard(why)
}

// end takes in that the peer has ended the message.
func (b *Body) end(trailers httpwire.Fields) error {
	if b.err == nil && b.declared >= 0 && b.got != b.declared {
		return b.s.malformed(framing("a body that is shorter than its Content-Length"), true)
	}
	b.ended, b.trailers = true, trailers
	b.reads.Broadcast()
	b.s.settle()
	return nil
}
