// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// A SeriesFile is one file of a series.
type SeriesFile struct {
	Name  string
	Plane string
	Index uint64 // grows by one from file to file
}

// ErrTwoFiles says that two files of a series have one number, which no journal
// makes.
var ErrTwoFiles = errors.New("two files of a series have one number")

// SeriesFiles returns the files of each plane's series in dir, oldest first.
// Other files are left out. The error is [ErrTwoFiles] where that is so.
func SeriesFiles(dir string) (map[string][]SeriesFile, error) {
	series, twice, err := readSeries(dir)
	if err != nil {
		return nil, err
	}
	if twice != nil {
		return nil, fmt.Errorf("%w: %s and %s in %s", ErrTwoFiles, twice[0], twice[1], dir)
	}
	out := make(map[string][]SeriesFile, len(series))
	for plane, files := range series {
		for _, f := range files {
			out[plane] = append(out[plane], SeriesFile{f.String(), plane, f.index})
		}
	}
	return out, nil
}

// ParseFileName takes the name of a journal file apart.
func ParseFileName(name string) (SeriesFile, bool) {
	f, ok := parseFileName(name)
	return SeriesFile{f.String(), f.plane, f.index}, ok
}

// A RawLine is one line of a journal file, for those who check it.
type RawLine struct {
	Text   []byte // without the newline; good until the next call
	Begin  int64  // offset of its first byte
	End    int64  // behind its newline
	Whole  bool   // false: the end of the file, which no newline closes
	Record bool   // it has its place in a series: Seq and Prev are set
	Seq    uint64
	Prev   [32]byte  // SHA-256 of the line before
	Head   *FileHead // of the first record of a file
}

// RawLines reads a journal file line by line.
type RawLines struct {
	r      *lineReader
	strict bool
}

// ReadLines reads r, which begins at offset base of the file. With strict each
// line is read in full to see whether it is a record; without, a line that
// begins and ends as the journal writes them is taken for one.
func ReadLines(r io.Reader, base int64, strict bool) *RawLines {
	return &RawLines{newLineReader(r, base), strict}
}

// Next returns the next line; io.EOF at the end.
func (l *RawLines) Next() (RawLine, error) {
	begin := l.r.base + l.r.offset
	text, whole, err := l.r.next()
	if err != nil {
		return RawLine{}, err
	}
	line := RawLine{Text: text, Begin: begin, End: l.r.base + l.r.offset, Whole: whole}
	if !whole {
		return line, nil
	}
	var quick bool
	line.Seq, line.Prev, quick = placeOf(text)
	if quick && !l.strict && !bytes.HasPrefix(text, headPrefix) {
		line.Record = true
		return line, nil
	}
	rec, err := parseLine(text)
	if err != nil {
		return line, nil
	}
	line.Record, line.Seq, line.Prev, line.Head = true, rec.Seq, rec.Prev, rec.File
	return line, nil
}

var (
	headPrefix = []byte(`{"v":1,"kind":"file"`)
	seqKey     = []byte(`,"seq":`)
	prevKey    = []byte(`,"prev":"`)
)

// placeOf reads the place of a line that is as the journal writes it, where the
// place comes last.
func placeOf(line []byte) (seq uint64, prev [32]byte, ok bool) {
	rest, ok := bytes.CutSuffix(line, []byte(`"}`))
	n := len(rest) - 2*len(prev)
	if !ok || n < 0 || !bytes.HasPrefix(line, kindPrefix) || len(line) > maxLine {
		return 0, prev, false
	}
	if _, err := hex.Decode(prev[:], rest[n:]); err != nil {
		return 0, prev, false
	}
	rest, ok = bytes.CutSuffix(rest[:n], prevKey)
	at := bytes.LastIndex(rest, seqKey)
	if !ok || at < 0 {
		return 0, prev, false
	}
	digits := string(rest[at+len(seqKey):])
	seq, err := strconv.ParseUint(digits, 10, 64)
	return seq, prev, err == nil && strconv.FormatUint(seq, 10) == digits
}

// ErrNoRecord is the error of [ParseRecord] for a line that is no record.
var ErrNoRecord = errors.New("line is no record")

// ParseRecord reads one line, without its newline.
func ParseRecord(line []byte) (Record, error) {
	rec, err := parseLine(line)
	if err != nil {
		return rec, errors.Join(ErrNoRecord, err)
	}
	return rec, nil
}
