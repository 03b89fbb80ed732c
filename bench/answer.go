// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

var (
	endOfHead = []byte(headEnd)
	okLine    = []byte("HTTP/1.1 200 ")
	lengthIs  = []byte("\r\ncontent-length: " + strconv.Itoa(bodySize) + "\r\n")
	chunkedIs = []byte("\r\ntransfer-encoding: chunked\r\n")
	lastChunk = []byte("\r\n0\r\n\r\n")
)

// isWhole reports whether b holds a whole answer of 1 KB, and an error when it
// is not the upstream's.
func isWhole(b []byte) (bool, error) {
	i := bytes.Index(b, endOfHead)
	if i < 0 {
		return false, nil
	}
	head, body := b[:i+2], b[i+len(headEnd):]
	if !bytes.HasPrefix(head, okLine) {
		return false, fmt.Errorf("answer: %q", b)
	}
	switch {
	case containsFold(head, lengthIs):
		return len(body) == bodySize, nil
	case containsFold(head, chunkedIs):
		return bytes.HasSuffix(body, lastChunk), nil
	}
	return false, fmt.Errorf("answer: %q", head)
}

// containsFold is bytes.Contains for text whose lower-case form is want.
func containsFold(b, want []byte) bool {
	for i := 0; i+len(want) <= len(b); i++ {
		if b[i] == want[0] && bytes.EqualFold(b[i:i+len(want)], want) {
			return true
		}
	}
	return false
}

// A reader reads answers of any size from a connection.
type reader struct {
	b    *bufio.Reader
	copy []byte
}

func newReader(c io.Reader) *reader {
	return &reader{bufio.NewReaderSize(c, 64<<10), make([]byte, 64<<10)}
}

// An answer is what is to be known of one.
type answer struct {
	status int
	length int64 // of the body
	close  bool
}

// answer reads one and gives its body to w.
func (r *reader) answer(w io.Writer) (answer, error) {
	a, left := answer{}, int64(-1)
	chunked := false
	for n := 0; ; n++ {
		line, err := r.b.ReadSlice('\n')
		if err != nil {
			return a, fmt.Errorf("reading an answer's head: %w", err)
		}
		text := strings.TrimRight(string(line), "\r\n")
		if n == 0 {
			if len(text) < 12 || !strings.HasPrefix(text, "HTTP/1.") {
				return a, fmt.Errorf("answer: %q", text)
			}
			if a.status, err = strconv.Atoi(text[9:12]); err != nil {
				return a, fmt.Errorf("answer: %q", text)
			}
			continue
		}
		if text == "" {
			break
		}
		name, value, _ := strings.Cut(text, ":")
		switch value = strings.TrimSpace(value); http.CanonicalHeaderKey(name) {
		case "Content-Length":
			if left, err = strconv.ParseInt(value, 10, 64); err != nil {
				return a, fmt.Errorf("answer: %q", text)
			}
		case "Transfer-Encoding":
			chunked = strings.EqualFold(value, "chunked")
		case "Connection":
			a.close = strings.EqualFold(value, "close")
		}
	}
	if a.status < 200 { // an interim one
		return r.answer(w)
	}
	var err error
	switch {
	case chunked:
		a.length, err = r.chunks(w)
	case left >= 0:
		a.length, err = r.copyN(w, left)
	default:
		err = fmt.Errorf("answer %d without a length", a.status)
	}
	return a, err
}

func (r *reader) chunks(w io.Writer) (total int64, err error) {
	for {
		line, err := r.b.ReadSlice('\n')
		if err != nil {
			return total, err
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(line)), 16, 64)
		if err != nil {
			return total, fmt.Errorf("chunk: %q", line)
		}
		got, err := r.copyN(w, n)
		total += got
		if err != nil {
			return total, err
		}
		if _, err := r.b.Discard(2); err != nil || n == 0 {
			return total, err
		}
	}
}

func (r *reader) copyN(w io.Writer, n int64) (int64, error) {
	left := n
	for left > 0 {
		got, err := r.b.Read(r.copy[:min(left, int64(len(r.copy)))])
		left -= int64(got)
		if _, werr := w.Write(r.copy[:got]); werr != nil {
			return n - left, werr
		}
		if err != nil {
			return n - left, err
		}
	}
	return n, nil
}
