// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"bawn/internal/audit"
)

// A Layout says where in a directory that is checked things are: the state
// directory of a host, or what was exported from one.
type Layout struct {
	Dir string
	// Export says that it is what was exported: it ends when that was made, and an
	// anchor of later is not a sign that anything was taken back.
	Export bool
}

// Host reports whether a directory holds what only a host has, and no export.
func (l Layout) Host() bool {
	for _, name := range []string{"audit.key", "bawn.db", "index.db"} {
		if _, err := os.Lstat(filepath.Join(l.Dir, "admin", name)); !errors.Is(err, fs.ErrNotExist) {
			return true // there, or not to be seen
		}
	}
	return false
}

// Checkpoints is the directory of books.
func (l Layout) Checkpoints() string { return filepath.Join(l.Dir, "admin", "checkpoints") }

// Key is the file of the key's public half.
func (l Layout) Key() string { return filepath.Join(l.Dir, "public", "audit.pub") }

// Journal is the directory of a process's journals.
func (l Layout) Journal(process string) string { return filepath.Join(l.Dir, process, "journal") }

// Journals are those that there are.
func (l Layout) Journals() ([]string, error) {
	for _, process := range []string{"admin", "proxy"} {
		if _, err := os.Lstat(l.Journal(process)); errors.Is(err, fs.ErrPermission) {
			return nil, err // a pattern would pass over it
		}
	}
	dirs, err := filepath.Glob(filepath.Join(l.Dir, "*", "journal"))
	if err != nil || len(dirs) == 0 {
		if _, err := os.Stat(l.Dir); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%s holds no journal: neither a state directory nor an export", l.Dir)
	}
	// What is below agents is theirs, whatever its name.
	dirs = slices.DeleteFunc(dirs, func(d string) bool { return filepath.Base(filepath.Dir(d)) == "agents" })
	for _, d := range dirs {
		if _, err := os.ReadDir(d); err != nil {
			return nil, err
		}
	}
	return dirs, nil
}

// Verify checks the journals of a layout by their checkpoints and these by the
// key. Anchors are checkpoints that were kept elsewhere. An error is something
// that could not be read; what is wrong with what was read is in the report.
func Verify(l Layout, key Key, anchors []Note) (Report, error) {
	r := Report{Key: key.String()}
	dirs, err := l.Journals()
	if err != nil {
		return r, fmt.Errorf("checking journals: %w", err)
	}
	books, err := listBooks(l.Checkpoints())
	if errors.Is(err, fs.ErrNotExist) {
		books, err = nil, nil // then nothing is covered, which is a fault
	}
	if err != nil {
		return r, err
	}
	seen := map[string]bool{}
	for _, dir := range dirs {
		files, err := audit.SeriesFiles(dir)
		if errors.Is(err, audit.ErrTwoFiles) {
			r.Faults = append(r.Faults, Fault{Kind: FaultFile, Place: Place{File: dir}, Detail: err.Error()})
			for series := range books {
				seen[series] = true // it may be one of these
			}
			continue
		}
		if err != nil {
			return r, err
		}
		for _, series := range slices.Sorted(maps.Keys(files)) {
			if seen[series] {
				r.Faults = append(r.Faults, Fault{Kind: FaultFile, Place: Place{File: dir}, Detail: "series " + series + " is there twice"})
				continue
			}
			seen[series] = true
			v := newVerifier(dir, series, key, anchors)
			v.export = l.Export
			if err := v.run(l.Checkpoints(), books[series], files[series]); err != nil {
				return r, err
			}
			r.Series = append(r.Series, v.report)
		}
	}
	for _, series := range slices.Sorted(maps.Keys(books)) {
		if !seen[series] {
			r.Faults = append(r.Faults, Fault{Kind: FaultFile, Place: Place{File: books[series][0].name}, Detail: "series " + series + " has checkpoints and no journal"})
		}
	}
	for _, a := range anchors {
		switch {
		case seen[a.Series]:
		case l.Export:
			r.NotCovered = append(r.NotCovered, NotCovered{Series: a.Series, Anchor: a.Last(), Signed: a.Time})
		default:
			r.Faults = append(r.Faults, Fault{Kind: FaultRollback, Record: a.Last(), To: a.Last(), Detail: "there is an anchor of series " + a.Series + ", and no such journal"})
		}
	}
	return r, nil
}

// A verifier walks one series and its book side by side.
type verifier struct {
	dir    string
	key    Key
	export bool
	report SeriesReport

	next    func() (Note, bool) // of the book
	note    *Note               // the next that was not met; nil: none
	newest  *Note               // that was read
	proven  uint64              // records up to this one are as a checkpoint says, or faults say that they are not
	segment Place               // of the first record behind
	seg     bool

	anchors map[uint64][]Note // by their last record
	met     map[[32]byte]bool // anchors that were found, by their note

	rooted   bool // frontier is that of all records up to the last
	tree     uint64
	frontier Frontier
	first    uint64

	hash   [32]byte // of the record before
	at     Place    // of it
	holder string
	open   []audit.Torn
}

func newVerifier(dir, series string, key Key, anchors []Note) *verifier {
	v := &verifier{dir: dir, key: key, report: SeriesReport{Series: series}, anchors: map[uint64][]Note{}, met: map[[32]byte]bool{}}
	for _, a := range anchors {
		if a.Series == series {
			v.anchors[a.Last()] = append(v.anchors[a.Last()], a)
		}
	}
	return v
}

// mostFaults bounds what is listed of one series; what is beyond is counted.
const mostFaults = 1000

func (v *verifier) fault(f Fault) {
	list := v.report.Faults
	if n := len(list); n > 0 && extends(&list[n-1], &f) {
		list[n-1].To = f.To
		return
	}
	if len(list) < mostFaults {
		v.report.Faults = append(list, f)
	}
}

// extends reports whether f goes on where the last fault ended.
func extends(last, f *Fault) bool {
	return last.Kind == f.Kind && last.File == f.File && f.Record > 0 && (f.Kind == FaultChanged || f.Kind == FaultOrder) &&
		f.Record <= last.To+1 && f.To >= last.To
}

func (v *verifier) run(bookDir string, books []bookFile, files []audit.SeriesFile) error {
	var failed error
	next, stop := iter.Pull(iter.Seq[Note](notesOf(bookDir, books, v.key, v.fault, &failed)))
	defer stop()
	v.next = next
	v.advance()
	v.report.Files = len(files)
	for i, f := range files {
		if i > 0 && f.Index != files[i-1].Index+1 {
			v.fault(Fault{Kind: FaultFile, Place: Place{File: f.Name}, Detail: fmt.Sprintf("file number %d is missing", files[i-1].Index+1)})
		}
		if err := v.file(f.Name); err != nil {
			if i == 0 && errors.Is(err, fs.ErrNotExist) {
				continue // retention was quicker
			}
			return fmt.Errorf("checking journal %s: %w", f.Name, err)
		}
	}
	v.end()
	return failed
}

// advance goes to the next checkpoint of the book.
func (v *verifier) advance() {
	n, ok := v.next()
	if !ok {
		v.note = nil
		return
	}
	v.report.Checkpoints++
	if n.Break != "" {
		v.fault(Fault{Kind: FaultBreak, Place: n.At, Record: n.First, To: n.First, Detail: "admin found the journal changed " + n.Break})
	}
	for _, a := range v.anchors[n.Last()] {
		if a.Tree == n.Tree && a.Size == n.Size && a.Root == n.Root && a.Chain == n.Chain {
			v.met[a.sum()] = true
		}
	}
	v.note, v.newest = &n, &n
}

func (v *verifier) file(name string) error {
	f, err := openRegular(filepath.Join(v.dir, name))
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	size, bad, first := info.Size(), int64(-1), true
	for lines := audit.ReadLines(f, 0, true); ; {
		line, err := lines.Next()
		if errors.Is(err, io.EOF) || err == nil && line.Begin >= size {
			break // what is appended meanwhile is left to the next time
		}
		if err != nil {
			return err
		}
		if !line.Record {
			if bad < 0 {
				bad = line.Begin
			}
			if !line.Whole {
				break
			}
			continue
		}
		if bad >= 0 {
			v.fault(Fault{Kind: FaultNoRecord, Place: Place{name, bad}, Record: v.report.Last + 1, To: v.report.Last + 1, Detail: "bytes that are no record, with records behind them"})
			v.rooted, bad = false, -1
		}
		v.record(Place{name, line.Begin}, line, first)
		first = false
	}
	if bad >= 0 || size == 0 {
		v.open = append(v.open, audit.Torn{File: name, From: max(bad, 0), Bytes: size - max(bad, 0)})
	}
	return nil
}

func (v *verifier) record(at Place, line audit.RawLine, first bool) {
	r := &v.report
	if first {
		v.head(at.File, line.Head)
	} else if line.Head != nil {
		v.fault(Fault{Kind: FaultFile, Place: at, Record: line.Seq, To: line.Seq, Detail: "a file's head inside a file"})
	}
	r.Records++
	hash := sha256.Sum256(line.Text)
	if r.Records == 1 {
		v.oldest(at, line)
	} else if !v.linked(at, line) {
		return // it stands where it does not belong, and says nothing of its place
	}
	if !v.seg {
		v.segment, v.seg = at, true
	}
	v.grow(line)
	r.Last, v.hash, v.at, v.holder = line.Seq, hash, at, at.File
	v.meet(at, line.End)
}

// linked judges a record by the one before it. It reports whether the series
// goes on from it.
func (v *verifier) linked(at Place, line audit.RawLine) bool {
	last := v.report.Last
	switch {
	case line.Seq <= last:
		v.fault(Fault{Kind: FaultOrder, Place: at, Record: line.Seq, To: line.Seq, Detail: fmt.Sprintf("record %d stands behind record %d: moved, doubled or replayed", line.Seq, last)})
		v.rooted = false
		return false
	case line.Seq > last+1:
		v.fault(Fault{Kind: FaultRemoved, Place: at, Record: last + 1, To: line.Seq - 1, Detail: fmt.Sprintf("records %d to %d are missing in front of record %d", last+1, line.Seq-1, line.Seq)})
		v.rooted = false
		if last > v.proven {
			v.proven = last // the chain to the next checkpoint is interrupted
		}
	case line.Prev != v.hash:
		v.changed(at, line)
	}
	return true
}

// changed names the record that is not what the one behind it was written on.
// Where a checkpoint vouches for that record, it is the one behind it.
func (v *verifier) changed(at Place, line audit.RawLine) {
	v.rooted = false
	where, who := v.at, v.report.Last
	if v.report.Covered == who {
		where, who = at, line.Seq
	}
	v.fault(Fault{Kind: FaultChanged, Place: where, Record: who, To: who, Detail: fmt.Sprintf("record %d does not hold the hash of record %d as it is here", line.Seq, line.Seq-1)})
}

// head judges the first record of a file by the files before it.
func (v *verifier) head(name string, h *audit.FileHead) {
	wrong := func(detail string) { v.fault(Fault{Kind: FaultFile, Place: Place{File: name}, Detail: detail}) }
	if h == nil {
		wrong("the file does not begin with a head")
		v.open = nil
		return
	}
	switch {
	case h.File != name:
		wrong(fmt.Sprintf("the head names another file: %q", h.File))
	case h.Plane != v.report.Series:
		wrong(fmt.Sprintf("the head names another series: %q", h.Plane))
	case v.holder != "" && h.After != v.holder:
		wrong(fmt.Sprintf("the head follows %q, but the record before it is in %s", h.After, v.holder))
	}
	for _, t := range v.open {
		if slices.Contains(h.Torn, t) {
			v.report.Torn = append(v.report.Torn, t)
			continue
		}
		v.fault(Fault{Kind: FaultNoRecord, Place: Place{t.File, t.From}, Detail: fmt.Sprintf("%d bytes that are no record, and no torn end that %s knows of", t.Bytes, name)})
	}
	for _, t := range h.Torn {
		if v.holder != "" && h.File == name && !slices.Contains(v.open, t) {
			v.fault(Fault{Kind: FaultNoRecord, Place: Place{t.File, t.From}, Detail: name + " knows of a torn end that is not there"})
		}
	}
	v.open = nil
}

// grow adds a record to the tree, where all of them are known.
func (v *verifier) grow(line audit.RawLine) {
	if n := v.note; n != nil && n.Tree != v.tree && n.First == line.Seq && n.Prev == line.Prev {
		v.tree, v.first, v.frontier, v.rooted = n.Tree, n.First, Frontier{}, true
	}
	if v.rooted && line.Seq == v.first+uint64(v.frontier.Size()) {
		v.frontier.Add(tlog.RecordHash(line.Text))
	}
}
