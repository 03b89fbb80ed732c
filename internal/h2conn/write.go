// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package h2conn

import (
	"encoding/binary"
	"runtime"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Everything here needs conn.mu, except where it says otherwise. Frames are
// appended to conn.out in the order in which the peer is to see them, and one
// short-lived goroutine at a time writes what is there.

const (
	flushAt  = 16 << 10  // octets that are not kept waiting for a Flush
	maxOut   = 64 << 10  // octets that writers add to; more waits
	maxHeads = 128 << 10 // octets to which heads of new streams are added; who does not read gets no more
	maxRude  = 256 << 10 // octets that may wait altogether, for a peer that asks and does not read
	keepOut  = 128 << 10 // octets of a buffer that is used again
)

type outBuffer struct{ b []byte }

var outBuffers = sync.Pool{New: func() any { return &outBuffer{b: make([]byte, 0, 4<<10)} }}

func (o *outBuffer) free() {
	if cap(o.b) <= keepOut {
		o.b = o.b[:0]
		outBuffers.Put(o)
	}
}

// tail is the last frame in out, if something can still be added to it.
type tail struct {
	s    *stream
	at   int // where the frame begins
	data bool
}

func (c *conn) buffer() *outBuffer {
	if c.out == nil {
		c.out = outBuffers.Get().(*outBuffer)
	}
	return c.out
}

const frameHeader = 9

// frame appends the header of a frame and as many octets of its payload as are
// given.
func (c *conn) frame(t http2.FrameType, flags http2.Flags, id uint32, length int, payload ...byte) {
	c.tail = tail{}
	o := c.buffer()
	o.b = append(o.b, byte(length>>16), byte(length>>8), byte(length), byte(t), byte(flags))
	o.b = binary.BigEndian.AppendUint32(o.b, id)
	o.b = append(o.b, payload...)
}

func (c *conn) settings(list []http2.Setting) {
	c.frame(http2.FrameSettings, 0, 0, 6*len(list))
	for _, s := range list {
		c.out.b = binary.BigEndian.AppendUint16(c.out.b, uint16(s.ID))
		c.out.b = binary.BigEndian.AppendUint32(c.out.b, s.Val)
	}
}

func (c *conn) word(t http2.FrameType, id, v uint32) {
	c.frame(t, 0, id, 4, byte(v>>24), byte(v>>16), byte(v>>8), byte(v))
}

func (c *conn) windowUpdate(id uint32, n int) { c.word(http2.FrameWindowUpdate, id, uint32(n)) }

func (c *conn) rst(id uint32, code http2.ErrCode) { c.word(http2.FrameRSTStream, id, uint32(code)) }

func (c *conn) goAway(code http2.ErrCode, detail string) {
	last := c.lastID
	if c.draining {
		last = c.goneID
	}
	if c.server == nil {
		last = 0 // there is no push
	}
	c.frame(http2.FrameGoAway, 0, 0, 8+len(detail))
	c.out.b = binary.BigEndian.AppendUint32(c.out.b, last)
	c.out.b = binary.BigEndian.AppendUint32(c.out.b, uint32(code))
	c.out.b = append(c.out.b, detail...)
}

// headers appends a header block.
func (c *conn) headers(s *stream, list []hpack.HeaderField, end bool) {
	if c.henc == nil {
		c.henc = hpack.NewEncoder((*blockWriter)(c))
		if c.peerTable != defaultTable {
			c.henc.SetMaxDynamicTableSize(c.peerTable)
		}
	}
	flags := http2.FlagHeadersEndHeaders
	if end {
		flags |= http2.FlagHeadersEndStream
	}
	c.frame(http2.FrameHeaders, flags, s.id, 0)
	at := len(c.out.b) - frameHeader
	for i := range list {
		c.henc.WriteField(list[i]) //nolint:errcheck // blockWriter has none
	}
	n := len(c.out.b) - at - frameHeader
	if n > maxFrame {
		c.split(s.id, at, end)
	} else {
		putLength(c.out.b[at:], n)
	}
	c.tail = tail{s: s, at: at}
}

// blockWriter appends what the encoder writes.
type blockWriter conn

func (w *blockWriter) Write(p []byte) (int, error) {
	w.out.b = append(w.out.b, p...)
	return len(p), nil
}

func putLength(b []byte, n int) { b[0], b[1], b[2] = byte(n>>16), byte(n>>8), byte(n) }

// split makes frames of a header block that is too long for one.
func (c *conn) split(id uint32, at int, end bool) {
	block := append([]byte(nil), c.out.b[at+frameHeader:]...)
	c.out.b = c.out.b[:at]
	t, flags := http2.FrameHeaders, http2.Flags(0)
	if end {
		flags = http2.FlagHeadersEndStream
	}
	for len(block) > 0 {
		n := min(len(block), maxFrame)
		if n == len(block) {
			flags |= http2.FlagHeadersEndHeaders
		}
		c.frame(t, flags, id, n, block[:n]...)
		block = block[n:]
		t, flags = http2.FrameContinuation, 0
	}
}

// data appends DATA, to the frame before if that is of the same stream. The
// windows have been charged.
func (c *conn) data(s *stream, p []byte) {
	if t := c.tail; t.s == s && t.data {
		if n := len(c.out.b) - t.at - frameHeader + len(p); n <= maxData {
			c.out.b = append(c.out.b, p...)
			putLength(c.out.b[t.at:], n)
			return
		}
	}
	c.frame(http2.FrameData, 0, s.id, len(p), p...)
	c.tail = tail{s: s, at: len(c.out.b) - len(p) - frameHeader, data: true}
	c.useful()
}

// endStream says that nothing follows on a stream: on its last frame if that
// is still here.
func (c *conn) endStream(s *stream) {
	if c.tail.s == s {
		c.out.b[c.tail.at+4] |= byte(http2.FlagDataEndStream) // the same bit in HEADERS
		c.tail = tail{}
		return
	}
	c.frame(http2.FrameData, http2.FlagDataEndStream, s.id, 0)
}

// kick has somebody write what is queued. It does not wait.
func (c *conn) kick() {
	if c.out == nil || c.writing {
		return
	}
	c.writing = true
	go c.writer()
}

// writeOut writes what is queued, until there is no more. It takes conn.mu
// itself.
func (c *conn) writeOut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.out != nil {
		if len(c.out.b) < flushAt && c.busy() {
			c.mu.Unlock()
			runtime.Gosched() // one write for all who are about to write
			c.mu.Lock()
		}
		o := c.out
		c.out, c.tail = nil, tail{}
		c.room.Broadcast()
		c.mu.Unlock()
		_, err := c.nc.Write(o.b)
		o.free()
		c.mu.Lock()
		if err != nil {
			c.lost(err)
		}
	}
	c.writing = false
	if c.err != nil {
		c.closeWrite()
	}
	c.room.Broadcast()
}

// busy reports whether more than one stream is at work.
func (c *conn) busy() bool {
	if c.server != nil {
		return c.server.running > 1
	}
	return len(c.streams) > 1
}

// lost ends a connection that cannot be written to.
func (c *conn) lost(err error) {
	c.fail(err)
	if c.out != nil {
		c.out.free()
		c.out, c.tail = nil, tail{}
	}
	c.nc.SetDeadline(time.Now()) //nolint:errcheck // wakes the reader, which closes it
}

// closeWrite tells the peer that nothing follows, where the connection can. It
// is called once: nothing is queued after an error.
func (c *conn) closeWrite() {
	if w, ok := c.nc.(interface{ CloseWrite() error }); ok {
		go w.CloseWrite() //nolint:errcheck // a courtesy
	}
}

// polite queues something in answer to the peer, which has to read what it asks
// for.
func (c *conn) polite() error {
	if c.out != nil && len(c.out.b) > maxRude {
		return flood("frames to answer, and does not read the answers")
	}
	c.kick()
	return nil
}

// lists are header lists on their way to the encoder.
var lists = sync.Pool{New: func() any { return new([]hpack.HeaderField) }}

// withList calls use with an empty list, to be returned filled.
func withList(use func(list []hpack.HeaderField) []hpack.HeaderField) {
	l := lists.Get().(*[]hpack.HeaderField)
	*l = use((*l)[:0])
	clear(*l)
	lists.Put(l)
}
