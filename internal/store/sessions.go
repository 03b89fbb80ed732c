// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"bawn/internal/ids"
)

// A Session is one run of an agent.
type Session struct {
	Identity  ids.Identity
	Placement ids.Placement
	Argv      []string
	Started   time.Time // in microseconds
	Ended     time.Time // zero: it runs
	Status    int       // exit status, once it has ended
	Fault     string    // what went wrong with Bawn, if anything did
}

// StartSession adds a session that runs. The session's id and its (slot,
// generation) must be new.
func (s *Store) StartSession(ctx context.Context, x Session) error {
	argv, err := json.Marshal(x.Argv)
	if err != nil {
		return fmt.Errorf("adding session %s: %w", x.Identity.Session, err)
	}
	id := x.Identity
	err = s.write(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO sessions
			(session, slot, epoch, count, agent, user, placement, argv, started) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			id.Session, id.Slot, id.Gen.Epoch, id.Gen.Count, id.Agent, id.User, x.Placement, string(argv), micros(x.Started))
		return err
	})
	if err != nil {
		return fmt.Errorf("adding session %s: %w", id.Session, err)
	}
	return nil
}

// EndSession notes the end of a session that runs; the error is [ErrNotFound]
// where none of that id does.
func (s *Store) EndSession(ctx context.Context, session string, at time.Time, status int, fault string) error {
	err := s.write(ctx, func(tx *sql.Tx) error {
		return found(tx.ExecContext(ctx, "UPDATE sessions SET ended = ?, status = ?, fault = ? WHERE session = ? AND ended IS NULL",
			micros(at), status, fault, session))
	})
	if err != nil {
		return fmt.Errorf("ending session %s: %w", session, err)
	}
	return nil
}

// OpenSessions returns the sessions that run, oldest first. Right after a start
// these are what a crash left: whoever has stopped them marks them as ended.
func (s *Store) OpenSessions(ctx context.Context) ([]Session, error) {
	return s.sessions(ctx, "WHERE ended IS NULL ORDER BY started, session")
}

// Sessions returns the last sessions to have started, newest first, limit at
// most.
func (s *Store) Sessions(ctx context.Context, limit int) ([]Session, error) {
	return s.sessions(ctx, "ORDER BY started DESC, session LIMIT ?", limit)
}

func (s *Store) sessions(ctx context.Context, where string, args ...any) ([]Session, error) {
	rows, err := s.reader.QueryContext(ctx, `SELECT session, slot, epoch, count, agent, user, placement, argv, started,
		coalesce(ended, 0), coalesce(status, 0), fault FROM sessions `+where, args...)
	if err != nil {
		return nil, fmt.Errorf("listing sessions: %w", err)
	}
	defer rows.Close()
	var all []Session
	for rows.Next() {
		var x Session
		var argv string
		var started, ended int64
		id := &x.Identity
		if err := rows.Scan(&id.Session, &id.Slot, &id.Gen.Epoch, &id.Gen.Count, &id.Agent, &id.User, &x.Placement,
			&argv, &started, &ended, &x.Status, &x.Fault); err != nil {
			return nil, fmt.Errorf("listing sessions: %w", err)
		}
		if err := json.Unmarshal([]byte(argv), &x.Argv); err != nil {
			return nil, fmt.Errorf("reading session %s: %w", id.Session, err)
		}
		x.Started = fromMicros(started)
		if ended != 0 {
			x.Ended = fromMicros(ended)
		}
		all = append(all, x)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("listing sessions: %w", err)
	}
	return all, nil
}
