// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tlshello reads a TLS ClientHello without answering it.
//
// A proxy must know the name in a ClientHello before it decides what to do with
// the connection: end TLS itself, splice it, or refuse. A [Reader] takes bytes
// as they come and keeps them all, so that afterwards the very same bytes can be
// replayed to crypto/tls or sent on. [Read] does so for a connection.
//
//	hello, raw, err := tlshello.Read(conn)
//
// The reader follows RFC 8446 (sections 4.1.2, 4.2 and 5.1) and RFC 6066
// (section 3) and refuses what they forbid: interleaved or empty records,
// repeated extensions, lengths that do not add up, more than one server name. It
// reassembles a ClientHello over any number of records and holds at most
// [MaxBytes]. Extensions that it does not know, GREASE included (RFC 8701), are
// skipped by their length.
//
// # What the name proves
//
// The name is what the client says in the clear. [Hello.Check] compares it with
// the name that policy judged. With encrypted client hello (RFC 9849) the name
// in the clear is the outer one only, and the server may answer for another that
// nobody on the way can read: [Hello.ECH] says that the extension is there. Who
// ends TLS may ignore it, as a server without a key does; who splices should
// not. Clients also send it filled with random bytes, to keep the extension
// usable, which looks the same.
package tlshello

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"bawn/internal/codes"
	"bawn/internal/names"
)

// MaxBytes bounds what is read in search of the end of a ClientHello, record
// headers included. Real ones are below 4 KiB, post-quantum key shares included.
const MaxBytes = 32 << 10

// ErrTooLarge says that the ClientHello does not end within [MaxBytes].
var ErrTooLarge = errors.New("reading ClientHello: larger than 32 KiB")

// An Error says what is malformed.
type Error struct{ Detail string }

// Error gives the detail.
func (e *Error) Error() string { return "reading ClientHello: " + e.Detail }

// A Hello is what a ClientHello says about where it wants to go.
type Hello struct {
	ServerName string   // as sent, not canonical: [Hello.Check] compares it
	HasSNI     bool     // whether there was a server name at all
	ALPN       []string // protocols in the client's order; nil where there was no such extension
	ECH        bool     // whether there is an encrypted client hello, or a draft of one
}

// Check compares the server name with the name that was judged. It returns no
// code when both are one name (I4), sni_missing when there is none, and
// otherwise sni_mismatch; detail is for the record.
func (h Hello) Check(want names.Host) (code codes.Code, detail string) {
	if !h.HasSNI {
		return codes.SNIMissing, "no server name; judged was " + want.String()
	}
	got, err := names.Parse(h.ServerName)
	switch {
	case err != nil:
		return codes.SNIMismatch, "server name: " + err.Error()
	case got != want || want.IsZero():
		return codes.SNIMismatch, fmt.Sprintf("server name %s; judged was %s", got, want)
	}
	return "", ""
}

// Read reads from r until a ClientHello is complete. raw holds every byte that
// was read, also on error and also behind the ClientHello: replay it before what
// r gives next. The error is an [*Error], [ErrTooLarge], or that of r, where the
// end of input before any byte is io.EOF and later io.ErrUnexpectedEOF. No
// deadline is set here: whoever owns the connection bounds the time.
func Read(r io.Reader) (hello Hello, raw []byte, err error) {
	var in Reader
	buf := make([]byte, 2048)
	for {
		n, readErr := r.Read(buf)
		hello, done, err := in.Feed(buf[:n])
		switch {
		case err != nil || done:
			return hello, in.Raw(), err
		case readErr == io.EOF && len(in.Raw()) > 0:
			return Hello{}, in.Raw(), io.ErrUnexpectedEOF
		case readErr != nil:
			return Hello{}, in.Raw(), readErr
		}
	}
}

// Parse reads a ClientHello from the head of b. It returns
// io.ErrUnexpectedEOF when b ends too early.
func Parse(b []byte) (Hello, error) {
	var in Reader
	hello, done, err := in.Feed(b)
	if err == nil && !done {
		err = io.ErrUnexpectedEOF
	}
	return hello, err
}

// A Reader takes a connection's bytes until a ClientHello is complete. The zero
// Reader is ready. Its work is in proportion to the bytes it is fed, however
// they are cut. It is for one goroutine.
type Reader struct {
	raw  []byte // all bytes so far
	read int    // bytes of raw whose records are in msg
	msg  []byte // the handshake message, joined over records
}

// Raw returns every byte that was fed, to be replayed.
func (r *Reader) Raw() []byte { return r.raw }

// Size is how many of those bytes are records of the ClientHello, once it is
// complete.
func (r *Reader) Size() int { return r.read }

// Feed takes the next bytes. done reports a complete ClientHello; bytes behind
// it are kept in [Reader.Raw] and not looked at. After done or an error the
// Reader takes no more.
func (r *Reader) Feed(b []byte) (hello Hello, done bool, err error) {
	r.raw = append(r.raw, b...)
	for {
		fragment, err := r.record()
		if err != nil {
			return Hello{}, false, err
		}
		if fragment == nil {
			if len(r.raw) >= MaxBytes {
				return Hello{}, false, ErrTooLarge
			}
			return Hello{}, false, nil
		}
		r.msg = append(r.msg, fragment...)
		body, err := message(r.msg)
		if err != nil {
			return Hello{}, false, err
		}
		if body != nil {
			hello, err := parseHello(body)
			return hello, err == nil, err
		}
	}
}

// The record layer (RFC 8446 section 5.1).
const (
	recordHeader    = 5
	recordHandshake = 22
	maxFragment     = 1 << 14
)

// record returns the content of the next complete record, or nil when more
// bytes are needed. What is wrong with a header is said as soon as it is there.
func (r *Reader) record() ([]byte, error) {
	b := r.raw[r.read:min(len(r.raw), MaxBytes)]
	if len(b) >= 1 && b[0] != recordHandshake {
		return nil, &Error{fmt.Sprintf("record of type %d, not a handshake", b[0])}
	}
	if len(b) >= 2 && b[1] != 3 {
		return nil, &Error{fmt.Sprintf("record of version %d", b[1])}
	}
	if len(b) < recordHeader {
		return nil, nil
	}
	n := int(b[3])<<8 | int(b[4])
	if n == 0 || n > maxFragment {
		return nil, &Error{fmt.Sprintf("record of %d bytes", n)}
	}
	if len(b) < recordHeader+n {
		return nil, nil
	}
	r.read += recordHeader + n
	return b[recordHeader : recordHeader+n], nil
}

// The handshake layer (RFC 8446 section 4).
const (
	messageHeader      = 4
	messageClientHello = 1
)

// message returns the body of the handshake message in b once it is complete,
// and nil before.
func message(b []byte) ([]byte, error) {
	if b[0] != messageClientHello {
		return nil, &Error{fmt.Sprintf("handshake message of type %d", b[0])}
	}
	if len(b) < messageHeader {
		return nil, nil
	}
	n := int(b[1])<<16 | int(b[2])<<8 | int(b[3])
	switch have := len(b) - messageHeader; {
	case n > MaxBytes:
		return nil, ErrTooLarge
	case have > n:
		return nil, &Error{"bytes behind the ClientHello in its record"}
	case have < n:
		return nil, nil
	}
	// A length of zero is complete at once; it must not look incomplete.
	return slices.Clip(b[messageHeader:]), nil
}
