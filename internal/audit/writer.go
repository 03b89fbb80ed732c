// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// A file is what the writer needs of an open journal file; tests have one that
// fails.
type file interface {
	Write([]byte) (int, error)
	Truncate(size int64) error
	Sync() error // data only
	Close() error
}

type osFile struct{ *os.File }

func (f osFile) Sync() error { return syncData(f.File) }

func createFile(path string, mode fs.FileMode) (file, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// A writer appends batches to a series of files. One goroutine at a time may
// call append; sync may run beside it.
type writer struct {
	dir      string
	plane    string
	mode     fs.FileMode
	maxBytes int64
	log      *slog.Logger
	create   func(path string, mode fs.FileMode) (file, error)

	// Owned by the goroutine that appends.
	enc   encoder
	buf   []byte
	tail  tail   // the last record that was written
	index uint64 // of the current file
	name  string
	day   int64 // of its first record, see dayNumber
	size  int64 // of the current file; 0: its first record is still to come

	written atomic.Uint64 // number of the last record that was written

	mu      sync.Mutex // guards what append and sync share
	cur     file       // nil: append begins a new file
	path    string     // of cur
	torn    bool       // cur may hold part of a batch: find the end of the series anew
	failed  bool       // cur could not be synced: begin a new file
	stale   []file     // full, still to be synced and closed
	entries bool       // the directory has files that were not synced into it

	syncMu   sync.Mutex // held while syncing
	synced   uint64     // records up to this one are on the disk
	unsynced uint64     // records up to this one could not be synced
}

// append writes the batch behind the last record with one write and sets the
// number of its first record. After an error nothing of the batch counts as
// written, and a later call tries anew.
func (w *writer) append(b *batch, now time.Time) error {
	if err := w.ready(now); err != nil {
		return err
	}
	out, last := w.buf[:0], w.tail
	add := func(body []byte) {
		last.seq++
		start := len(out)
		out = chain(append(out, body...), last.seq, &last.hash)
		last.hash = sha256.Sum256(out[start : len(out)-1])
	}
	if w.size == 0 {
		head := FileHead{Time: now, Plane: w.plane, File: w.name, After: last.file, Torn: last.torn}
		add(w.enc.head(nil, &head))
		last.file, last.torn = w.name, nil
	}
	b.first = last.seq + 1
	start := 0
	for _, r := range b.records {
		add(b.bodies[start:r.end])
		start = r.end
	}
	n, err := w.cur.Write(out)
	if w.buf = out; cap(out) > 1<<20 {
		w.buf = nil
	}
	if err != nil {
		w.takeBack(n)
		return fmt.Errorf("writing journal %s: %w", w.name, err)
	}
	w.size += int64(len(out))
	w.tail = last
	w.written.Store(last.seq)
	return nil
}

// takeBack removes the part of a batch that a failed write left.
func (w *writer) takeBack(n int) {
	if n == 0 {
		return
	}
	if err := w.cur.Truncate(w.size); err != nil {
		w.log.Error("taking back part of a journal write", "file", w.name, "err", err)
		w.mu.Lock()
		w.torn = true
		w.mu.Unlock()
	}
}

// ready sees to it that there is a current file to append to.
func (w *writer) ready(now time.Time) error {
	w.mu.Lock()
	torn, failed, none := w.torn, w.failed, w.cur == nil
	w.mu.Unlock()
	full := w.size >= w.maxBytes || (w.size > 0 && w.day != dayNumber(now))
	if !torn && !failed && !none && !full {
		return nil
	}
	if torn {
		if err := w.findEnd(); err != nil {
			return err
		}
	}
	return w.begin(now)
}

// findEnd reads back where the series ends.
func (w *writer) findEnd() error {
	series, err := listSeries(w.dir)
	if err != nil {
		return err
	}
	files := series[w.plane]
	t, err := findTail(w.dir, files)
	if err != nil {
		return err
	}
	w.tail = t
	if n := len(files); n > 0 {
		w.index = files[n-1].index
	}
	for _, torn := range t.torn {
		w.log.Warn("journal has a torn end; it stays and a new file goes on",
			"file", torn.File, "from", torn.From, "bytes", torn.Bytes)
	}
	return nil
}

// adopt leaves the end of the last run's files to the first sync: that run may
// have ended before its own.
func (w *writer) adopt() error {
	w.written.Store(w.tail.seq)
	if w.tail.seq > 0 {
		w.synced = w.tail.seq - 1
	}
	if w.tail.file == "" {
		return nil
	}
	f, err := os.Open(filepath.Join(w.dir, w.tail.file))
	if err != nil {
		return err
	}
	w.stale = append(w.stale, osFile{f})
	return nil
}

// begin makes the next file current. The one before is left to sync.
func (w *writer) begin(now time.Time) error {
	name := fileName{w.plane, w.index + 1, dayOf(now)}
	f, err := w.create(filepath.Join(w.dir, name.String()), w.mode)
	if err != nil {
		return fmt.Errorf("beginning journal file: %w", err)
	}
	w.mu.Lock()
	if w.cur != nil {
		w.stale = append(w.stale, w.cur)
	}
	w.cur, w.torn, w.failed, w.entries = f, false, false, true
	w.path = filepath.Join(w.dir, name.String())
	w.mu.Unlock()
	w.index, w.name, w.day, w.size = name.index, name.String(), dayNumber(now), 0
	return nil
}

// sync brings every record that was written before the call to the disk.
// Calls that wait for one another are served by one sync.
func (w *writer) sync() error {
	target := w.written.Load()
	w.syncMu.Lock()
	defer w.syncMu.Unlock()
	if target <= w.unsynced && w.unsynced > 0 {
		return fmt.Errorf("syncing journal %s: an earlier sync failed", w.plane)
	}
	if target <= w.synced {
		return nil
	}
	w.mu.Lock()
	target = w.written.Load()
	cur, stale, entries, path := w.cur, w.stale, w.entries, w.path
	w.stale, w.entries = nil, false
	w.mu.Unlock()
	if err := w.syncFiles(cur, stale, entries); err != nil {
		// The kernel reports a lost page once and then forgets it: to sync
		// again would prove nothing.
		w.unsynced = target
		w.mu.Lock()
		w.failed, w.entries = true, true
		w.mu.Unlock()
		return fmt.Errorf("syncing journal %s: %w", w.plane, err)
	}
	w.synced = target
	if f, ok := cur.(osFile); ok && !stands(f.File, path) {
		w.log.Error("the journal's file was removed or replaced; a new one is begun", "file", path)
		w.mu.Lock()
		w.failed = true
		w.mu.Unlock()
	}
	return nil
}

// stands reports whether f is still what is at path: what is written to a file
// that somebody has removed or replaced is on no record.
func stands(f *os.File, path string) bool {
	own, err := f.Stat()
	if err != nil {
		return true
	}
	there, err := os.Lstat(path)
	return err == nil && os.SameFile(own, there) || err != nil && !errors.Is(err, fs.ErrNotExist)
}

func (w *writer) syncFiles(cur file, stale []file, entries bool) error {
	var errs []error
	for _, f := range stale {
		errs = append(errs, f.Sync(), f.Close())
	}
	if cur != nil {
		errs = append(errs, cur.Sync())
	}
	if entries {
		errs = append(errs, syncDir(w.dir))
	}
	return errors.Join(errs...)
}

// close syncs and closes all files. Nobody may append any more.
func (w *writer) close() error {
	err := w.sync()
	w.syncMu.Lock()
	defer w.syncMu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range append(w.stale, w.cur) {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	w.stale, w.cur = nil, nil
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
