// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package contentcoding undoes the compression of request bodies, so that they
// can be judged.
//
// A body may have one coding, which [Of] reads off its Content-Encoding, and
// [Decode] undoes it once. What was judged and what the server will read have to
// be the same, although the server gets the compressed octets: so a body is
// taken only if nobody could read anything else in it. It is one gzip member,
// one Zstandard frame or one Brotli stream from its first octet to its last,
// with nothing behind it and every checksum right.
//
// Everything here is pure, and bounded in memory by [Limits].
package contentcoding

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"github.com/andybalholm/brotli"

	"bawn/internal/codes"
)

// A Coding is how a body is encoded.
type Coding uint8

// The codings. The zero value is none.
const (
	Identity Coding = iota
	Gzip
	Zstd
	Brotli
)

// String gives the name that stands in Content-Encoding.
func (c Coding) String() string {
	switch c {
	case Identity:
		return "identity"
	case Gzip:
		return "gzip"
	case Zstd:
		return "zstd"
	case Brotli:
		return "br"
	}
	return fmt.Sprintf("coding %d", uint8(c))
}

// Limits bound what a body may decode to. A zero field means its default.
type Limits struct {
	Octets int64 // 10 MiB
	Ratio  int   // to the encoded octets, for bodies of more than 64 KiB: 100
}

func (l Limits) orDefault() Limits {
	if l.Octets == 0 {
		l.Octets = 10 << 20
	}
	if l.Ratio == 0 {
		l.Ratio = 100
	}
	return l
}

// free is what a body may decode to at any ratio: short texts of one letter are
// no bombs.
const free = 64 << 10

// most is how many octets so many encoded ones may decode to.
func (l Limits) most(encoded int) int64 {
	return min(l.Octets, max(free, int64(encoded)*int64(l.Ratio)))
}

// An Error refuses a body with a code.
type Error struct {
	Code   codes.Code
	Detail string
}

// Error gives the code and the detail.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Detail }

func undecodable(format string, args ...any) error {
	return &Error{codes.BodyUndecodable, fmt.Sprintf(format, args...)}
}

// errTooLarge is what the decoders below return beyond their bound.
var errTooLarge = errors.New("larger than it may be")

// Of reads the values of all Content-Encoding fields of a request. None is
// [Identity]. Only the exact names are known, each alone: a server that reads
// other spellings, or a list, reads something else than was judged.
func Of(values []string) (Coding, error) {
	if len(values) == 0 {
		return Identity, nil
	}
	if len(values) > 1 {
		return 0, undecodable("%d Content-Encoding fields", len(values))
	}
	for _, c := range []Coding{Identity, Gzip, Zstd, Brotli} {
		if values[0] == c.String() {
			return c, nil
		}
	}
	return 0, undecodable("Content-Encoding %q", values[0])
}

// Decode undoes a coding. With [Identity] body itself is returned. The error is
// an [*Error].
func Decode(c Coding, body []byte, lim Limits) ([]byte, error) {
	lim = lim.orDefault()
	var decode func([]byte, int64) ([]byte, error)
	switch c {
	case Identity:
		return body, nil
	case Gzip:
		decode = gunzip
	case Zstd:
		decode = unzstd
	case Brotli:
		decode = unbrotli
	default:
		return nil, undecodable("%v", c)
	}
	most := lim.most(len(body))
	out, err := decode(body, most)
	switch {
	case errors.Is(err, errTooLarge):
		return nil, &Error{codes.BodyTooLarge, fmt.Sprintf("%d octets of %v are more than %d when they are decoded", len(body), c, most)}
	case err != nil:
		return nil, undecodable("%v: %v", c, err)
	}
	if out == nil {
		out = []byte{}
	}
	return out, nil
}

// readAll reads at most most octets, and to the end.
func readAll(r io.Reader, most int64) ([]byte, error) {
	var out bytes.Buffer
	n, err := io.Copy(&out, io.LimitReader(r, most+1))
	if n > most {
		return nil, errTooLarge
	}
	return out.Bytes(), err
}

// reservedFlags are the bits of a gzip header that must be zero (RFC 1952
// section 2.3.1.2); the decoder does not look at them.
const reservedFlags = 0xe0

var errTrailing = errors.New("octets behind the end")

// gunzip reads one member.
func gunzip(body []byte, most int64) ([]byte, error) {
	r := bytes.NewReader(body) // an io.ByteReader: nothing is read beyond the member
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, err
	}
	if body[3]&reservedFlags != 0 {
		return nil, errors.New("reserved flags are set")
	}
	z.Multistream(false)
	out, err := readAll(z, most)
	if err == nil && r.Len() > 0 {
		err = errTrailing
	}
	return out, err
}

// unbrotli reads one stream. The decoder refuses octets behind it, and windows
// that are larger than RFC 7932 has.
func unbrotli(body []byte, most int64) ([]byte, error) {
	return readAll(brotli.NewReader(bytes.NewReader(body)), most)
}
