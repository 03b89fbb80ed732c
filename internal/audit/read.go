// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// A Position is a place in a series, behind a record that was read. The zero
// Position is in front of the oldest.
type Position struct {
	File   string
	Offset int64    // in File, behind the newline
	Seq    uint64   // of the last record; 0: none yet
	Hash   [32]byte // of its line
}

// A Line is what a [Reader] hands out: a record, or a damage. Both may be set,
// where a record stands in a place that it should not.
type Line struct {
	Record
	Damage *Damage
	Back   bool     // the records from this number on were read before, and were taken back since
	Next   Position // behind it
}

// A Reader reads one series from a position on, and goes on when more has been
// written. What is damaged it hands out as such, and reads on. It is for one
// goroutine.
type Reader struct {
	s      stream
	pos    Position
	broken bool // damage was read since the last record, so that it cannot be linked
	ready  bool
}

// Series names the series that are in dir.
func Series(dir string) ([]string, error) {
	series, _, err := readSeries(dir)
	return sortedKeys(series), err
}

// OpenReader returns a reader of the series of plane in dir, from a position on
// that another reader has handed out. It opens nothing yet.
func OpenReader(dir, plane string, from Position) *Reader {
	return &Reader{s: stream{dir: dir, plane: plane, hashes: true}, pos: from}
}

// Position is behind the last line that Next has returned.
func (r *Reader) Position() Position { return r.pos }

// Close closes the file that is open. Next opens it again.
func (r *Reader) Close() {
	r.s.close()
	r.s, r.ready = stream{dir: r.s.dir, plane: r.s.plane, hashes: true}, false
}

// Next returns the next line; io.EOF where there is none yet. Another error is
// of the file system: a later call tries again from the same position.
func (r *Reader) Next() (Line, error) {
	line, err := r.next()
	if err != nil && !errors.Is(err, io.EOF) {
		r.Close()
	}
	return line, err
}

func (r *Reader) next() (Line, error) {
	if !r.ready {
		damage, err := r.resume()
		if err != nil {
			return Line{}, err
		}
		r.ready = true
		if damage != nil {
			r.broken = true
			return Line{Damage: damage, Next: r.pos}, nil
		}
	}
	it, err := r.s.next()
	if err != nil {
		return Line{}, err
	}
	return r.line(it), nil
}

// resume opens the file of the position. Where that is gone or shorter now,
// reading goes on behind, and the damage says so.
func (r *Reader) resume() (*Damage, error) {
	if r.pos.File == "" {
		return nil, nil
	}
	name, ok := parseFileName(r.pos.File)
	if !ok || name.plane != r.s.plane {
		return nil, fmt.Errorf("reading journal of %s: %q is no file of it", r.s.plane, r.pos.File)
	}
	info, err := os.Stat(filepath.Join(r.s.dir, r.pos.File))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// Files that were indexed may be deleted: the numbers of the records
		// tell whether anything is missing.
		r.s.at = name.index
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading journal: %w", err)
	}
	r.s.ahead = []fileName{name}
	if size := info.Size(); size < r.pos.Offset {
		short := &Damage{File: r.pos.File, Offset: size, Bytes: 0, Error: fmt.Sprintf("the file ends here, and was read up to byte %d before", r.pos.Offset)}
		r.pos.Offset = size
		return short, r.s.openNext(size)
	}
	return nil, r.s.openNext(r.pos.Offset)
}

// line brings the position behind an item, and finds out whether it follows on
// the record before.
func (r *Reader) line(it item) Line {
	begin := r.pos
	r.pos.File, r.pos.Offset = r.s.name, r.s.offset
	if it.damage != nil {
		r.broken = true
		return Line{Damage: it.damage, Next: r.pos}
	}
	line := Line{Record: it.Record}
	if begin.Seq != 0 {
		line.Damage, line.Back = r.linked(it, begin), it.Seq <= begin.Seq
	}
	r.pos.Seq, r.pos.Hash, r.broken = it.Seq, it.hash, false
	line.Next = r.pos
	return line
}

// linked compares a record with the one before it. The journal takes back what
// it could not write to the end, so a number that comes again is no damage.
func (r *Reader) linked(it item, before Position) *Damage {
	what := ""
	switch {
	case it.Seq <= before.Seq && !r.broken:
		return nil
	case it.Seq <= before.Seq:
		what = fmt.Sprintf("record %d follows record %d", it.Seq, before.Seq)
	case it.Seq > before.Seq+1 && !r.broken:
		what = fmt.Sprintf("records %d to %d are missing", before.Seq+1, it.Seq-1)
	case it.Seq == before.Seq+1 && it.Prev != before.Hash:
		what = fmt.Sprintf("record %d does not hold the hash of the record before it", it.Seq)
	default:
		return nil
	}
	return &Damage{File: r.pos.File, Offset: r.pos.Offset, Error: what}
}

// Behind returns how many bytes of the series lie behind a position.
func Behind(dir, plane string, p Position) (int64, error) {
	series, _, err := readSeries(dir)
	if err != nil {
		return 0, err
	}
	at, _ := parseFileName(p.File)
	var bytes int64
	for _, name := range series[plane] {
		if name.index < at.index {
			continue
		}
		info, err := os.Stat(filepath.Join(dir, name.String()))
		if err != nil {
			continue // it was deleted meanwhile
		}
		if bytes += info.Size(); name.index == at.index {
			bytes -= min(p.Offset, info.Size())
		}
	}
	return bytes, nil
}
