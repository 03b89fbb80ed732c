// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package httpwire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"

	"bawn/internal/codes"
)

// Limits bound a head. A zero field means its default.
type Limits struct {
	Head   int // octets of a head with its empty line; default 64 KiB
	Fields int // fields of a head or of a trailer section; default 256
	Extra  int // octets of chunk extensions and trailers of one body; default 16 KiB
}

// The defaults of [Limits].
const (
	DefaultHead   = 64 << 10
	DefaultFields = 256
	DefaultExtra  = 16 << 10
)

func (l Limits) orDefault() Limits {
	if l.Head == 0 {
		l.Head = DefaultHead
	}
	if l.Fields == 0 {
		l.Fields = DefaultFields
	}
	if l.Extra == 0 {
		l.Extra = DefaultExtra
	}
	return l
}

// headScan looks for the empty line that ends a head. It keeps its place, so
// that bytes which arrive one by one are looked at once.
type headScan struct{ at, line int }

var errBareLF = refuse(codes.HeaderInvalid, "a line feed without a carriage return before it")

// end returns the length of the head at the start of b, or 0 if b does not
// hold all of it yet.
func (s *headScan) end(b []byte) (int, error) {
	for {
		i := bytes.IndexByte(b[s.at:], '\n')
		if i < 0 {
			s.at = len(b)
			return 0, nil
		}
		lf := s.at + i
		if lf == s.line || b[lf-1] != '\r' {
			return 0, errBareLF
		}
		empty := lf == s.line+1
		s.at, s.line = lf+1, lf+1
		if empty {
			return lf + 1, nil
		}
	}
}

// readHead returns one head with its empty line and takes it off r. It returns
// the error of r as it is when not one octet came, io.ErrUnexpectedEOF when
// the stream ended inside the head.
func readHead(r *bufio.Reader, limit int) (string, error) {
	if _, err := r.Peek(1); err != nil {
		return "", err
	}
	if err := startOf(r); err != nil {
		return "", err
	}
	var scan headScan
	for {
		b, _ := r.Peek(r.Buffered())
		n, err := scan.end(b)
		switch {
		case err != nil:
			return "", err
		case n > limit || n == 0 && len(b) >= limit:
			return "", tooLarge(limit)
		case n > 0:
			head := string(b[:n])
			r.Discard(n) //nolint:errcheck // n octets are buffered
			return head, nil
		case len(b) == r.Size():
			return readLongHead(r, limit, scan)
		}
		if _, err := r.Peek(len(b) + 1); err != nil {
			return "", midway(err)
		}
	}
}

// readLongHead is readHead for a head that is larger than the buffer of r.
func readLongHead(r *bufio.Reader, limit int, scan headScan) (string, error) {
	var head []byte
	for {
		b, _ := r.Peek(r.Buffered())
		had := len(head)
		head = append(head, b...)
		n, err := scan.end(head)
		switch {
		case err != nil:
			return "", err
		case n > limit || n == 0 && len(head) >= limit:
			return "", tooLarge(limit)
		case n > 0:
			r.Discard(n - had) //nolint:errcheck // as many are buffered
			return string(head[:n]), nil
		}
		r.Discard(len(b)) //nolint:errcheck // as many are buffered
		if _, err := r.Peek(1); err != nil {
			return "", midway(err)
		}
	}
}

// startOf looks at the first octet of a head. One empty line before it is
// skipped (RFC 9112 section 2.2); what cannot begin a head is refused before
// anything waits for its end.
func startOf(r *bufio.Reader) error {
	b, _ := r.Peek(1)
	if b[0] == '\r' {
		two, err := r.Peek(2)
		if err != nil {
			return midway(err)
		}
		if two[1] != '\n' {
			return refuse(codes.ProtocolError, "a carriage return before the first line")
		}
		r.Discard(2) //nolint:errcheck // two octets are buffered
		if b, err = r.Peek(1); err != nil {
			return err
		}
	}
	if octets[b[0]]&isToken == 0 {
		return refuse(codes.ProtocolError, "the first line does not begin with a token")
	}
	return nil
}

func tooLarge(limit int) error {
	return refuse(codes.HeadTooLarge, "a head of more than "+strconv.Itoa(limit)+" octets")
}

// midway turns the end of the stream inside of something into an error that
// cannot be taken for a clean end.
func midway(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// cutLine splits s after its first line. The caller has checked that every
// line ends in CRLF.
func cutLine(s string) (line, rest string) {
	i := strings.IndexByte(s, '\n')
	return s[:i-1], s[i+1:]
}

// A fieldError says what to do about a line that is not a field.
type fieldError uint8

const (
	fieldFine fieldError = iota
	fieldDrop            // neither judged nor sent
	fieldBad             // refuse the message
)

// parseField reads one field line (RFC 9112 section 5). raw is the value with
// its blanks.
func parseField(line string) (f Field, raw string, state fieldError) {
	i := 0
	for i < len(line) && octets[line[i]]&isToken != 0 {
		i++
	}
	if i == 0 || i == len(line) || line[i] != ':' {
		return Field{}, "", malformedName(line)
	}
	name, raw := line[:i], line[i+1:]
	value := trimBlank(raw)
	for j := range len(value) {
		if octets[value[j]]&isValue == 0 {
			return Field{}, "", malformedValue(name, value)
		}
	}
	return Field{name, value}, raw, fieldFine
}

// malformedName judges a line whose name is not a token. Blanks and control
// octets around a name that means nothing to anybody on the way make the field
// one to drop; everything else refuses the message. A line that begins with a
// blank is a folded line (RFC 9112 section 5.2) and is never dropped.
func malformedName(line string) fieldError {
	name, value, ok := strings.Cut(line, ":")
	if !ok || name == "" || name[0] == ' ' || name[0] == '\t' {
		return fieldBad
	}
	inner := strings.TrimFunc(name, func(c rune) bool { return c <= ' ' && c != 0 && c != '\r' })
	if !validName(inner) || sensitive(inner) {
		return fieldBad
	}
	if hasBreak(value) {
		return fieldBad
	}
	return fieldDrop
}

// malformedValue judges a field whose value holds control octets. NUL, CR and
// LF are never dropped (RFC 9110 section 5.5).
func malformedValue(name, value string) fieldError {
	if hasBreak(value) || kindOf(name) != plain || sensitive(name) {
		return fieldBad
	}
	return fieldDrop
}

func hasBreak(s string) bool { return strings.ContainsAny(s, "\x00\r\n") }
