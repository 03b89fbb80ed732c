// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// A Record is one line of a journal; exactly one pointer is set.
type Record struct {
	Seq  uint64
	Prev [32]byte // SHA-256 of the line before

	File     *FileHead
	Decision *Decision
	Outcome  *Outcome
	Summary  *Summary
	Gap      *Gap
}

// Time returns when the record was made.
func (r Record) Time() time.Time {
	switch {
	case r.File != nil:
		return r.File.Time
	case r.Decision != nil:
		return r.Decision.Time
	case r.Outcome != nil:
		return r.Outcome.Time
	case r.Summary != nil:
		return r.Summary.Time
	case r.Gap != nil:
		return r.Gap.Time
	}
	return time.Time{}
}

var errLong = fmt.Errorf("line is longer than %d bytes", maxLine)

// parseLine reads one line, without its newline. It refuses other versions and
// unknown kinds, but lets unknown members pass.
func parseLine(line []byte) (Record, error) {
	if len(line) > maxLine {
		return Record{}, errLong
	}
	var frame struct {
		V    int    `json:"v"`
		Kind string `json:"kind"`
		Seq  uint64 `json:"seq"`
		Prev string `json:"prev"`
	}
	if err := json.Unmarshal(line, &frame); err != nil {
		return Record{}, fmt.Errorf("reading record: %w", err)
	}
	if frame.V != Version {
		return Record{}, fmt.Errorf("reading record: version %d, this program knows %d", frame.V, Version)
	}
	rec := Record{Seq: frame.Seq}
	prev, err := hex.DecodeString(frame.Prev)
	if err != nil || len(prev) != len(rec.Prev) {
		return Record{}, errors.New("reading record: prev is not 64 hex digits")
	}
	copy(rec.Prev[:], prev)
	body, err := rec.body(frame.Kind)
	if err != nil {
		return Record{}, err
	}
	if err := json.Unmarshal(line, body); err != nil {
		return Record{}, fmt.Errorf("reading %s record %d: %w", frame.Kind, rec.Seq, err)
	}
	return rec, nil
}

// body sets the pointer for kind and returns it.
func (r *Record) body(kind string) (any, error) {
	switch kind {
	case KindFile:
		r.File = new(FileHead)
		return r.File, nil
	case KindDecision:
		r.Decision = new(Decision)
		return r.Decision, nil
	case KindOutcome:
		r.Outcome = new(Outcome)
		return r.Outcome, nil
	case KindSummary:
		r.Summary = new(Summary)
		return r.Summary, nil
	case KindGap:
		r.Gap = new(Gap)
		return r.Gap, nil
	}
	return nil, fmt.Errorf("reading record: kind %q is unknown", kind)
}

// A lineReader hands out the lines of a journal file and never holds more than
// one line at its bound, whatever the file holds.
type lineReader struct {
	r      *bufio.Reader
	base   int64 // offset in the file at which r began
	offset int64 // in r, behind the last line that was handed out
	buf    []byte
}

func newLineReader(r io.Reader, base int64) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, 64<<10), base: base}
}

// next returns the next line without its newline; the slice is good until the
// next call. whole is false for bytes at the end of the input that no newline
// closes; they are returned once, and offset stays in front of them. Of a line
// beyond maxLine only the first maxLine+1 bytes are returned. The error is
// io.EOF at the end.
func (l *lineReader) next() (line []byte, whole bool, err error) {
	l.buf = l.buf[:0]
	var length int64
	for {
		part, err := l.r.ReadSlice('\n')
		length += int64(len(part))
		l.buf = append(l.buf, part[:min(len(part), maxLine+1-min(len(l.buf), maxLine+1))]...)
		switch {
		case err == nil:
			l.offset += length
			if n := len(l.buf); n > 0 && l.buf[n-1] == '\n' {
				l.buf = l.buf[:n-1]
			}
			return l.buf, true, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && length > 0:
			return l.buf, false, nil
		default:
			return nil, false, err
		}
	}
}
