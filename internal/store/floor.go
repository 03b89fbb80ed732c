// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// A Floor holds the last numbers that were handed out and may never be again.
// It lies in a file of its own beside the database, written before a number is
// used: an older copy of the database, or a backup, that comes into the
// database's place then goes on where the numbers were, not where the copy was.
type Floor struct {
	Epoch    uint64 `json:"epoch"`    // of generations
	Revision uint64 `json:"revision"` // of the policy
}

// over returns the higher of each number.
func (f Floor) over(g Floor) Floor {
	return Floor{max(f.Epoch, g.Epoch), max(f.Revision, g.Revision)}
}

// FloorFile is where the floor of the database at path lies.
func FloorFile(path string) string { return path + ".floor" }

// ReadFloor reads the floor of the database at path; the zero Floor if there is
// no file.
func ReadFloor(path string) (f Floor, err error) {
	text, err := os.ReadFile(FloorFile(path))
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err != nil {
		return Floor{}, fmt.Errorf("reading %s, which keeps numbers from being used again: %w: remove it only if the database is not an older copy", FloorFile(path), err)
	}
	return f, nil
}

// RaiseFloor writes the higher of f and what is written already.
func RaiseFloor(path string, f Floor) error {
	have, err := ReadFloor(path)
	if err != nil {
		return err
	}
	if f = f.over(have); f == have {
		return nil
	}
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	part, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".floor-*") // mode 0600
	if err != nil {
		return fmt.Errorf("writing %s: %w", FloorFile(path), err)
	}
	defer os.Remove(part.Name()) // fails once it has its name
	_, err = part.Write(append(text, '\n'))
	if err = errors.Join(err, part.Close()); err == nil {
		err = settle(part.Name(), FloorFile(path))
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", FloorFile(path), err)
	}
	return nil
}

// lift brings the database's own counters up to the floor.
func (s *Store) lift(ctx context.Context) error {
	f, err := ReadFloor(s.path)
	if err != nil || f == (Floor{}) {
		return err
	}
	return s.write(ctx, func(tx *sql.Tx) error { return lift(ctx, tx, f) })
}

func lift(ctx context.Context, tx *sql.Tx, f Floor) error {
	if _, err := tx.ExecContext(ctx, "UPDATE counters SET value = max(value, ?) WHERE name = 'epoch'", f.Epoch); err != nil {
		return err
	}
	// SQLite makes the row of an AUTOINCREMENT column with the first insert.
	_, err := tx.ExecContext(ctx, `INSERT INTO sqlite_sequence (name, seq) SELECT 'revisions', 0
		WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'revisions')`)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = 'revisions'", f.Revision)
	return err
}
