// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"time"

	"bawn/internal/audit"
)

// A Sink takes the files of an export: what is written to the writer before the
// next call is the file of that name, a relative path with slashes.
type Sink func(name string) (io.Writer, error)

// Export copies whole series with their checkpoints and the public key, in a
// [Layout] that [Verify] checks. Of a time, it copies the files that hold
// anything of it: that nothing of that time is missing is then proven as well.
func Export(l Layout, key Key, since, until time.Time, sink Sink) (records uint64, err error) {
	w, err := sink("public/audit.pub")
	if err != nil {
		return 0, err
	}
	if _, err := io.WriteString(w, key.String()+"\n"); err != nil {
		return 0, err
	}
	// The checkpoints are listed first: the journals hold all that they cover.
	books, err := listBooks(l.Checkpoints())
	if err != nil {
		return 0, err
	}
	dirs, err := l.Journals()
	if err != nil {
		return 0, err
	}
	for _, dir := range dirs {
		files, err := audit.SeriesFiles(dir)
		if err != nil {
			return records, err
		}
		for _, series := range slices.Sorted(maps.Keys(files)) {
			chosen, later, err := within(dir, files[series], since, until)
			if err != nil {
				return records, err
			}
			if len(chosen) == 0 {
				continue // the others may have something of that time
			}
			n, err := exportSeries(l, dir, chosen, sink)
			if err != nil {
				return records, err
			}
			records += n
			if err := exportBook(l, books[series], key, later, sink); err != nil {
				return records, err
			}
		}
	}
	return records, nil
}

// within returns the files that hold anything of a time, and the number of the
// first record behind them; 0 where there is none.
func within(dir string, files []audit.SeriesFile, since, until time.Time) (chosen []audit.SeriesFile, later uint64, err error) {
	for i, f := range files {
		begins, first, err := beginOf(filepath.Join(dir, f.Name))
		if err != nil {
			return nil, 0, err
		}
		if !until.IsZero() && !begins.IsZero() && !begins.Before(until) {
			return chosen, first, nil
		}
		if i+1 < len(files) && !since.IsZero() {
			next, _, err := beginOf(filepath.Join(dir, files[i+1].Name))
			if err != nil {
				return nil, 0, err
			}
			if next.Before(since) && !next.IsZero() {
				continue
			}
		}
		chosen = append(chosen, f)
	}
	return chosen, 0, nil
}

// beginOf returns time and number of a file's first record; none for a file
// without one.
func beginOf(path string) (time.Time, uint64, error) {
	f, err := openRegular(path)
	if err != nil {
		return time.Time{}, 0, err
	}
	defer f.Close()
	line, err := audit.ReadLines(f, 0, true).Next()
	if errors.Is(err, io.EOF) || err == nil && !line.Record {
		return time.Time{}, 0, nil
	}
	if err != nil {
		return time.Time{}, 0, err
	}
	rec, err := audit.ParseRecord(line.Text)
	return rec.Time(), line.Seq, err
}

func exportSeries(l Layout, dir string, files []audit.SeriesFile, sink Sink) (records uint64, err error) {
	rel, err := filepath.Rel(l.Dir, dir)
	if err != nil {
		return 0, err
	}
	for i, f := range files {
		n, err := copyLines(filepath.Join(dir, f.Name), path.Join(filepath.ToSlash(rel), f.Name), sink)
		if i == 0 && errors.Is(err, fs.ErrNotExist) {
			continue // retention was quicker
		}
		if err != nil {
			return records, fmt.Errorf("exporting %s: %w", f.Name, err)
		}
		records += n
	}
	return records, nil
}

// copyLines copies a file as long as it is now, and counts its lines.
func copyLines(from, name string, sink Sink) (lines uint64, err error) {
	f, err := openRegular(from)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	w, err := sink(name)
	if err != nil {
		return 0, err
	}
	in := bufio.NewReaderSize(io.LimitReader(f, info.Size()), 256<<10)
	for {
		part, err := in.ReadSlice('\n')
		if len(part) > 0 && part[len(part)-1] == '\n' {
			lines++
		}
		if _, werr := w.Write(part); werr != nil {
			return lines, werr
		}
		if errors.Is(err, io.EOF) {
			return lines, nil
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return lines, err
		}
	}
}

// exportBook copies the checkpoints of a series up to the record in front of
// later; 0: all.
func exportBook(l Layout, files []bookFile, key Key, later uint64, sink Sink) error {
	for _, f := range files {
		w, err := sink(path.Join("admin/checkpoints", f.name))
		if err != nil {
			return err
		}
		enc, done := inertEncoder{w}, false
		var failed error
		_, err = readBookFile(l.Checkpoints(), f, key, func(n Note, bad *badNote) bool {
			if bad != nil {
				failed = faultOf(bad)
				return false
			}
			if later > 0 && n.Last() >= later {
				done = true
				return false
			}
			failed = enc.Encode(bookLine{string(n.Text)})
			return failed == nil
		})
		if err := errors.Join(err, failed); err != nil || done {
			return err
		}
	}
	return nil
}
