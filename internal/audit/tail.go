// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// A tail is where a series ends: the place that the next record takes.
type tail struct {
	file string // that holds the last whole record; empty for a new series
	seq  uint64 // of the last whole record
	hash [32]byte
	torn []Torn // what lies behind it
}

// findTail reads the end of a series: the last whole record, and what crashes
// left behind it. A record is whole when its line ends in a newline and parses.
func findTail(dir string, files []fileName) (tail, error) {
	var t tail
	for i := len(files) - 1; i >= 0; i-- {
		name := files[i].String()
		end, seq, hash, size, err := lastRecord(filepath.Join(dir, name))
		if err != nil {
			return tail{}, fmt.Errorf("reading the end of journal %s: %w", name, err)
		}
		if end < size || size == 0 {
			t.torn = append([]Torn{{File: name, From: end, Bytes: size - end}}, t.torn...)
		}
		if end > 0 {
			t.file, t.seq, t.hash = name, seq, hash
			return t, nil
		}
	}
	return t, nil
}

// lastRecord finds the last whole record of a file: the offset behind its
// newline (0 when there is none), its number and its hash.
func lastRecord(path string) (end int64, seq uint64, hash [32]byte, size int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, 0, hash, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, 0, hash, 0, err
	}
	size = info.Size()
	for window := int64(64 << 10); ; window *= 4 {
		start := max(0, size-window)
		buf := make([]byte, size-start)
		if _, err := io.ReadFull(io.NewSectionReader(f, start, size-start), buf); err != nil {
			return 0, 0, hash, size, err
		}
		if n, line, rec, ok := lastLine(buf, start == 0); ok {
			return start + n, rec.Seq, sha256.Sum256(line), size, nil
		}
		if start == 0 {
			return 0, 0, hash, size, nil
		}
	}
}

// lastLine finds the last line of buf that is a whole record and returns the
// offset behind its newline. Unless buf begins at a line's beginning, its first
// line is not considered.
func lastLine(buf []byte, fromStart bool) (end int64, line []byte, rec Record, ok bool) {
	for {
		nl := bytes.LastIndexByte(buf, '\n')
		if nl < 0 {
			return 0, nil, Record{}, false
		}
		begin := bytes.LastIndexByte(buf[:nl], '\n') + 1
		if begin == 0 && !fromStart {
			return 0, nil, Record{}, false
		}
		if rec, err := parseLine(buf[begin:nl]); err == nil {
			return int64(nl) + 1, buf[begin:nl], rec, true
		}
		buf = buf[:begin]
	}
}
