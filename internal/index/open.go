// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package index

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"sync"
	"time"

	"modernc.org/sqlite" // also the database driver
	sqlite3 "modernc.org/sqlite/lib"

	"bawn/internal/audit"
)

// Options are what an [Index] works with.
type Options struct {
	Path     string   // of the database
	Journals []string // directories that hold the series; one that is not there yet is waited for
	Keep     audit.Keep
	Log      *slog.Logger     // nil: none
	Now      func() time.Time // nil: time.Now
	Every    time.Duration    // between two looks at the journals; 0: 1 s, since many records at once cost less, and a question has them looked at anyway
	Shapes   int64            // that a day has before new ones leave out what agents make up; 0: 65,536
}

// version is that of the tables below. An index of another version is made
// anew, so there is nothing to migrate.
const version = 2

// applicationID marks the file as Bawn's index ("BawI" in ASCII).
const applicationID = 0x42617749

const schema = `
	CREATE TABLE series (
		plane   TEXT PRIMARY KEY,
		file    TEXT NOT NULL,
		offset  INTEGER NOT NULL,
		seq     INTEGER NOT NULL,
		hash    BLOB NOT NULL,
		last    INTEGER NOT NULL, -- microseconds: time of the last record
		records INTEGER NOT NULL,
		damages INTEGER NOT NULL,
		damage  TEXT NOT NULL     -- the last one, in words
	) STRICT, WITHOUT ROWID;

	-- A part is a day; what is below floor is being deleted.
	CREATE TABLE parts (
		day   INTEGER PRIMARY KEY,
		floor INTEGER NOT NULL
	) STRICT;
`

// partSchema is one day's tables; %[1]d is the day. See [partID] for the numbers
// of entries.
const partSchema = `
	CREATE TABLE row_%[1]d (
		id       INTEGER PRIMARY KEY,
		shape    INTEGER NOT NULL,
		path     INTEGER,
		client   INTEGER,
		local    INTEGER,
		upstream INTEGER,
		request  INTEGER,
		body     BLOB NOT NULL,
		more     BLOB
	) STRICT;
	CREATE INDEX row_shape_%[1]d ON row_%[1]d (shape);
	CREATE INDEX row_path_%[1]d ON row_%[1]d (path) WHERE path IS NOT NULL;
	CREATE INDEX row_client_%[1]d ON row_%[1]d (client) WHERE client IS NOT NULL;
	CREATE INDEX row_local_%[1]d ON row_%[1]d (local) WHERE local IS NOT NULL;
	CREATE INDEX row_upstream_%[1]d ON row_%[1]d (upstream) WHERE upstream IS NOT NULL;
	CREATE INDEX row_request_%[1]d ON row_%[1]d (request) WHERE request IS NOT NULL;

	CREATE TABLE shape_%[1]d (
		id      INTEGER PRIMARY KEY,
		hash    INTEGER NOT NULL, -- of key
		kind    INTEGER NOT NULL,
		agent   TEXT NOT NULL,
		user    TEXT NOT NULL,
		session TEXT NOT NULL,
		host    TEXT NOT NULL,
		verdict INTEGER NOT NULL,
		code    TEXT NOT NULL,
		outcode TEXT NOT NULL,
		plane   TEXT NOT NULL,
		rule    TEXT NOT NULL,
		method  TEXT NOT NULL,
		status  INTEGER NOT NULL,
		wide    INTEGER NOT NULL,
		dns     INTEGER NOT NULL, -- 1: questions to the resolver
		key     BLOB NOT NULL
	) STRICT;
	CREATE INDEX shape_hash_%[1]d ON shape_%[1]d (hash);

	CREATE TABLE text_%[1]d (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE) STRICT;
	CREATE TABLE path_%[1]d (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE) STRICT;

	CREATE TABLE hour_%[1]d (
		shape INTEGER NOT NULL,
		hour  INTEGER NOT NULL,
		n     INTEGER NOT NULL, -- entries, or denials that summaries count
		up    INTEGER NOT NULL, -- bytes
		down  INTEGER NOT NULL,
		PRIMARY KEY (shape, hour)
	) STRICT, WITHOUT ROWID;
`

var partTables = []string{"row", "shape", "text", "path", "hour"}

// An Index is an open audit index.
type Index struct {
	o Options

	mu       sync.RWMutex // held to use the databases, and alone to replace them
	db       *databases
	closed   bool
	health   sync.Mutex
	state    Health
	complete time.Time       // when everything had been read last
	waiters  []chan struct{} // closed at the next time that everything has been read
	wake     chan struct{}

	writer writer // of the goroutine that runs

	pageTime time.Duration
}

// databases are the connections to one file.
type databases struct {
	path   string
	file   os.FileInfo // as it was opened
	writer *sql.DB     // one connection
	reader *sql.DB
}

// Open opens the index at o.Path, mode 0600. One that is not there, is damaged or
// of another version is made anew, and filled from the journals by Run. Where the
// file cannot be opened at all, the health says so and Run tries again.
func Open(ctx context.Context, o Options) *Index {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Every == 0 {
		o.Every = time.Second
	}
	if o.Shapes == 0 {
		o.Shapes = 1 << 16
	}
	x := &Index{o: o, writer: writer{most: o.Shapes}, wake: make(chan struct{}, 1), pageTime: pageTime}
	db, err := openDatabases(ctx, o.Path)
	if err != nil && spoilt(err) {
		x.alarm("the index was made anew: " + err.Error())
		if err = removeDatabase(o.Path); err == nil {
			db, err = openDatabases(ctx, o.Path)
		}
	}
	if err != nil {
		x.alarm(fmt.Sprintf("opening audit index %s: %v", o.Path, err))
	} else {
		x.db = db
	}
	x.complete = o.Now()
	x.writer.reset()
	return x
}

// errUnfit says that a file is an index that this program cannot use.
var errUnfit = errors.New("unfit")

// spoilt reports whether an error means that the file cannot be used as it is,
// and a new one could.
func spoilt(err error) bool {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		code := e.Code() & 0xff
		return code == sqlite3.SQLITE_CORRUPT || code == sqlite3.SQLITE_NOTADB || code == sqlite3.SQLITE_FORMAT
	}
	return errors.Is(err, errUnfit) || errors.Is(err, errKey) || errors.Is(err, errBody)
}

func removeDatabase(path string) error {
	for _, side := range []string{"-wal", "-shm", "-journal", ""} {
		if err := os.Remove(path + side); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func openDatabases(ctx context.Context, path string) (_ *databases, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	db := &databases{path: path, file: info}
	defer func() {
		if err != nil {
			db.close()
		}
	}()
	// A commit may be lost with the machine's power, and then the place in the
	// journal is lost with it: what was lost is read again.
	if db.writer, err = sql.Open("sqlite", dsn(path, "_pragma=auto_vacuum(2)&_pragma=page_size(4096)&_pragma=journal_mode(wal)&_pragma=synchronous(normal)&_pragma=cache_size(-65536)&_pragma=wal_autocheckpoint(8192)&_pragma=temp_store(2)")); err != nil {
		return nil, err
	}
	db.writer.SetMaxOpenConns(1)
	if err := db.prepare(ctx); err != nil {
		return nil, err
	}
	if db.reader, err = sql.Open("sqlite", dsn(path, "_pragma=query_only(1)&_pragma=cache_size(-16384)&_pragma=temp_store(2)&_pragma=mmap_size(0)")); err != nil {
		return nil, err
	}
	db.reader.SetMaxOpenConns(4)
	return db, nil
}

func dsn(path, more string) string {
	return (&url.URL{Scheme: "file", Path: path, RawQuery: "_pragma=busy_timeout(5000)&" + more}).String()
}

// prepare makes the tables of a new file, and refuses one that is not fit.
func (db *databases) prepare(ctx context.Context) error {
	var tables, application, found int
	err := db.writer.QueryRowContext(ctx, "SELECT (SELECT count(*) FROM sqlite_master), (SELECT * FROM pragma_application_id), (SELECT * FROM pragma_user_version)").
		Scan(&tables, &application, &found)
	switch {
	case err != nil:
		return err
	case tables > 0 && application == applicationID && found == version:
		return nil
	case tables > 0:
		return fmt.Errorf("%w: the file is no index of version %d", errUnfit, version)
	}
	_, err = db.writer.ExecContext(ctx, fmt.Sprintf("BEGIN IMMEDIATE; %s PRAGMA application_id = %d; PRAGMA user_version = %d; COMMIT", schema, applicationID, version))
	return err
}

func (db *databases) close() error {
	var errs []error
	for _, d := range []*sql.DB{db.reader, db.writer} {
		if d != nil {
			errs = append(errs, d.Close())
		}
	}
	return errors.Join(errs...)
}

// replaced reports whether the file is not the one that was opened any more.
func (db *databases) replaced() error {
	info, err := os.Stat(db.path)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnfit, err)
	}
	if !os.SameFile(info, db.file) {
		return fmt.Errorf("%w: the file was replaced while it was open", errUnfit)
	}
	return nil
}

// Close closes the index. Run must have returned. It may be called again.
func (x *Index) Close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil
	}
	x.closed = true
	x.writer.close()
	if x.db == nil {
		return nil
	}
	return x.db.close()
}

// reopen opens a file that could not be opened before.
func (x *Index) reopen(ctx context.Context) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.db != nil || x.closed {
		return nil
	}
	db, err := openDatabases(ctx, x.o.Path)
	if err != nil {
		return fmt.Errorf("opening audit index %s: %w", x.o.Path, err)
	}
	x.db = db
	x.writer.reset()
	return nil
}

// rebuild throws the file away and begins a new one.
func (x *Index) rebuild(ctx context.Context, why error) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.alarm("the index is being made anew: " + why.Error())
	x.writer.close()
	if x.db != nil {
		x.db.close() //nolint:errcheck // nothing in it is needed
		x.db = nil
	}
	if err := removeDatabase(x.o.Path); err != nil {
		return err
	}
	db, err := openDatabases(ctx, x.o.Path)
	if err != nil {
		return err
	}
	x.db = db
	x.writer.reset()
	return nil
}

// use hands out the databases and a function that gives them back.
func (x *Index) use() (*databases, func(), error) {
	x.mu.RLock()
	if x.closed || x.db == nil {
		x.mu.RUnlock()
		return nil, nil, errors.New("the audit index is not open")
	}
	return x.db, x.mu.RUnlock, nil
}
