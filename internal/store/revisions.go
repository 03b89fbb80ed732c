// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"time"
)

// A Revision is a policy that was applied. Revisions are added, never changed.
type Revision struct {
	Number  uint64 // from 1 on; set by AddRevision
	YAML    string
	Hash    string    // SHA-256 of YAML, in hex; set by AddRevision
	UID     uint32    // who applied it, from the kernel
	Account string    // the name of that account then
	Why     string    // in that person's words
	At      time.Time // in microseconds
	BasedOn uint64    // the revision that it replaced; 0: none
}

const revisionColumns = "number, yaml, hash, uid, account, why, at, coalesce(based_on, 0)"

// AddRevision adds r and returns its number. The error is [ErrConflict] unless
// the newest revision is r.BasedOn.
func (s *Store) AddRevision(ctx context.Context, r Revision) (uint64, error) {
	err := s.write(ctx, func(tx *sql.Tx) error {
		var newest uint64
		if err := tx.QueryRowContext(ctx, "SELECT coalesce(max(number), 0) FROM revisions").Scan(&newest); err != nil {
			return err
		}
		if newest != r.BasedOn {
			return fmt.Errorf("%w: revision %d is the newest, not %d", ErrConflict, newest, r.BasedOn)
		}
		err := tx.QueryRowContext(ctx, `INSERT INTO revisions (yaml, hash, uid, account, why, at, based_on)
			VALUES (?, ?, ?, ?, ?, ?, nullif(?, 0)) RETURNING number`,
			r.YAML, hashOf(r.YAML), r.UID, r.Account, r.Why, micros(r.At), r.BasedOn).Scan(&r.Number)
		if err != nil {
			return err
		}
		return RaiseFloor(s.path, Floor{Revision: r.Number})
	})
	if err != nil {
		return 0, fmt.Errorf("adding policy revision: %w", err)
	}
	return r.Number, nil
}

func hashOf(yaml string) string {
	sum := sha256.Sum256([]byte(yaml))
	return hex.EncodeToString(sum[:])
}

// Revision returns revision n, or [ErrNotFound].
func (s *Store) Revision(ctx context.Context, n uint64) (Revision, error) {
	r, err := scanRevision(s.reader.QueryRowContext(ctx, "SELECT "+revisionColumns+" FROM revisions WHERE number = ?", n))
	if err != nil {
		return Revision{}, fmt.Errorf("reading policy revision %d: %w", n, err)
	}
	return r, nil
}

// LatestRevision returns the newest revision, or [ErrNotFound] before the first.
func (s *Store) LatestRevision(ctx context.Context) (Revision, error) {
	r, err := scanRevision(s.reader.QueryRowContext(ctx, "SELECT "+revisionColumns+" FROM revisions ORDER BY number DESC LIMIT 1"))
	if err != nil {
		return Revision{}, fmt.Errorf("reading the newest policy revision: %w", err)
	}
	return r, nil
}

// Revisions returns all revisions, newest first.
func (s *Store) Revisions(ctx context.Context) ([]Revision, error) {
	rows, err := s.reader.QueryContext(ctx, "SELECT "+revisionColumns+" FROM revisions ORDER BY number DESC")
	if err != nil {
		return nil, fmt.Errorf("listing policy revisions: %w", err)
	}
	defer rows.Close()
	var all []Revision
	for rows.Next() {
		r, err := scanRevision(rows)
		if err != nil {
			return nil, fmt.Errorf("listing policy revisions: %w", err)
		}
		all = append(all, r)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("listing policy revisions: %w", err)
	}
	return all, nil
}

// scanRevision reads a row of revisionColumns. A policy that is not the one
// that was applied is an error: it must not be enforced.
func scanRevision(row interface{ Scan(...any) error }) (Revision, error) {
	var r Revision
	var at int64
	if err := row.Scan(&r.Number, &r.YAML, &r.Hash, &r.UID, &r.Account, &r.Why, &at, &r.BasedOn); err != nil {
		return Revision{}, missing(err)
	}
	if hashOf(r.YAML) != r.Hash {
		return Revision{}, fmt.Errorf("policy revision %d is not what was applied: its hash does not fit", r.Number)
	}
	r.At = fromMicros(at)
	return r, nil
}
