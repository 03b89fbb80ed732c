// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bufio"
	"bytes"
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
	Dial     *Dial
	Summary  *Summary
	Gap      *Gap
	Act      *Act
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
	case r.Dial != nil:
		return r.Dial.Time
	case r.Summary != nil:
		return r.Summary.Time
	case r.Gap != nil:
		return r.Gap.Time
	case r.Act != nil:
		return r.Act.Time
	}
	return time.Time{}
}

var errLong = fmt.Errorf("line is longer than %d bytes", maxLine)

// A frame is what every line has. The embedding of a frame and a body reads
// both at once.
type frame struct {
	V    int    `json:"v"`
	Kind string `json:"kind"`
	Prev string `json:"prev"`
}

type (
	fileLine struct {
		frame
		FileHead
	}
	decisionLine struct {
		frame
		Decision
	}
	outcomeLine struct {
		frame
		Outcome
	}
	dialLine struct {
		frame
		Dial
	}
	summaryLine struct {
		frame
		Summary
	}
	gapLine struct {
		frame
		Gap
	}
	actLine struct {
		frame
		Act
	}
)

// parseLine reads one line, without its newline. It refuses other versions and
// unknown kinds, but lets unknown members pass.
func parseLine(line []byte) (Record, error) {
	if len(line) > maxLine {
		return Record{}, errLong
	}
	if rec, ok := parseFast(line); ok {
		return rec, nil
	}
	return parseSlow(line)
}

func parseSlow(line []byte) (Record, error) {
	kind, err := kindOf(line)
	if err != nil {
		return Record{}, err
	}
	rec, f, err := parseBody(kind, line)
	switch {
	case err != nil:
		return Record{}, fmt.Errorf("reading %s record: %w", kind, err)
	case f.V != Version:
		return Record{}, fmt.Errorf("reading record: version %d, this program knows %d", f.V, Version)
	case f.Kind != kind:
		return Record{}, errors.New("reading record: two kinds")
	}
	prev, err := hex.DecodeString(f.Prev)
	if err != nil || len(prev) != len(rec.Prev) {
		return Record{}, errors.New("reading record: prev is not 64 hex digits")
	}
	copy(rec.Prev[:], prev)
	return rec, nil
}

// kindPrefix is how the lines that the journal writes begin.
var kindPrefix = []byte(`{"v":1,"kind":"`)

// kindOf finds out what to read the line into: by its beginning, if it is as
// the journal writes it, or by reading it once for that alone.
func kindOf(line []byte) (string, error) {
	if rest, ok := bytes.CutPrefix(line, kindPrefix); ok {
		if end := bytes.IndexByte(rest, '"'); end > 0 && bytes.IndexByte(rest[:end], '\\') < 0 {
			return string(rest[:end]), nil
		}
	}
	var f frame
	if err := json.Unmarshal(line, &f); err != nil {
		return "", fmt.Errorf("reading record: %w", err)
	}
	return f.Kind, nil
}

func parseBody(kind string, line []byte) (Record, frame, error) {
	switch kind {
	case KindFile:
		var l fileLine
		err := json.Unmarshal(line, &l)
		return Record{Seq: l.Seq, File: &l.FileHead}, l.frame, err
	case KindDecision:
		var l decisionLine
		err := json.Unmarshal(line, &l)
		return Record{Seq: l.Seq, Decision: &l.Decision}, l.frame, err
	case KindOutcome:
		var l outcomeLine
		err := json.Unmarshal(line, &l)
		return Record{Seq: l.Seq, Outcome: &l.Outcome}, l.frame, err
	case KindDial:
		var l dialLine
		err := json.Unmarshal(line, &l)
		return Record{Seq: l.Seq, Dial: &l.Dial}, l.frame, err
	case KindSummary:
		var l summaryLine
		err := json.Unmarshal(line, &l)
		return Record{Seq: l.Seq, Summary: &l.Summary}, l.frame, err
	case KindGap:
		var l gapLine
		err := json.Unmarshal(line, &l)
		return Record{Seq: l.Seq, Gap: &l.Gap}, l.frame, err
	case KindAct:
		var l actLine
		err := json.Unmarshal(line, &l)
		return Record{Seq: l.Seq, Act: &l.Act}, l.frame, err
	}
	return Record{}, frame{}, errors.New("this program does not know that kind")
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
