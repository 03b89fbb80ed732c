// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package h2conn

import (
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"bawn/internal/codes"
	"bawn/internal/h2head"
	"bawn/internal/httpwire"
)

// A headerBlock is the header block that the reader is in.
type headerBlock struct {
	id       uint32
	end      bool // of the stream
	selfish  bool // the stream is to depend on itself
	open     bool // frames follow
	frames   int
	size     int  // of the list, as HTTP/2 counts it
	tooLarge bool // the list goes on after what is kept
}

func (c *conn) headersIn(f *http2.HeadersFrame) error {
	c.block = headerBlock{
		id: f.StreamID, end: f.StreamEnded(), open: !f.HeadersEnded(),
		selfish: f.HasPriority() && f.Priority.StreamDep == f.StreamID,
	}
	if c.block.open {
		c.in.block = append(c.in.block[:0], f.HeaderBlockFragment()...)
		return nil
	}
	return c.blockIn(f.HeaderBlockFragment())
}

// continuationIn adds to a header block. The Framer has seen to it that there
// is one.
func (c *conn) continuationIn(f *http2.ContinuationFrame) error {
	c.block.frames++
	c.in.block = append(c.in.block, f.HeaderBlockFragment()...)
	switch {
	case c.block.frames > maxContinuations:
		return flood("frames for one header block")
	case len(c.in.block) > blockSlack*c.lim.Wire.Head:
		return &ConnError{
			Code: codes.HeadTooLarge, HTTP2: http2.ErrCodeEnhanceYourCalm, Detail: "a header block far over the limit",
		}
	case !f.HeadersEnded():
		return nil
	}
	c.block.open = false
	return c.blockIn(c.in.block)
}

// blockIn decodes a whole header block and acts on it.
func (c *conn) blockIn(block []byte) error {
	if c.hdec == nil {
		c.hdec = hpack.NewDecoder(defaultTable, c.keep)
		// No string of a block within its bound can be so long: a list over the
		// limit does not put the two ends out of step.
		c.hdec.SetMaxStringLength(2 * max(blockSlack*c.lim.Wire.Head, maxFrame))
	}
	c.in.list = c.in.list[:0]
	c.hdec.SetEmitEnabled(true)
	if _, err := c.hdec.Write(block); err != nil {
		return violation(http2.ErrCodeCompression, "a header block that cannot be decoded")
	}
	if err := c.hdec.Close(); err != nil {
		return violation(http2.ErrCodeCompression, "a header block that ends in a field")
	}
	return c.listIn(c.in.list)
}

// keep takes one field of the block at hand, within the limits.
func (c *conn) keep(f hpack.HeaderField) {
	c.block.size += int(f.Size())
	if c.block.size > c.lim.Wire.Head || len(c.in.list) == c.lim.Wire.Fields {
		c.block.tooLarge = true
		c.hdec.SetEmitEnabled(false) // it stays in step without
		return
	}
	c.in.list = append(c.in.list, f)
}

// listIn acts on a header list: the head of a request or of a response, or
// trailers.
func (c *conn) listIn(list []hpack.HeaderField) error {
	s := c.stream(c.block.id)
	switch {
	case s == nil && c.server != nil:
		return c.server.open(list)
	case s == nil:
		return c.strayList()
	case s.ofUs != nil && !s.ofUs.headed:
		return s.ofUs.headIn(list)
	}
	return s.trailersIn(list)
}

// strayList judges a header list for a stream that is not open and cannot be.
func (c *conn) strayList() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := c.block.id
	switch {
	case c.idle(id):
		return violation(http2.ErrCodeProtocol, "a header list for a stream that is not open")
	case c.excused(id):
		return c.idleFrame("header lists for streams that have ended")
	}
	return violation(http2.ErrCodeStreamClosed, "a header list for a stream that has ended")
}

// trailersIn takes a header list that is not the first of its message.
func (s *stream) trailersIn(list []hpack.HeaderField) error {
	c := s.c
	var fields httpwire.Fields
	err := tooLarge(c.block.tooLarge)
	if err == nil {
		fields, err = h2head.Trailers(list, c.lim.Wire)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case s.aborted:
		return nil
	case c.block.selfish:
		return c.blame(s.id, http2.ErrCodeProtocol, "a stream that depends on itself")
	case s.body.ended:
		return c.blame(s.id, http2.ErrCodeStreamClosed, "a header list after the end of the stream")
	case !c.block.end:
		return s.malformed(httpwire.Refuse(codes.ProtocolError, "trailers that do not end the stream"), false)
	case err != nil:
		return s.malformed(wireError(err), true)
	}
	return s.body.end(fields)
}

func tooLarge(is bool) error {
	if is {
		return httpwire.Refuse(codes.HeadTooLarge, "a header list over the limit")
	}
	return nil
}
