// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package h2conn

import (
	"io"

	"golang.org/x/net/http2"
)

// dataIn reads a DATA frame. Its octets go straight into what the body's reader
// finds.
func (c *conn) dataIn(h http2.FrameHeader) error {
	if h.StreamID == 0 {
		return violation(http2.ErrCodeProtocol, "DATA for no stream")
	}
	n, pad := int(h.Length), 0
	if h.Flags.Has(http2.FlagDataPadded) {
		if n == 0 {
			return violation(http2.ErrCodeFrameSize, "a frame that is too short for its padding")
		}
		b, err := c.in.br.ReadByte()
		if err != nil {
			return err
		}
		if pad = int(b); pad >= n {
			return violation(http2.ErrCodeProtocol, "more padding than frame")
		}
		n -= 1 + pad
	}
	end := h.Flags.Has(http2.FlagDataEndStream)
	s, err := c.admit(h.StreamID, int(h.Length), n, end)
	if err != nil {
		return err
	}
	if s == nil {
		_, err = c.in.br.Discard(n)
	} else {
		err = c.deliver(s, n, end)
	}
	if err == nil && pad > 0 {
		_, err = c.in.br.Discard(pad)
	}
	return err
}

// admit charges a frame to the windows, length octets of which n are DATA, and
// says for which stream they are. Those for no stream are dropped.
func (c *conn) admit(id uint32, length, n int, end bool) (*stream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.recvWindow -= length; c.recvWindow < 0 {
		return nil, violation(http2.ErrCodeFlowControl, "more DATA than the connection's window")
	}
	s := c.find(id)
	if s == nil {
		c.giveBack(length)
		return nil, c.strayData(id)
	}
	b := &s.body
	b.window -= length
	switch {
	case b.ended:
		c.giveBack(length)
		return nil, c.blame(id, http2.ErrCodeStreamClosed, "DATA after the end of the stream")
	case b.window < 0:
		c.giveBack(length)
		return nil, c.blame(id, http2.ErrCodeFlowControl, "more DATA than the stream's window")
	case s.ofUs != nil && !s.ofUs.headed:
		c.giveBack(length)
		return nil, c.blame(id, http2.ErrCodeProtocol, "DATA before the head of the response")
	}
	if n > 0 {
		c.useful()
	} else if !end {
		if err := c.idleFrame("DATA frames without data"); err != nil {
			return nil, err
		}
	}
	b.consumed(length - n)
	if b.got += int64(n); b.declared >= 0 && b.got > b.declared && b.err == nil {
		c.giveBack(n)
		return nil, s.malformed(framing("a body that is longer than its Content-Length"), end)
	}
	return s, nil
}

// strayData judges DATA for a stream that is not open.
func (c *conn) strayData(id uint32) error {
	if c.idle(id) {
		return violation(http2.ErrCodeProtocol, "DATA for a stream that is not open")
	}
	if !c.excused(id) {
		return violation(http2.ErrCodeStreamClosed, "DATA for a stream that has ended")
	}
	return c.idleFrame("DATA for streams that have ended")
}

// deliver reads n octets of DATA for a stream.
func (c *conn) deliver(s *stream, n int, end bool) error {
	if n <= smallest {
		p, err := c.in.br.Peek(n)
		if err != nil {
			return err
		}
		err = s.body.take(p, nil, end)
		c.in.br.Discard(n) //nolint:errcheck // n octets are buffered
		return err
	}
	k := newChunk(n)
	if _, err := io.ReadFull(c.in.br, k.b[:n]); err != nil {
		k.free()
		return err
	}
	k.w = n
	return s.body.take(nil, k, end)
}

// take adds octets of the body, copied from p or in k.
func (b *Body) take(p []byte, k *chunk, end bool) error {
	c := b.s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case b.gone && k != nil:
		c.giveBack(k.w)
		k.free()
	case b.gone:
		c.giveBack(len(p))
	case k != nil:
		b.in.push(k)
	case len(p) > 0:
		b.in.append(p)
	}
	if end && !b.s.aborted {
		return b.end(nil)
	}
	b.reads.Signal()
	return nil
}
