// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package wswire

import (
	"bufio"
	"crypto/rand"
	"errors"
)

// A Writer writes what one end sends. It is made ready by Reset. It flushes
// nothing.
type Writer struct {
	// Mask gives the key for a frame of a client. It must not be foreseeable
	// (RFC 6455 section 10.3). nil takes it from the system's source.
	Mask func() [4]byte

	dst     *bufio.Writer
	as      Role
	deflate bool
	window  int
	open    bool // a message has begun
	first   bool // and none of its frames was written
	op      Opcode
	squeeze bool
	head    [14]byte
}

// Reset makes w write to dst as one of the two ends. p is what was agreed on
// about compression. Mask stays as it is.
func (w *Writer) Reset(dst *bufio.Writer, as Role, p Params) {
	*w = Writer{Mask: w.Mask, dst: dst, as: as, deflate: p.Deflate, window: 1 << p.window(as)}
}

// To changes where w writes to. It must stand between two frames.
func (w *Writer) To(dst *bufio.Writer) { w.dst = dst }

var errNoMessage = errors.New("a piece of no message")

// Begin begins a message, which is compressed if that was asked for and agreed
// on.
func (w *Writer) Begin(op Opcode, compress bool) {
	w.open, w.first, w.op, w.squeeze = true, true, op, compress && w.deflate
}

// Write writes a piece of the message as a frame, the last one with fin.
func (w *Writer) Write(p []byte, fin bool) error {
	if !w.open {
		return errNoMessage
	}
	h := Header{Fin: fin, Op: Continuation}
	if w.first {
		if fin && len(p) == 0 {
			w.squeeze = false
		}
		h.Op = w.op
		if w.squeeze {
			h.Rsv = rsv1
		}
	}
	w.first, w.open = false, !fin
	if !w.squeeze {
		return w.frame(h, p)
	}
	d := deflaters.Get().(*deflater)
	defer d.free()
	out, err := d.deflate(p, w.window, fin)
	if err != nil {
		return err
	}
	return w.frame(h, out)
}

// Control writes a control frame. It may stand anywhere between two pieces.
func (w *Writer) Control(op Opcode, payload []byte) error {
	return w.frame(Header{Fin: true, Op: op}, payload[:min(len(payload), MaxControl)])
}

// Close writes a close frame, after which nothing may be written.
func (w *Writer) Close(s Status, reason string) error {
	var buf [MaxControl]byte
	return w.Control(Close, AppendClose(buf[:0], s, reason))
}

func (w *Writer) frame(h Header, p []byte) error {
	h.Length = int64(len(p))
	if w.as == Client {
		h.Masked = true
		if w.Mask != nil {
			h.Key = w.Mask()
		} else {
			rand.Read(h.Key[:]) // never fails
		}
	}
	if _, err := w.dst.Write(AppendHeader(w.head[:0], h)); err != nil {
		return err
	}
	if !h.Masked {
		_, err := w.dst.Write(p)
		return err
	}
	return w.masked(p, h.Key)
}

// masked writes p under a mask, by way of the buffer of dst: p itself is
// somebody else's.
func (w *Writer) masked(p []byte, key [4]byte) error {
	for at := int64(0); len(p) > 0; {
		buf := w.dst.AvailableBuffer()
		if cap(buf) == 0 {
			if err := w.dst.Flush(); err != nil {
				return err
			}
			continue
		}
		n := min(len(p), cap(buf))
		buf = append(buf, p[:n]...)
		mask(buf, key, at)
		if _, err := w.dst.Write(buf); err != nil {
			return err
		}
		p, at = p[n:], at+int64(n)
	}
	return nil
}
