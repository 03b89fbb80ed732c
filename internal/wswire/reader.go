// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package wswire

import (
	"bufio"
	"errors"
	"io"
)

// Limits bound what one message may cost. A zero field means its default.
type Limits struct {
	Message   int64 // octets of a message, decompressed; 64 MiB
	Fragments int   // frames of a message; 131,072
	Ratio     int   // octets that one compressed octet may become; 200
	Free      int64 // octets that a message may inflate to in any ratio; 1 MiB
}

func (l Limits) orDefault() Limits {
	if l.Message == 0 {
		l.Message = 64 << 20
	}
	if l.Fragments == 0 {
		l.Fragments = 1 << 17
	}
	if l.Ratio == 0 {
		l.Ratio = 200
	}
	if l.Free == 0 {
		l.Free = 1 << 20
	}
	return l
}

// A Reader reads what one peer sends. It is made ready by Reset. After an error
// it gives that error for ever.
type Reader struct {
	// Control is given each ping and pong where it stands in the stream, and
	// the close frame, which ends it. The payload is valid during the call. An
	// error becomes the reader's.
	Control func(op Opcode, payload []byte) error
	// Wait, where set, is called before the reader waits for the peer: the
	// moment to flush what was written. within says that a message has begun.
	// An error becomes the reader's.
	Wait func(within bool) error

	src     *bufio.Reader
	from    Role
	deflate bool
	lim     Limits
	err     error
	late    error // that was met behind octets which had to be given out first

	h    Header
	left int64 // octets of the frame still to come
	at   int64 // octets of the frame that came

	open       bool // a message has begun and was not read to its end
	text       bool
	compressed bool
	frames     int
	wire       int64 // octets of the message in its frames, so far
	size       int64 // octets that it has become
	check      textCheck
	z          *inflater // while a compressed message is read
}

// Reset makes r read what from sends on src. deflate says that
// permessage-deflate was agreed on. Control and Wait stay as they are.
func (r *Reader) Reset(src *bufio.Reader, from Role, deflate bool, lim Limits) {
	r.release()
	*r = Reader{Control: r.Control, Wait: r.Wait, src: src, from: from, deflate: deflate, lim: lim.orDefault()}
}

// From has r go on reading from another source. It is for Wait, which may end
// the wait for a message with it: nothing may be buffered in the last source.
func (r *Reader) From(src *bufio.Reader) { r.src = src }

var errUnread = errors.New("the message before was not read to its end")

// Next waits for a message and says what it is: [Text] or [Binary], and
// whether it came compressed. The error is io.EOF if the stream ends between
// two frames, a [*Closed] if it is closed, and an [*Error] if it is refused.
func (r *Reader) Next() (op Opcode, compressed bool, err error) {
	switch {
	case r.err != nil:
		return 0, false, r.err
	case r.open:
		return 0, false, errUnread
	}
	if err := r.frame(); err != nil {
		return 0, false, r.fail(err)
	}
	return r.h.Op, r.compressed, nil
}

// Read gives octets of the message as they are here, over as many frames as are
// here, and io.EOF with the last of them.
func (r *Reader) Read(p []byte) (n int, err error) {
	switch {
	case r.err != nil:
		return 0, r.err
	case r.late != nil:
		return 0, r.fail(r.late)
	case !r.open:
		return 0, io.EOF
	case len(p) == 0:
		return 0, nil
	case r.compressed:
		n, err = r.inflate(p)
	default:
		n, err = r.gather(p)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		if n == 0 {
			return 0, r.fail(err)
		}
		r.late, err = err, nil
	}
	if r.text && !r.check.write(p[:n]) || r.text && err != nil && !r.check.end() {
		return 0, r.fail(invalid("a text that is not UTF-8"))
	}
	if err != nil {
		r.open = false
		r.release()
	}
	return n, err
}

// Whole appends the rest of the message to dst.
func (r *Reader) Whole(dst []byte) ([]byte, error) {
	for {
		if len(dst) == cap(dst) {
			dst = append(dst, 0)[:len(dst)]
		}
		n, err := r.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		if errors.Is(err, io.EOF) {
			return dst, nil
		}
		if err != nil {
			return dst, err
		}
	}
}

// fail makes err the reader's for ever. An end inside of a message or a frame
// is none that anybody asked for.
func (r *Reader) fail(err error) error {
	if errors.Is(err, io.EOF) && r.open {
		err = io.ErrUnexpectedEOF
	}
	r.err = err
	r.release()
	return err
}

func (r *Reader) release() {
	if r.z != nil {
		r.z.free()
		r.z = nil
	}
}

// gather reads as many octets as are here, so that a message in many small
// frames does not become one in more.
func (r *Reader) gather(p []byte) (n int, err error) {
	for {
		m, err := r.payload(p[n:])
		n += m
		if err != nil || n == len(p) || !r.more() {
			return n, err
		}
	}
}

// more reports whether another octet of the message, or its end, can be read
// without waiting, and before any control frame.
func (r *Reader) more() bool {
	have := r.src.Buffered()
	if r.left > 0 || have < 2 {
		return r.left > 0 && have > 0
	}
	b, _ := r.src.Peek(2) // as many are buffered
	size, empty := headerSize(b[1]), b[1]&0x7f == 0
	switch {
	case Opcode(b[0]&0xf) != Continuation || have < size:
		return false
	case empty:
		return b[0]&0x80 != 0
	}
	return have > size
}

// payload reads octets of the message as they stand in its frames.
func (r *Reader) payload(p []byte) (int, error) {
	for r.left == 0 {
		if r.h.Fin {
			return 0, io.EOF
		}
		if err := r.frame(); err != nil {
			return 0, noEnd(err)
		}
	}
	if err := r.wait(1); err != nil {
		return 0, err
	}
	n, err := r.src.Read(p[:min(int64(len(p)), r.left)])
	if r.h.Masked {
		mask(p[:n], r.h.Key, r.at)
	}
	r.left -= int64(n)
	r.at += int64(n)
	switch {
	case err != nil:
		return n, noEnd(err)
	case r.left == 0 && r.h.Fin:
		return n, io.EOF
	}
	return n, nil
}

// noEnd makes the end of the stream one inside of a message.
func noEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// wait says that n octets are needed now.
func (r *Reader) wait(n int) error {
	if r.Wait == nil || r.src.Buffered() >= n {
		return nil
	}
	return r.Wait(r.open)
}

// frame reads up to the payload of the next frame of data.
func (r *Reader) frame() error {
	for {
		if err := r.head(); err != nil {
			return err
		}
		if !r.h.Op.Control() {
			return r.begin()
		}
		if err := r.control(); err != nil {
			return err
		}
	}
}

// head reads the head of a frame and checks what it says of itself.
func (r *Reader) head() error {
	if err := r.wait(2); err != nil {
		return err
	}
	b, err := r.src.Peek(2)
	if err != nil {
		if len(b) > 0 {
			err = noEnd(err)
		}
		return err
	}
	if err := r.allowed(b[0], b[1]); err != nil {
		return err
	}
	n := headerSize(b[1])
	if err := r.wait(n); err != nil {
		return err
	}
	if b, err = r.src.Peek(n); err != nil {
		return noEnd(err)
	}
	h, refused := parseHeader(b)
	if refused != nil {
		return refused
	}
	r.src.Discard(n) //nolint:errcheck // as many are buffered
	r.h, r.left, r.at = h, h.Length, 0
	return nil
}

// allowed judges a frame by its first two octets, before anything else of it
// is waited for.
func (r *Reader) allowed(first, second byte) error {
	op, fin, rsv := Opcode(first&0xf), first&0x80 != 0, first>>4&7
	masked, short := second&0x80 != 0, second&0x7f
	switch {
	case op.reserved():
		return violation("a reserved opcode")
	case rsv&^rsv1 != 0 || rsv != 0 && !r.deflate:
		return violation("a reserved bit that no extension gives a meaning to")
	case rsv != 0 && op != Text && op != Binary:
		return violation("the bit for compression elsewhere than on the first frame of a message")
	case masked != (r.from == Client):
		if masked {
			return violation("a masked frame of a server")
		}
		return violation("a frame of a client without a mask")
	case op.Control() && !fin:
		return violation("a control frame in fragments")
	case op.Control() && short > MaxControl:
		return violation("a control frame of more than 125 octets")
	case op == Continuation && !r.open:
		return violation("a continuation of nothing")
	case !op.Control() && op != Continuation && r.open:
		return violation("a message inside of another")
	}
	return nil
}

// begin takes the head of a frame of data into account.
func (r *Reader) begin() error {
	if r.h.Op != Continuation {
		r.open, r.text, r.compressed = true, r.h.Op == Text, r.h.Rsv&rsv1 != 0
		r.frames, r.wire, r.size, r.check = 0, 0, 0, textCheck{}
		if r.compressed {
			r.z = newInflater(r)
		}
	}
	r.frames++
	switch {
	case r.frames > r.lim.Fragments:
		return tooBig("a message in too many fragments")
	case r.h.Length > r.lim.Message-r.wire:
		return tooBig("a message of too many octets")
	}
	r.wire += r.h.Length
	return nil
}

// control reads the payload of a control frame and hands it out.
func (r *Reader) control() error {
	n := int(r.left)
	if err := r.wait(n); err != nil {
		return err
	}
	var buf [MaxControl]byte
	p := buf[:n]
	if _, err := io.ReadFull(r.src, p); err != nil {
		return noEnd(err)
	}
	if r.h.Masked {
		mask(p, r.h.Key, 0)
	}
	r.left = 0
	if r.h.Op != Close {
		return r.handle(p)
	}
	closed, refused := parseClose(p)
	if refused != nil {
		return refused
	}
	if err := r.handle(p); err != nil {
		return err
	}
	return closed
}

func (r *Reader) handle(p []byte) error {
	if r.Control == nil {
		return nil
	}
	return r.Control(r.h.Op, p)
}
