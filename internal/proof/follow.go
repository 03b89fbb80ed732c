// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"bawn/internal/audit"
)

// A position is how far a series was read, and what was found up to there.
type position struct {
	tree  uint64
	first uint64 // number of the tree's first record; 0: it is still to come
	prev  [32]byte
	begin Place

	last     uint64   // number of the last record
	chain    [32]byte // its hash
	from     int64    // its first byte in end.File
	end      Place    // behind it; the offset may be that of a file without a record yet
	holder   string   // the file that holds it, where end.File holds none yet
	frontier Frontier

	file audit.SeriesFile // that is being read; Index 0: none yet
	open []audit.Torn     // ends without a newline of files before, which the next head names
	fell string           // of a new tree: what was found wrong before
}

func (p *position) clone() position {
	c := *p
	c.frontier = p.frontier.clone()
	c.open = slices.Clone(p.open)
	return c
}

// A brokenError says that a journal is not what was written.
type brokenError struct{ why string }

func (e *brokenError) Error() string { return e.why }

func broken(format string, args ...any) error { return &brokenError{fmt.Sprintf(format, args...)} }

// A follower reads one series as it grows and checks its chain.
type follower struct {
	dir    string
	series string
	position
	// record is called for each record, ended behind the last record of each
	// file, before the next is begun. An error ends the step.
	record func() error
	ended  func() error
	limit  func() bool // reports whether to stop for now; nil: never
}

// step reads what is new. It stops at the end of the series, before what is not
// whole yet. The error is a *brokenError where the journal was changed.
func (f *follower) step() error {
	for {
		files, err := audit.SeriesFiles(f.dir)
		if err != nil {
			return err
		}
		next, err := f.next(files[f.series])
		if err != nil {
			return err
		}
		if f.file.Index == 0 {
			if next.Index == 0 {
				return nil
			}
			if err := f.enter(next); err != nil {
				return err
			}
			continue
		}
		bad, size, err := f.read()
		if errors.Is(err, fs.ErrNotExist) {
			if next.Index == 0 {
				return broken("%s, the newest file, is gone", f.file.Name)
			}
			bad, size, err = -1, 1, nil // an old file that was removed: the chain goes on in the next
		}
		if err != nil || f.limit != nil && f.limit() {
			return err
		}
		if next.Index == 0 {
			return nil
		}
		if err := f.leave(next, bad, size); err != nil {
			return err
		}
	}
}

// next returns the file behind the one that is being read.
func (f *follower) next(files []audit.SeriesFile) (audit.SeriesFile, error) {
	for _, x := range files {
		if x.Index <= f.file.Index {
			continue
		}
		if f.file.Index > 0 && x.Index != f.file.Index+1 {
			return x, broken("file number %d is missing", f.file.Index+1)
		}
		return x, nil
	}
	return audit.SeriesFile{}, nil
}

func (f *follower) enter(next audit.SeriesFile) error {
	f.file = next
	f.end = Place{next.Name, 0}
	f.from = -1
	return nil
}

// leave ends a file behind which there is another.
func (f *follower) leave(next audit.SeriesFile, bad, size int64) error {
	if bad >= 0 || size == 0 {
		from := max(bad, 0)
		f.open = append(f.open, audit.Torn{File: f.file.Name, From: from, Bytes: size - from})
	}
	if f.from >= 0 {
		f.holder = f.file.Name
		if f.ended != nil {
			if err := f.ended(); err != nil {
				return err
			}
		}
	}
	return f.enter(next)
}

// read reads the file from where it was left. bad is where what is no record
// begins, -1 where all is; size is that of the file.
func (f *follower) read() (bad, size int64, err error) {
	r, err := openRegular(filepath.Join(f.dir, f.file.Name))
	if errors.Is(err, errNoFile) {
		return -1, 0, broken("%s was put in the place of a file: %v", f.file.Name, err)
	}
	if err != nil {
		return -1, 0, err
	}
	defer r.Close()
	info, err := r.Stat()
	if err != nil {
		return -1, 0, err
	}
	if size = info.Size(); size < f.end.Offset {
		return -1, size, broken("%s was cut: it has %d bytes and had %d", f.file.Name, size, f.end.Offset)
	}
	if err := f.same(r); err != nil {
		return -1, size, err
	}
	was := f.end.Offset
	bad, err = f.lines(io.NewSectionReader(r, was, size-was))
	if err == nil && f.end.Offset > was {
		err = f.settled(r)
	}
	return bad, size, err
}

// errUnsettled says that a write that failed is being taken back.
var errUnsettled = errors.New("the journal is being written")

// settled brings what was read to the disk, so that no loss of power takes back
// what a checkpoint proves, and makes sure that it is still there: a write that
// fails is taken back at once.
func (f *follower) settled(r *os.File) error {
	if err := r.Sync(); err != nil {
		return fmt.Errorf("bringing %s to the disk: %w", f.file.Name, err)
	}
	info, err := r.Stat()
	if err != nil {
		return err
	}
	if info.Size() < f.end.Offset {
		return errUnsettled
	}
	return f.same(r)
}

// same makes sure that the last record is still what it was.
func (f *follower) same(r io.ReaderAt) error {
	if f.from < 0 {
		return nil
	}
	line := make([]byte, f.end.Offset-f.from)
	if _, err := r.ReadAt(line, f.from); err != nil {
		return fmt.Errorf("reading %s: %w", f.file.Name, err)
	}
	line, ok := bytes.CutSuffix(line, []byte("\n"))
	if !ok || sha256.Sum256(line) != f.chain {
		return broken("record %d in %s is not what it was", f.last, Place{f.file.Name, f.from})
	}
	return nil
}

func (f *follower) lines(r io.Reader) (bad int64, err error) {
	bad = -1
	for lines := audit.ReadLines(r, f.end.Offset, false); ; {
		line, err := lines.Next()
		if errors.Is(err, io.EOF) {
			return bad, nil
		}
		if err != nil {
			return bad, fmt.Errorf("reading %s: %w", f.file.Name, err)
		}
		if !line.Record {
			if bad < 0 {
				bad = line.Begin
			}
			if !line.Whole {
				return bad, nil
			}
			continue
		}
		if bad >= 0 {
			return bad, broken("%s is no record, and records are behind it", Place{f.file.Name, bad})
		}
		if err := f.take(line); err != nil {
			return bad, err
		}
		if f.limit != nil && f.limit() {
			return bad, nil
		}
	}
}

// take judges one record and adds it.
func (f *follower) take(line audit.RawLine) error {
	at := Place{f.file.Name, line.Begin}
	if f.first > 0 {
		if line.Seq != f.last+1 {
			return broken("record %d in %s follows record %d", line.Seq, at, f.last)
		}
		if line.Prev != f.chain {
			return broken("record %d in %s does not hold the hash of the record before it", line.Seq, at)
		}
	}
	if err := f.head(line); err != nil {
		return err
	}
	if f.first == 0 {
		f.first, f.prev, f.begin = line.Seq, line.Prev, at
	}
	f.last, f.chain = line.Seq, sha256.Sum256(line.Text)
	f.from, f.end.Offset = line.Begin, line.End
	f.frontier.Add(tlog.RecordHash(line.Text))
	if f.record != nil {
		return f.record()
	}
	return nil
}

// head judges the first record of a file.
func (f *follower) head(line audit.RawLine) error {
	if line.Begin != 0 {
		if line.Head != nil {
			return broken("%s is a file's head, and inside a file", Place{f.file.Name, line.Begin})
		}
		return nil
	}
	h := line.Head
	switch {
	case h == nil:
		return broken("%s does not begin with a head", f.file.Name)
	case h.File != f.file.Name || h.Plane != f.series:
		return broken("%s begins with the head of %q", f.file.Name, h.File)
	case f.first > 0 && f.holder != "" && h.After != f.holder:
		return broken("%s follows %q, and the record before it is in %s", f.file.Name, h.After, f.holder)
	}
	for _, t := range f.open {
		if !slices.Contains(h.Torn, t) {
			return broken("%d bytes in %s are no record, and no torn end that %s knows of", t.Bytes, Place{t.File, t.From}, f.file.Name)
		}
	}
	f.open = nil
	return nil
}

// skip goes to the end of what there is and begins a new tree there: nothing
// that was changed is signed.
func (f *follower) skip(why string) error {
	files, err := audit.SeriesFiles(f.dir)
	if err != nil {
		return err
	}
	was := "the beginning"
	if f.last > 0 {
		was = fmt.Sprintf("record %d in %s", f.last, f.end)
	}
	n := position{tree: f.tree + 1}
	till := "nothing"
	if list := files[f.series]; len(list) > 0 {
		n.file = list[len(list)-1]
		end, err := lastNewline(filepath.Join(f.dir, n.file.Name))
		if err != nil {
			return err
		}
		n.end, n.from = Place{n.file.Name, end}, -1
		till = n.end.String()
	}
	n.fell = fmt.Sprintf("after %s: %s; what follows up to %s is not covered", was, why, till)
	f.position = n
	return nil
}

// lastNewline returns the offset behind the last newline of a file.
func lastNewline(path string) (int64, error) {
	r, err := openRegular(path)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	info, err := r.Stat()
	if err != nil {
		return 0, err
	}
	for end := info.Size(); end > 0; {
		buf := make([]byte, min(end, 64<<10))
		if _, err := r.ReadAt(buf, end-int64(len(buf))); err != nil {
			return 0, err
		}
		end -= int64(len(buf))
		if i := bytes.LastIndexByte(buf, '\n'); i >= 0 {
			return end + int64(i) + 1, nil
		}
	}
	return 0, nil
}
