// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package httpwire

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"bawn/internal/codes"
)

// A Body reads one body off a connection. The zero Body is at its end; Reset
// begins the next one.
type Body struct {
	r        *bufio.Reader
	kind     FramingKind
	left     int64 // of a Length body, or of the chunk at hand
	inChunk  bool  // the line end of a chunk is still to be read
	extra    int   // octets of extensions and trailers that may still come
	fields   int
	trailers Fields
	err      error // sticky; io.EOF at the end
}

// Reset makes b read a body of that framing from r.
func (b *Body) Reset(r *bufio.Reader, f Framing, lim Limits) {
	lim = lim.orDefault()
	*b = Body{r: r, kind: f.Kind, left: f.Length, extra: lim.Extra, fields: lim.Fields}
	if !f.HasBody() {
		b.err = io.EOF
	}
}

// Read reads octets of the body. It returns io.EOF once the whole body was
// read, and [*Error] with body_truncated when the connection ended before it.
func (b *Body) Read(p []byte) (int, error) {
	if b.err == nil && b.kind == Chunked && b.left == 0 {
		b.err = b.nextChunk()
	}
	if b.err != nil {
		return 0, b.err
	}
	if b.kind != UntilClose && int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.r.Read(p)
	if b.kind != UntilClose {
		b.left -= int64(n)
	}
	switch {
	case err != nil && b.kind == UntilClose:
		b.err = err
	case err != nil:
		b.err = truncated(err)
	case b.kind == Length && b.left == 0:
		b.err = io.EOF
	}
	if n > 0 {
		return n, nil
	}
	return 0, b.err
}

// Done reports whether the whole body was read and its end was good, so that
// the connection stands at the next message.
func (b *Body) Done() bool { return errors.Is(b.err, io.EOF) && b.kind != UntilClose }

// Ready reports whether Read returns without waiting for the connection: what
// it needs is in the buffer, or it was the end. Whoever passes octets on
// flushes them when it is not.
func (b *Body) Ready() bool {
	n := b.r.Buffered()
	if b.err != nil || n > 0 && (b.kind != Chunked || b.left > 0) {
		return true
	}
	if n == 0 {
		return false
	}
	have, _ := b.r.Peek(n)
	if b.inChunk {
		have = have[min(2, n):]
	}
	size, rest, ok := bytes.Cut(have, []byte{'\n'})
	if !ok {
		return false
	}
	if len(size) > 0 && size[0] == '0' && (len(size) < 2 || size[1] == '\r' || size[1] == ';') {
		return bytes.HasPrefix(rest, []byte("\r\n"))
	}
	return len(rest) > 0
}

// Trailers returns the trailer fields of a chunked body that was read to its
// end. The framing and hop-by-hop fields are not among them (RFC 9110 section
// 6.5.1).
func (b *Body) Trailers() Fields { return b.trailers }

func truncated(err error) error {
	if errors.Is(err, io.EOF) {
		return refuse(codes.BodyTruncated, "the connection ended inside the body")
	}
	return err
}

// nextChunk reads up to the octets of the next chunk (RFC 9112 section 7.1).
// It returns io.EOF after the last chunk and the trailers.
func (b *Body) nextChunk() error {
	if b.inChunk {
		if err := b.lineEnd(); err != nil {
			return err
		}
		b.inChunk = false
	}
	line, err := b.line()
	if err != nil {
		return err
	}
	size, digits, err := chunkSize(line)
	if err != nil {
		return err
	}
	if b.extra -= len(line) - digits; b.extra < 0 {
		return refuse(codes.FramingInvalid, "chunk extensions over the limit")
	}
	if size == 0 {
		return b.readTrailers()
	}
	b.left, b.inChunk = size, true
	return nil
}

// lineEnd reads the CRLF after the octets of a chunk.
func (b *Body) lineEnd() error {
	two, err := b.r.Peek(2)
	if err != nil {
		return truncated(err)
	}
	if two[0] != '\r' || two[1] != '\n' {
		return refuse(codes.FramingInvalid, "a chunk that does not end where its size says")
	}
	_, err = b.r.Discard(2)
	return err
}

// line reads one line of the chunk framing, without its end. It is good until
// the next read.
func (b *Body) line() ([]byte, error) {
	s, err := b.r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, refuse(codes.FramingInvalid, "a line of the chunk framing over its limit")
	case err != nil:
		return nil, truncated(err)
	case len(s) < 2 || s[len(s)-2] != '\r':
		return nil, refuse(codes.FramingInvalid, "a bare line feed in the chunk framing")
	}
	return s[:len(s)-2], nil
}

// maxSizeDigits bounds the digits of a chunk size: more than any body needs,
// and too few to overflow.
const maxSizeDigits = 15

// chunkSize reads a chunk size of so many digits. Extensions after it are
// checked and dropped (RFC 9112 section 7.1.1).
func chunkSize(line []byte) (n int64, digits int, err error) {
	i := 0
	for ; i < len(line) && octets[line[i]]&isHex != 0; i++ {
		if i == maxSizeDigits {
			return 0, 0, refuse(codes.FramingInvalid, "a chunk size with too many digits")
		}
		n = n<<4 | int64(unhex(line[i]))
	}
	if i == 0 {
		return 0, 0, refuse(codes.FramingInvalid, "a chunk size that is not hexadecimal digits")
	}
	if i < len(line) && !validExtensions(string(line[i:])) {
		return 0, 0, refuse(codes.FramingInvalid, "something after the chunk size that is not an extension")
	}
	return n, i, nil
}

// validExtensions reports whether s is *( ";" name [ "=" ( token / quoted ) ] ).
// The blanks that the grammar tolerates are refused: RFC 9112 calls them bad,
// and servers differ on them.
func validExtensions(s string) bool {
	for s != "" {
		if s[0] != ';' {
			return false
		}
		n := tokenLength(s[1:])
		if n == 0 {
			return false
		}
		s = s[1+n:]
		if s == "" || s[0] != '=' {
			continue
		}
		s = s[1:]
		if n = tokenLength(s); n == 0 {
			n = quotedLength(s)
		}
		if n == 0 {
			return false
		}
		s = s[n:]
	}
	return true
}

func tokenLength(s string) int {
	i := 0
	for i < len(s) && octets[s[i]]&isToken != 0 {
		i++
	}
	return i
}

// quotedLength returns the length of the quoted-string at the start of s, or
// 0 (RFC 9110 section 5.6.4).
func quotedLength(s string) int {
	if s == "" || s[0] != '"' {
		return 0
	}
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '"':
			return i + 1
		case s[i] == '\\':
			i++
			if i == len(s) || octets[s[i]]&isValue == 0 {
				return 0
			}
		case octets[s[i]]&isValue == 0:
			return 0
		}
	}
	return 0
}

// readTrailers reads the trailer section (RFC 9112 section 7.1.2) and returns
// io.EOF at its good end.
func (b *Body) readTrailers() error {
	for {
		line, err := b.line()
		if err != nil {
			return err
		}
		if len(line) == 0 {
			return io.EOF
		}
		b.extra -= len(line)
		b.fields--
		if b.extra < 0 || b.fields < 0 {
			return refuse(codes.HeadTooLarge, "trailers over the limit")
		}
		f, _, state := parseField(string(line))
		switch {
		case state == fieldBad:
			return refuse(codes.HeaderInvalid, "a line of the trailers that is not a field")
		case state == fieldDrop, kindOf(f.Name) != plain:
			continue // RFC 9110 section 6.5.1: not a place for these
		}
		b.trailers = append(b.trailers, f)
	}
}

// A BodyWriter writes one body. The zero BodyWriter writes nothing; Reset
// begins the next one.
type BodyWriter struct {
	w    *bufio.Writer
	kind FramingKind
	left int64
}

// Reset makes b write a body of that framing to w.
func (b *BodyWriter) Reset(w *bufio.Writer, f Framing) {
	*b = BodyWriter{w: w, kind: f.Kind, left: f.Length}
}

var errTooLong = errors.New("writing a body: more octets than its Content-Length")

// Write writes octets of the body; a chunk, if the framing is chunked.
func (b *BodyWriter) Write(p []byte) (int, error) {
	switch b.kind {
	case Length:
		if int64(len(p)) > b.left {
			return 0, errTooLong
		}
		b.left -= int64(len(p))
		return b.w.Write(p)
	case Chunked:
		return b.chunk(p)
	case UntilClose:
		return b.w.Write(p)
	}
	if len(p) > 0 {
		return 0, errTooLong
	}
	return 0, nil
}

func (b *BodyWriter) chunk(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil // a chunk of no octets would end the body
	}
	var line [18]byte
	i := len(line) - 2
	line[i], line[i+1] = '\r', '\n'
	for n := len(p); n > 0; n >>= 4 {
		i--
		line[i] = "0123456789abcdef"[n&15]
	}
	if _, err := b.w.Write(line[i:]); err != nil {
		return 0, err
	}
	n, err := b.w.Write(p)
	if err != nil {
		return n, err
	}
	_, err = b.w.WriteString("\r\n")
	return n, err
}

var errTooShort = errors.New("writing a body: fewer octets than its Content-Length")

// Close writes the end of the body with its trailers, which only a chunked
// body can have, and leaves the flush to the caller. It is an error to close a
// body that is shorter than its Content-Length: the connection is of no more
// use then.
func (b *BodyWriter) Close(trailers Fields) error {
	if b.kind == Length && b.left > 0 {
		return errTooShort
	}
	if b.kind != Chunked {
		return nil
	}
	if len(trailers) == 0 {
		_, err := b.w.WriteString("0\r\n\r\n")
		return err
	}
	end := appendFields([]byte("0\r\n"), trailers)
	_, err := b.w.Write(append(end, "\r\n"...))
	return err
}
