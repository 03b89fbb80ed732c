// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// A Report says what [Verify] found.
type Report struct {
	Series []SeriesReport
}

// OK reports whether nothing is wrong. Torn ends are not wrong.
func (r Report) OK() bool {
	for _, s := range r.Series {
		if len(s.Faults) > 0 {
			return false
		}
	}
	return true
}

// A SeriesReport is about the journal of one plane.
type SeriesReport struct {
	Plane   string
	Files   int
	Records uint64
	First   uint64   // number of the first record that is there; above 1 when older files are gone
	Last    uint64   // number of the last
	Hash    [32]byte // of the last record
	Torn    []Torn   // what crashes left
	Faults  []Fault
}

// A Fault is a place where a journal is not what was written.
type Fault struct {
	File   string
	Offset int64
	Detail string
}

// Verify reads every series in dir and checks the chain: each record's hash is
// in the next, numbers grow by one, each file names the one before it, and
// what is no record is a torn end that the next file's head names, or the very
// end. That the newest records were cut off whole cannot show here. An error
// is a journal that could not be read.
func Verify(dir string) (Report, error) {
	series, err := listSeries(dir)
	if err != nil {
		return Report{}, err
	}
	var report Report
	for _, plane := range sortedKeys(series) {
		v := verifier{report: SeriesReport{Plane: plane, Files: len(series[plane])}}
		for i, name := range series[plane] {
			if i > 0 && name.index != series[plane][i-1].index+1 {
				v.fault(name.String(), 0, fmt.Sprintf("file number %d is missing", series[plane][i-1].index+1))
			}
			if err := v.file(dir, name.String()); err != nil {
				return Report{}, fmt.Errorf("verifying journal %s: %w", name, err)
			}
		}
		v.end()
		report.Series = append(report.Series, v.report)
	}
	return report, nil
}

// A verifier walks one series.
type verifier struct {
	report SeriesReport
	hash   [32]byte // of the record before
	holder string   // file that holds it
	open   []Torn   // ends that no head has named yet
}

func (v *verifier) fault(file string, offset int64, detail string) {
	v.report.Faults = append(v.report.Faults, Fault{file, offset, detail})
}

func (v *verifier) file(dir, name string) error {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	lines := newLineReader(f, 0)
	first := true
	bad := int64(-1) // where what is no record began
	size := info.Size()
	for lines.offset < size { // what is appended meanwhile is left to the next time
		begin := lines.offset
		line, whole, err := lines.next()
		if err != nil {
			return err
		}
		rec, err := parseLine(line)
		if !whole || err != nil {
			if bad < 0 {
				bad = begin
			}
			if !whole {
				break
			}
			continue
		}
		if bad >= 0 {
			v.fault(name, bad, "bytes that are no record, with records behind them")
			bad = -1
		}
		v.record(name, begin, line, rec, first)
		first = false
	}
	if bad >= 0 || size == 0 {
		v.open = append(v.open, Torn{File: name, From: max(bad, 0), Bytes: size - max(bad, 0)})
	}
	return nil
}

func (v *verifier) record(name string, offset int64, line []byte, rec Record, first bool) {
	oldest := v.report.Records == 0
	switch {
	case oldest && rec.Seq == 1 && rec.Prev != [32]byte{}:
		v.fault(name, offset, "the first record names one before it")
	case !oldest && rec.Prev != v.hash:
		v.fault(name, offset, fmt.Sprintf("record %d does not hold the hash of the record before it", rec.Seq))
	}
	if !oldest && rec.Seq != v.report.Last+1 {
		v.fault(name, offset, fmt.Sprintf("record %d follows record %d", rec.Seq, v.report.Last))
	}
	if first {
		v.head(name, rec.File, oldest)
	} else if rec.File != nil {
		v.fault(name, offset, "a file head inside a file")
	}
	if oldest {
		v.report.First = rec.Seq
	}
	v.report.Records++
	v.report.Last = rec.Seq
	v.hash = sha256.Sum256(line)
	v.holder = name
}

// head checks the first record of a file against the files before it.
func (v *verifier) head(name string, h *FileHead, oldest bool) {
	switch {
	case h == nil:
		v.fault(name, 0, "the file does not begin with a file head")
		return
	case h.File != name:
		v.fault(name, 0, fmt.Sprintf("the head names another file: %q", h.File))
	case h.Plane != v.report.Plane:
		v.fault(name, 0, fmt.Sprintf("the head names another plane: %q", h.Plane))
	case !oldest && h.After != v.holder:
		v.fault(name, 0, fmt.Sprintf("the head follows %q, but the record before it is in %q", h.After, v.holder))
	}
	for _, t := range v.open {
		if slices.Contains(h.Torn, t) {
			v.report.Torn = append(v.report.Torn, t)
			continue
		}
		v.fault(t.File, t.From, fmt.Sprintf("%d bytes that are no record, and no torn end that %s knows of", t.Bytes, name))
	}
	for _, t := range h.Torn {
		if !oldest && !slices.Contains(v.open, t) {
			v.fault(t.File, t.From, fmt.Sprintf("%s knows of a torn end that is not there", name))
		}
	}
	v.open = nil
}

// end is called behind the last file: what is open now is torn, or is being
// written.
func (v *verifier) end() {
	v.report.Torn = append(v.report.Torn, v.open...)
	v.report.Hash = v.hash
}
