// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package h2conn

import (
	"bufio"
	"errors"
	"io"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// An inBuffer is what the reader needs while octets come.
type inBuffer struct {
	br    *bufio.Reader
	fr    *http2.Framer
	list  []hpack.HeaderField
	block []byte // of a header block in more than one frame
}

const (
	readSize = 4 << 10  // larger pieces pass the buffer by
	smallest = 2 << 10  // DATA up to this is put together
	keepList = 64       // fields
	keepIn   = 32 << 10 // octets
)

var inBuffers = sync.Pool{New: func() any {
	in := &inBuffer{br: bufio.NewReaderSize(nil, readSize)}
	in.fr = http2.NewFramer(nil, in.br)
	in.fr.SetMaxReadFrameSize(maxFrame)
	return in
}}

// Read reads from the connection, first what ended the wait.
func (c *conn) Read(p []byte) (int, error) {
	if len(c.waited) > 0 {
		n := copy(p, c.waited)
		c.waited = c.waited[n:]
		return n, nil
	}
	return c.nc.Read(p)
}

// wait waits for octets with no more memory than those of a frame's header.
func (c *conn) wait() error {
	n, err := c.nc.Read(c.first[:])
	c.waited = c.first[:n]
	if n > 0 {
		return nil
	}
	return err
}

// read reads frames until the connection ends.
func (c *conn) read() error {
	err := c.burst((*conn).preface)
	for err == nil {
		err = c.burst(nil)
	}
	return err
}

// burst waits for octets and reads the frames that are there, after what first
// reads.
func (c *conn) burst(first func(*conn, *bufio.Reader) error) error {
	if err := c.wait(); err != nil {
		return err
	}
	in := inBuffers.Get().(*inBuffer)
	in.br.Reset(c)
	c.in = in
	var err error
	if first != nil {
		err = first(c, in.br)
	}
	for err == nil {
		err = c.frameIn()
		if in.br.Buffered() == 0 && !c.block.open {
			break
		}
	}
	c.in = nil
	if err == nil { // else the Framer may stand in the middle of something
		in.free()
	}
	return err
}

func (in *inBuffer) free() {
	in.br.Reset(nil)
	clear(in.list)
	if cap(in.list) > keepList {
		in.list = nil
	}
	if cap(in.block) > keepIn {
		in.block = nil
	}
	inBuffers.Put(in)
}

// preface reads what a client says first.
func (c *conn) preface(r *bufio.Reader) error {
	if c.server == nil {
		return nil
	}
	var got [len(http2.ClientPreface)]byte
	if _, err := io.ReadFull(r, got[:]); err != nil {
		return err
	}
	if string(got[:]) != http2.ClientPreface {
		return violation(http2.ErrCodeProtocol, "the connection does not begin with the preface of HTTP/2")
	}
	return nil
}

// frameIn reads one frame and acts on it.
func (c *conn) frameIn() error {
	h, err := c.in.fr.ReadFrameHeader()
	if err != nil {
		return readError(err)
	}
	if !c.hello && (h.Type != http2.FrameSettings || h.Flags.Has(http2.FlagSettingsAck)) {
		return violation(http2.ErrCodeProtocol, "the first frame is not SETTINGS")
	}
	c.hello = true
	switch {
	case h.Type == http2.FrameData:
		return c.dataIn(h)
	case h.Type > http2.FrameContinuation:
		return c.unknownIn(h)
	case int(h.Length) < leastLength(h):
		return violation(http2.ErrCodeFrameSize, "a frame that is too short for its type")
	}
	f, err := c.in.fr.ReadFrameForHeader(h)
	if err != nil {
		return c.frameError(h, err)
	}
	return c.act(f)
}

// readError tells a frame that must not be from a connection that ended.
func readError(err error) error {
	if errors.Is(err, http2.ErrFrameTooLarge) {
		return violation(http2.ErrCodeFrameSize, "a frame that is longer than was agreed")
	}
	if e, ok := errors.AsType[http2.ConnectionError](err); ok {
		return violation(http2.ErrCode(e), "a frame that is malformed or out of order")
	}
	return err
}

// frameError says what a frame that the Framer refuses does to the connection.
// Only an update of a stream's window can be overlooked: all else could leave
// the two ends with different states.
func (c *conn) frameError(h http2.FrameHeader, err error) error {
	e, ok := errors.AsType[http2.StreamError](err)
	if !ok {
		return readError(err)
	}
	if h.Type != http2.FrameWindowUpdate {
		return violation(e.Code, "a frame that is malformed")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.blame(h.StreamID, e.Code, "an update of a window by nothing")
}

// leastLength is how long the payload of a frame has to be so that the Framer
// finds in it what the flags promise. It reports that like the end of the
// connection.
func leastLength(h http2.FrameHeader) int {
	n := 0
	switch h.Type {
	case http2.FrameHeaders:
		if h.Flags.Has(http2.FlagHeadersPriority) {
			n += 5
		}
		if h.Flags.Has(http2.FlagHeadersPadded) {
			n++
		}
	case http2.FramePushPromise:
		n = 4
		if h.Flags.Has(http2.FlagPushPromisePadded) {
			n++
		}
	}
	return n
}

// act acts on a frame that is well-formed by itself.
func (c *conn) act(f http2.Frame) error {
	switch f := f.(type) {
	case *http2.HeadersFrame:
		return c.headersIn(f)
	case *http2.ContinuationFrame:
		return c.continuationIn(f)
	case *http2.PushPromiseFrame:
		return violation(http2.ErrCodeProtocol, "a push, which is not allowed")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch f := f.(type) {
	case *http2.SettingsFrame:
		return c.settingsIn(f)
	case *http2.WindowUpdateFrame:
		return c.windowUpdateIn(f.StreamID, int(f.Increment))
	case *http2.RSTStreamFrame:
		return c.rstIn(f.StreamID, f.ErrCode)
	case *http2.PingFrame:
		return c.pingIn(f)
	case *http2.PriorityFrame:
		return c.priorityIn(f)
	case *http2.GoAwayFrame:
		return c.goAwayIn(f)
	}
	return nil
}

// unknownIn passes over a frame of a type that HTTP/2 does not have, or that
// extensions have which were not offered.
func (c *conn) unknownIn(h http2.FrameHeader) error {
	if err := c.chargeUnknown(); err != nil {
		return err
	}
	_, err := c.in.br.Discard(int(h.Length))
	return err
}

func (c *conn) chargeUnknown() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.idleFrame("frames of unknown types")
}

// idleFrame charges a frame that has no use.
func (c *conn) idleFrame(what string) error {
	if !c.noise.take(1) {
		return flood(what)
	}
	return nil
}
