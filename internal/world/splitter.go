// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"strconv"
	"strings"
)

type splitState int

const (
	inHead splitState = iota
	inBody
	inChunkSize
	inChunkData
	inTrailer
	lost // no HTTP: only the stream is kept
)

// splitter cuts the bytes of a connection into requests. It is lenient and
// only keeps the record: the server behind it judges the same bytes itself.
type splitter struct {
	rec    *recorder
	stream *Stream
	epoch  int // of the recorder, when stream began

	state splitState
	line  []byte // head, chunk size line or trailer line so far
	left  int64  // bytes of body or chunk to come
	req   *Received
	sum   hash.Hash
}

func (s *splitter) write(p []byte) {
	s.rec.mu.Lock()
	defer s.rec.mu.Unlock()
	s.stream, s.epoch = s.rec.current(s.stream, s.epoch)
	if room := maxStream - len(s.stream.Bytes); room > 0 {
		s.stream.Bytes = append(s.stream.Bytes, p[:min(len(p), room)]...)
	}
	for len(p) > 0 && s.state != lost {
		p = s.step(p)
	}
}

// step takes one piece off p and returns the rest.
func (s *splitter) step(p []byte) []byte {
	switch s.state {
	case inHead:
		return s.until(p, "\r\n\r\n", s.head)
	case inBody:
		p = s.body(p)
		if s.left == 0 {
			s.state = inHead
		}
		return p
	case inChunkSize:
		return s.until(p, "\r\n", s.chunkSize)
	case inChunkData:
		p = s.body(p)
		if s.left == 0 {
			s.state = inChunkSize
		}
		return p
	case inTrailer:
		return s.until(p, "\r\n", func(line []byte) {
			if len(line) == 2 {
				s.state = inHead
			}
		})
	}
	return nil
}

// until collects bytes up to the end mark and hands them, mark included, to f.
func (s *splitter) until(p []byte, mark string, f func([]byte)) []byte {
	for i, b := range p {
		s.line = append(s.line, b)
		if bytes.HasSuffix(s.line, []byte(mark)) {
			whole := s.line
			s.line = nil
			f(whole)
			return p[i+1:]
		}
	}
	if len(s.line) > maxStream {
		s.state = lost
	}
	return nil
}

func (s *splitter) head(head []byte) {
	s.req = &Received{
		Server: s.stream.Server, Client: s.stream.Client, SNI: s.stream.SNI,
		Conn: s.stream.Conn, Head: head, Proto: "HTTP/1.1",
	}
	s.sum, s.left = sha256.New(), 0
	s.req.SHA256 = hex.EncodeToString(s.sum.Sum(nil))
	chunked := false
	for line := range strings.SplitSeq(string(head), "\r\n") {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch strings.ToLower(name) {
		case "host":
			s.req.Host = strings.TrimSuffix(strings.TrimSuffix(value, ":443"), ":80")
		case "content-length":
			s.left, _ = strconv.ParseInt(value, 10, 64)
		case "transfer-encoding":
			chunked = strings.EqualFold(value, "chunked")
		}
	}
	s.rec.requests = append(s.rec.requests, s.req)
	switch {
	case chunked:
		s.state = inChunkSize
	case s.left > 0:
		s.state = inBody
	}
}

func (s *splitter) body(p []byte) []byte {
	if s.state == inChunkData && s.left <= 2 { // the line end after the data
		n := min(s.left, int64(len(p)))
		s.left -= n
		return p[n:]
	}
	n := s.left
	if s.state == inChunkData {
		n -= 2
	}
	n = min(n, int64(len(p)))
	s.left -= n
	s.sum.Write(p[:n])
	s.req.Body += n
	s.req.SHA256 = hex.EncodeToString(s.sum.Sum(nil))
	return p[n:]
}

func (s *splitter) chunkSize(line []byte) {
	text, _, _ := strings.Cut(strings.TrimSpace(string(line)), ";")
	n, err := strconv.ParseInt(text, 16, 64)
	switch {
	case err != nil:
		s.state = lost
	case n == 0:
		s.state = inTrailer
	default:
		s.left = n + 2
		s.state = inChunkData
	}
}
