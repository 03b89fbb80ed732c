// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"bufio"
	"io"
	"net"
)

// A connection that waits should cost little: agents keep many. It gives its
// buffer back, and takes one when something comes.

// takeReader takes a buffer to read from r by.
func (c *conn) takeReader(r io.Reader) {
	c.r = c.s.readers.Get().(*bufio.Reader)
	c.r.Reset(r)
}

// giveReader gives the buffer back. Nothing must be in it.
func (c *conn) giveReader() {
	c.r.Reset(nil)
	c.s.readers.Put(c.r)
	c.r = nil
}

// stirs waits for the first octet of the next request. Over TLS it does so
// without a buffer: TLS has one of its own, so that to read a single octet from
// it costs no system call.
func (c *conn) stirs() bool {
	if c.cl == c.raw || c.r.Buffered() > 0 {
		_, err := c.r.Peek(1)
		return err == nil
	}
	c.giveReader()
	c.first = firstOctet{from: c.cl}
	_, err := io.ReadFull(c.cl, c.first.octet[:])
	c.takeReader(&c.first)
	return err == nil
}

// A firstOctet gives an octet that was read already, and then what follows.
type firstOctet struct {
	octet [1]byte
	given bool
	from  net.Conn
}

func (f *firstOctet) Read(p []byte) (int, error) {
	if f.given || len(p) == 0 {
		return f.from.Read(p)
	}
	f.given = true
	return copy(p, f.octet[:]), nil
}

// messageBuffer holds what TLS gives at a time, and the octet before it, so that
// a message of one record is passed on as one.
const messageBuffer = 16<<10 + 512

// stirs waits for the first octet of the next frame, over TLS without a buffer.
func (e *wsEnd) stirs() error {
	if e.conn == e.raw || e.src.Buffered() > 0 {
		return nil
	}
	e.giveReader()
	e.first = firstOctet{from: e.conn}
	_, err := io.ReadFull(e.conn, e.first.octet[:])
	e.src = e.s.messages.Get().(*bufio.Reader)
	e.src.Reset(&e.first)
	e.in.From(e.src)
	e.give = e.s.messages.Put
	return err
}

// giveReader gives the buffer back, to where it is from.
func (e *wsEnd) giveReader() {
	if e.src != nil {
		e.src.Reset(nil)
		e.give(e.src)
		e.src = nil
	}
}
