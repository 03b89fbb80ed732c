// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package store is admin's database: agents, policy revisions, sessions and
// the counters that must never go back. It is one SQLite file.
//
// [Open] brings a file of an older version up to date and refuses one of a
// newer. A [Store] may be used by many goroutines; writes go one after the
// other, and a write that has returned is on the disk. Several processes may
// have the file open, though only admin should.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"modernc.org/sqlite" // also the database driver
	sqlite3 "modernc.org/sqlite/lib"
)

var (
	// ErrNotFound says that there is no such row.
	ErrNotFound = errors.New("not found")
	// ErrExists says that the name is taken.
	ErrExists = errors.New("exists already")
	// ErrConflict says that somebody else's revision came between: look at it,
	// then try again.
	ErrConflict = errors.New("the policy was changed meanwhile")
	// ErrFull says that every uid of Bawn's range belongs to an agent.
	ErrFull = errors.New("no uid is left in the range of agents")
)

// busyTimeout is how long a statement waits for another process's lock.
const busyTimeout = 5 * time.Second

// A Store is an open database.
type Store struct {
	path   string
	file   os.FileInfo // as it was opened
	writer *sql.DB     // one connection
	reader *sql.DB
}

// Open opens the database at path and makes it, mode 0600, if there is none.
// Errors name the file.
func Open(ctx context.Context, path string) (*Store, error) {
	s, err := open(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("opening database %s: %w", path, hinted(err))
	}
	return s, nil
}

func open(ctx context.Context, path string) (_ *Store, err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	// SQLite gives its own side files the mode of the database.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	s := &Store{path: path, file: info}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if s.writer, err = sql.Open("sqlite", dsn(path, "_txlock=immediate")); err != nil {
		return nil, err
	}
	s.writer.SetMaxOpenConns(1)
	if err := s.prepare(ctx); err != nil {
		return nil, err
	}
	if s.reader, err = sql.Open("sqlite", dsn(path, "_pragma=query_only(1)")); err != nil {
		return nil, err
	}
	s.reader.SetMaxOpenConns(4)
	return s, s.Ping(ctx)
}

func dsn(path, more string) string {
	pragmas := fmt.Sprintf("_pragma=busy_timeout(%d)&_pragma=foreign_keys(1)&_pragma=synchronous(full)&%s",
		busyTimeout.Milliseconds(), more)
	return (&url.URL{Scheme: "file", Path: path, RawQuery: pragmas}).String()
}

// prepare checks the file before anything in it is changed, then brings it up
// to date.
func (s *Store) prepare(ctx context.Context) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	if err := s.logAhead(ctx); err != nil {
		return fmt.Errorf("turning on the write-ahead log: %w", err)
	}
	if err := s.copyOld(ctx); err != nil {
		return err
	}
	if err := s.write(ctx, func(tx *sql.Tx) error { return migrate(ctx, tx) }); err != nil {
		return fmt.Errorf("%w (it is as it was before; the older program can still use it)", err)
	}
	return s.lift(ctx)
}

// logAhead turns on the write-ahead log. SQLite does not wait for other
// processes here, whatever the busy timeout is.
func (s *Store) logAhead(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, busyTimeout)
	defer cancel()
	for {
		var mode string
		err := s.writer.QueryRowContext(ctx, "PRAGMA journal_mode=WAL").Scan(&mode)
		if err == nil && mode != "wal" {
			return fmt.Errorf("the mode is %q: is this a network file system?", mode)
		}
		if busy, ok := errors.AsType[*sqlite.Error](err); !ok || busy.Code()&0xff != sqlite3.SQLITE_BUSY {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// check refuses a file that is damaged or not ours.
func (s *Store) check(ctx context.Context) error {
	var version, application, tables int
	if err := s.writer.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return err
	}
	if version > len(migrations) {
		return newerError(version, s.path)
	}
	if err := s.writer.QueryRowContext(ctx, "PRAGMA application_id").Scan(&application); err != nil {
		return err
	}
	if err := s.writer.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_master").Scan(&tables); err != nil {
		return err
	}
	if tables > 0 && application != applicationID {
		return errors.New("this is another program's database")
	}
	var found string
	if err := s.writer.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&found); err != nil {
		return err
	}
	if found != "ok" {
		return fmt.Errorf("the file is damaged: %s: restore a backup", found)
	}
	return nil
}

// hinted adds what to do to the errors of SQLite that a person meets.
func hinted(err error) error {
	text := err.Error()
	switch {
	case strings.Contains(text, "file is not a database"), strings.Contains(text, "malformed"):
		return fmt.Errorf("the file is damaged or no database: restore a backup: %w", err)
	case strings.Contains(text, "readonly database"), errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("the file cannot be written: admin's account must own it and its directory: %w", err)
	}
	return err
}

// Close closes the database. It may be called again.
func (s *Store) Close() error {
	var errs []error
	for _, db := range []*sql.DB{s.reader, s.writer} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(errs...)
}

// Ping reads from the database, and fails as well when its file was removed or
// replaced: what is written then would be lost.
func (s *Store) Ping(ctx context.Context) error {
	info, err := os.Stat(s.path)
	if err != nil {
		return fmt.Errorf("reading database: %w", err)
	}
	if !os.SameFile(info, s.file) {
		return fmt.Errorf("reading database %s: the file was replaced while it was open", s.path)
	}
	var epoch uint64
	if err := s.reader.QueryRowContext(ctx, "SELECT value FROM counters WHERE name = 'epoch'").Scan(&epoch); err != nil {
		return fmt.Errorf("reading database %s: %w", s.path, err)
	}
	return nil
}

// write runs f in a transaction that holds the write lock from its beginning.
func (s *Store) write(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := s.writer.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// NextEpoch counts the starts of admin. No two calls ever return the same
// number, also over crashes.
func (s *Store) NextEpoch(ctx context.Context) (uint64, error) {
	var epoch uint64
	err := s.write(ctx, func(tx *sql.Tx) error {
		err := tx.QueryRowContext(ctx,
			"UPDATE counters SET value = value + 1 WHERE name = 'epoch' RETURNING value").Scan(&epoch)
		if err != nil {
			return err
		}
		return RaiseFloor(s.path, Floor{Epoch: epoch})
	})
	if err != nil {
		return 0, fmt.Errorf("counting epochs: %w", err)
	}
	return epoch, nil
}

// micros is the form of times in the database.
func micros(t time.Time) int64 { return t.UnixMicro() }

func fromMicros(n int64) time.Time { return time.UnixMicro(n).UTC() }
