// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// A Damage is a line that ends in a newline and yet is no record, inside a
// file. Torn ends are not damage.
type Damage struct {
	File   string `json:"file"`
	Offset int64  `json:"offset"`
	Bytes  int64  `json:"bytes"`
	Error  string `json:"error"`
}

// An item is what a stream hands out: a record or a damaged line.
type item struct {
	Record
	damage *Damage
	hash   [32]byte // of the line, where the stream takes hashes
}

// A stream reads one series from oldest to newest and can go on when more has
// been written.
type stream struct {
	dir   string
	plane string
	since time.Time // files that end before are skipped
	// window, where it is not 0, is how many bytes at the end of the series to
	// read. partial says that there were more, from is the time of the first
	// record then.
	window  int64
	partial bool
	from    time.Time
	needles [][]byte // lines without one of these are passed over
	hashes  bool     // are wanted

	ahead  []fileName // that are known and were not opened yet
	at     uint64     // index of the open file, or of the last one that was read
	name   string
	f      *os.File
	lines  *lineReader
	offset int64 // behind the last whole line
}

// next returns the next record. At the end of the series it returns io.EOF;
// a later call goes on from there. The end of a file that no newline closes is
// left alone: it is still being written, or torn.
func (s *stream) next() (item, error) {
	for {
		if s.f == nil {
			if err := s.open(); err != nil {
				return item{}, err
			}
		}
		line, whole, err := s.lines.next()
		if err == nil && whole {
			if it, ok := s.item(line); ok {
				return it, nil
			}
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return item{}, fmt.Errorf("reading journal %s: %w", s.name, err)
		}
		more, err := s.atEnd()
		if err != nil {
			return item{}, err
		}
		if !more {
			return item{}, io.EOF
		}
	}
}

func (s *stream) item(line []byte) (_ item, wanted bool) {
	begin := s.offset
	s.offset = s.lines.base + s.lines.offset
	first := s.partial && s.from.IsZero()
	for _, n := range s.needles {
		if !first && !bytes.Contains(line, n) {
			return item{}, false
		}
	}
	rec, err := parseLine(line)
	if err != nil {
		return item{damage: &Damage{s.name, begin, s.offset - begin, err.Error()}}, true
	}
	if first {
		s.from = rec.Time()
	}
	it := item{Record: rec}
	if s.hashes {
		it.hash = sha256.Sum256(line)
	}
	return it, true
}

// atEnd is called at the end of the open file. It reports whether to read on:
// in this file, since a newer one shows that it is complete now, or in that.
func (s *stream) atEnd() (more bool, err error) {
	newer, err := s.newer()
	if err != nil {
		return false, err
	}
	info, err := s.f.Stat()
	if err != nil {
		return false, fmt.Errorf("reading journal %s: %w", s.name, err)
	}
	if info.Size() < s.offset {
		s.offset = info.Size() // a failed write was taken back
	}
	grown := info.Size() > s.offset && !s.unclosed(info.Size())
	switch {
	case grown:
		return true, s.rewind()
	case newer:
		s.close()
		return true, nil
	default:
		return false, s.rewind()
	}
}

// unclosed reports whether no newline lies between the offset and size.
func (s *stream) unclosed(size int64) bool {
	l := newLineReader(io.NewSectionReader(s.f, s.offset, size-s.offset), 0)
	_, whole, err := l.next()
	return err != nil || !whole
}

// rewind begins to read at the offset.
func (s *stream) rewind() error {
	if _, err := s.f.Seek(s.offset, io.SeekStart); err != nil {
		return fmt.Errorf("reading journal %s: %w", s.name, err)
	}
	s.lines = newLineReader(s.f, s.offset)
	return nil
}

// newer reports whether there is a file behind the open one.
func (s *stream) newer() (bool, error) {
	if len(s.ahead) == 0 {
		if err := s.list(); err != nil {
			return false, err
		}
	}
	return len(s.ahead) > 0, nil
}

// list looks for files behind the last one that was opened.
func (s *stream) list() error {
	series, _, err := readSeries(s.dir)
	if err != nil {
		return err
	}
	s.ahead = series[s.plane]
	for len(s.ahead) > 0 && s.ahead[0].index <= s.at {
		s.ahead = s.ahead[1:]
	}
	return nil
}

// open opens the file after the last one that was read; io.EOF when there is
// none yet.
func (s *stream) open() error {
	newer, err := s.newer()
	if err != nil {
		return err
	}
	if !newer {
		return io.EOF
	}
	if s.at == 0 && s.window > 0 {
		return s.openWindow()
	}
	for s.old(s.ahead[1:]) {
		s.ahead = s.ahead[1:]
	}
	return s.openNext(0)
}

// openNext opens the next file at an offset.
func (s *stream) openNext(offset int64) error {
	name := s.ahead[0]
	f, err := os.Open(filepath.Join(s.dir, name.String()))
	if err != nil {
		return fmt.Errorf("opening journal: %w", err)
	}
	s.ahead = s.ahead[1:]
	s.f, s.at, s.name, s.offset = f, name.index, name.String(), offset
	return s.rewind()
}

// openWindow opens the file that the window begins in, at the first line that
// begins in the window.
func (s *stream) openWindow() error {
	left := s.window
	for i := len(s.ahead) - 1; ; i-- {
		info, err := os.Stat(filepath.Join(s.dir, s.ahead[i].String()))
		if err != nil {
			return fmt.Errorf("opening journal: %w", err)
		}
		inside := info.Size() > left
		if !inside && i > 0 && !s.old(s.ahead[i:]) {
			left -= info.Size()
			continue
		}
		s.ahead = s.ahead[i:]
		if !inside {
			return s.openNext(0)
		}
		s.partial = true
		return s.openInside(info.Size() - left)
	}
}

// openInside opens the next file behind the first newline from offset on.
func (s *stream) openInside(offset int64) error {
	if err := s.openNext(offset); err != nil {
		return err
	}
	_, whole, err := s.lines.next()
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading journal %s: %w", s.name, err)
	}
	if whole {
		s.offset += s.lines.offset
	}
	return s.rewind()
}

// clockSlack is how far back a clock may have been set between two files
// without records being skipped that are asked for.
const clockSlack = time.Minute

// old reports whether the first of the later files began before since, so that
// nothing in the file before it is asked for.
func (s *stream) old(later []fileName) bool {
	if s.since.IsZero() || len(later) == 0 {
		return false
	}
	f, err := os.Open(filepath.Join(s.dir, later[0].String()))
	if err != nil {
		return false
	}
	defer f.Close()
	line, whole, err := newLineReader(f, 0).next()
	if err != nil || !whole {
		return false
	}
	rec, err := parseLine(line)
	return err == nil && rec.Time().Before(s.since.Add(-clockSlack))
}

func (s *stream) close() {
	if s.f != nil {
		s.f.Close()
		s.f = nil
	}
}
