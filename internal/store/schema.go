// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"fmt"
)

// applicationID marks the file as Bawn's ("Bawn" in ASCII).
const applicationID = 0x4261776e

// migrations bring a database from version i to i+1. They are added to, never
// changed. Times are microseconds since 1970; uids and numbers are as they are.
var migrations = [...]string{
	`
	CREATE TABLE agents (
		name      TEXT PRIMARY KEY,
		user      TEXT NOT NULL,
		profile   TEXT NOT NULL,
		placement TEXT NOT NULL,
		uid       INTEGER NOT NULL UNIQUE,
		created   INTEGER NOT NULL
	) STRICT, WITHOUT ROWID;

	CREATE TABLE revisions (
		number   INTEGER PRIMARY KEY AUTOINCREMENT,
		yaml     TEXT NOT NULL,
		hash     TEXT NOT NULL,
		uid      INTEGER NOT NULL,
		account  TEXT NOT NULL,
		why      TEXT NOT NULL,
		at       INTEGER NOT NULL,
		based_on INTEGER REFERENCES revisions (number)
	) STRICT;

	CREATE TABLE sessions (
		session   TEXT PRIMARY KEY,
		slot      INTEGER NOT NULL,
		epoch     INTEGER NOT NULL,
		count     INTEGER NOT NULL,
		agent     TEXT NOT NULL,
		user      TEXT NOT NULL,
		placement TEXT NOT NULL,
		argv      TEXT NOT NULL,
		started   INTEGER NOT NULL,
		ended     INTEGER,
		status    INTEGER,
		fault     TEXT NOT NULL DEFAULT '',
		UNIQUE (slot, epoch, count)
	) STRICT, WITHOUT ROWID;
	CREATE INDEX sessions_open ON sessions (started) WHERE ended IS NULL;

	CREATE TABLE counters (
		name  TEXT PRIMARY KEY,
		value INTEGER NOT NULL
	) STRICT, WITHOUT ROWID;
	INSERT INTO counters (name, value) VALUES ('epoch', 0), ('uid', 0);
	`,
	`
	ALTER TABLE agents ADD COLUMN id TEXT NOT NULL DEFAULT '';
	UPDATE agents SET id = 'a-' || lower(hex(randomblob(8)));
	CREATE UNIQUE INDEX agents_id ON agents (id);
	`,
	`
	CREATE TABLE grants (
		number   INTEGER PRIMARY KEY AUTOINCREMENT,
		agent    TEXT NOT NULL,
		agent_id TEXT NOT NULL,
		rule     TEXT NOT NULL,
		reason   TEXT NOT NULL,
		uid      INTEGER NOT NULL,
		account  TEXT NOT NULL,
		at       INTEGER NOT NULL,
		until    INTEGER NOT NULL,
		ended    INTEGER,
		why      TEXT NOT NULL DEFAULT ''
	) STRICT;
	CREATE INDEX grants_open ON grants (until) WHERE ended IS NULL;
	`,
}

func newerError(version int, path string) error {
	return fmt.Errorf("it has version %d, and this program knows up to %d: use the newer program, or restore an older backup%s",
		version, len(migrations), wayBack(path))
}

// migrate brings the database up to date. It runs under the write lock, so
// that of two processes the second finds nothing to do.
func migrate(ctx context.Context, tx *sql.Tx) error {
	var version int
	if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return err
	}
	if version > len(migrations) {
		return newerError(version, "")
	}
	for ; version < len(migrations); version++ {
		if _, err := tx.ExecContext(ctx, migrations[version]); err != nil {
			return fmt.Errorf("bringing it from version %d to %d: %w", version, version+1, err)
		}
	}
	_, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d", applicationID, version))
	return err
}
