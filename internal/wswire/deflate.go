// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package wswire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"sync"

	"github.com/klauspost/compress/flate"
)

// A compressed message is a stream of blocks that ends in an empty one, of
// which the last four octets are left out (RFC 7692 section 7.2.1). For the
// decompressor they are put back, and a final block behind them, at which it
// ends.
const (
	leftOut    = "\x00\x00\xff\xff"
	finalBlock = "\x01\x00\x00\xff\xff"
)

// An inflater decompresses one message.
type inflater struct {
	r     *Reader
	src   *bufio.Reader // of the inflater itself, which gives the compressed octets
	z     io.ReadCloser
	tail  string // what is still to follow the message's own octets
	ended bool   // all of the message's own octets are here
	err   error  // of the message's frames
	rest  [len(leftOut) + len(finalBlock) + 1]byte
}

var inflaters = sync.Pool{New: func() any {
	f := &inflater{}
	f.src = bufio.NewReader(f)
	f.z = flate.NewReader(f.src)
	return f
}}

func newInflater(r *Reader) *inflater {
	f := inflaters.Get().(*inflater)
	f.r, f.tail, f.ended, f.err = r, leftOut+finalBlock, false, nil
	f.src.Reset(f)
	f.z.(flate.Resetter).Reset(f.src, nil) //nolint:errcheck // fails for dictionaries only
	return f
}

func (f *inflater) free() {
	f.r = nil
	inflaters.Put(f)
}

// Read gives the compressed octets of the message.
func (f *inflater) Read(p []byte) (int, error) {
	if !f.ended {
		n, err := f.r.payload(p)
		switch {
		case errors.Is(err, io.EOF):
			f.ended = true
		case err != nil:
			f.err = err
			return n, err
		}
		if n > 0 {
			return n, nil
		}
		if !f.ended {
			return n, nil
		}
	}
	if f.tail == "" {
		return 0, io.EOF
	}
	n := copy(p, f.tail)
	f.tail = f.tail[n:]
	return n, nil
}

// inflate reads octets of a compressed message. Once all of its frames are
// here it does not stop before p is full or the message through, so that the
// end comes with the last octets.
func (r *Reader) inflate(p []byte) (n int, err error) {
	for n < len(p) {
		var m int
		m, err = r.z.z.Read(p[n:])
		n += m
		r.size += int64(m)
		if over := r.size - r.lim.Message; over > 0 {
			return n - int(over), tooBig("a message that inflates to too many octets")
		}
		if r.size > r.lim.Free && r.size/int64(r.lim.Ratio) > r.wire {
			return n - m, tooBig("a message that inflates too far")
		}
		if err != nil {
			return n, r.z.settle(err)
		}
		if n > 0 && !r.z.ended {
			return n, nil
		}
	}
	return n, nil
}

// settle judges the end of decompression.
func (f *inflater) settle(err error) error {
	_, corrupt := errors.AsType[flate.CorruptInputError](err)
	switch {
	case f.err != nil && !corrupt:
		return f.err
	case !errors.Is(err, io.EOF):
		return invalid("a message that does not inflate")
	}
	// A block of the message itself may be marked final. Then nothing of it may
	// follow but the empty block that RFC 7692 section 7.2.3.4 has there: one
	// reader would see it and another would not.
	n, _ := io.ReadFull(f.src, f.rest[:]) // what failed is in f.err
	whole := n < len(f.rest) || f.none()
	switch string(f.rest[:n]) {
	case "", leftOut + finalBlock, "\x00" + leftOut + finalBlock:
		if f.err == nil && whole {
			return io.EOF
		}
	}
	if f.err != nil {
		return f.err
	}
	return invalid("a compressed message that goes on behind its end")
}

// none reports whether nothing more comes.
func (f *inflater) none() bool {
	_, err := f.src.ReadByte()
	return errors.Is(err, io.EOF)
}

// A deflater compresses one piece of a message at a time. It keeps nothing from
// one piece to the next.
type deflater struct {
	z   *flate.Writer
	out bytes.Buffer
}

var deflaters = sync.Pool{New: func() any {
	d := &deflater{}
	d.z, _ = flate.NewWriter(&d.out, flate.BestSpeed) // fails for other levels only
	return d
}}

// keptOut is how large an output buffer may be that is kept.
const keptOut = 256 << 10

func (d *deflater) free() {
	if d.out.Cap() <= keptOut {
		deflaters.Put(d)
	}
}

// deflate compresses p, with no reference further back than window octets: each
// part of that size stands for itself. last leaves out the octets that end a
// message. The result is valid until the next call.
func (d *deflater) deflate(p []byte, window int, last bool) ([]byte, error) {
	d.out.Reset()
	for first := true; first || len(p) > 0; first = false {
		part := p[:min(len(p), window)]
		p = p[len(part):]
		d.z.Reset(&d.out)
		if _, err := d.z.Write(part); err != nil {
			return nil, err
		}
		if err := d.z.Flush(); err != nil {
			return nil, err
		}
	}
	out := d.out.Bytes()
	if last {
		out = bytes.TrimSuffix(out, []byte(leftOut))
	}
	return out, nil
}
