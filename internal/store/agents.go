// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"bawn/internal/ids"
	"bawn/internal/netplan"
)

// An Agent is a registered identity.
type Agent struct {
	Name      string
	ID        string // of this registration, which never comes again; set by CreateAgent
	User      string
	Profile   string // empty: none
	Placement ids.Placement
	UID       uint32    // of its account, from Bawn's range; set by CreateAgent
	Created   time.Time // in microseconds
}

// Agents returns all agents, by name.
func (s *Store) Agents(ctx context.Context) ([]Agent, error) {
	rows, err := s.reader.QueryContext(ctx, "SELECT name, id, user, profile, placement, uid, created FROM agents ORDER BY name")
	if err != nil {
		return nil, fmt.Errorf("listing agents: %w", err)
	}
	defer rows.Close()
	var agents []Agent
	for rows.Next() {
		var a Agent
		var created int64
		if err := rows.Scan(&a.Name, &a.ID, &a.User, &a.Profile, &a.Placement, &a.UID, &created); err != nil {
			return nil, fmt.Errorf("listing agents: %w", err)
		}
		a.Created = fromMicros(created)
		agents = append(agents, a)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("listing agents: %w", err)
	}
	return agents, nil
}

// CreateAgent adds a, gives it an id and a uid and returns it so. The error is
// [ErrExists] where the name is taken and [ErrFull] where no uid is left.
func (s *Store) CreateAgent(ctx context.Context, a Agent) (Agent, error) {
	err := s.write(ctx, func(tx *sql.Tx) error {
		var taken bool
		if err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM agents WHERE name = ?)", a.Name).Scan(&taken); err != nil {
			return err
		}
		if taken {
			return ErrExists
		}
		uid, err := nextUID(ctx, tx)
		if err != nil {
			return err
		}
		a.ID, a.UID = ids.NewAgent(), uid
		_, err = tx.ExecContext(ctx, "INSERT INTO agents (name, id, user, profile, placement, uid, created) VALUES (?, ?, ?, ?, ?, ?, ?)",
			a.Name, a.ID, a.User, a.Profile, a.Placement, a.UID, micros(a.Created))
		return err
	})
	if err != nil {
		return Agent{}, fmt.Errorf("creating agent %s: %w", a.Name, err)
	}
	a.Created = fromMicros(micros(a.Created))
	return a, nil
}

// nextUID takes the uid after the last one that was given out, and begins
// again at the end of the range: what an agent may have left behind anywhere
// then has an owner that nobody is for as long as can be.
func nextUID(ctx context.Context, tx *sql.Tx) (uint32, error) {
	const size = netplan.LastUID - netplan.FirstUID + 1
	used := make(map[uint32]bool)
	rows, err := tx.QueryContext(ctx, "SELECT uid FROM agents")
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var uid uint32
		if err := rows.Scan(&uid); err != nil {
			return 0, err
		}
		used[uid] = true
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	var next uint32 // how many were given out, in the range's size
	if err := tx.QueryRowContext(ctx, "SELECT value FROM counters WHERE name = 'uid'").Scan(&next); err != nil {
		return 0, err
	}
	for range size {
		uid := netplan.FirstUID + next%size
		next = (next + 1) % size
		if !used[uid] {
			_, err := tx.ExecContext(ctx, "UPDATE counters SET value = ? WHERE name = 'uid'", next)
			return uid, err
		}
	}
	return 0, ErrFull
}

// RemoveAgent removes the agent. Call it only when nothing of the agent is left
// on the host: its uid may be given to another one day. The error is
// [ErrNotFound] where there is none.
func (s *Store) RemoveAgent(ctx context.Context, name string) error {
	err := s.write(ctx, func(tx *sql.Tx) error {
		if err := endGrantsOf(ctx, tx, name); err != nil {
			return err
		}
		result, err := tx.ExecContext(ctx, "DELETE FROM agents WHERE name = ?", name)
		return found(result, err)
	})
	if err != nil {
		return fmt.Errorf("removing agent %s: %w", name, err)
	}
	return nil
}

// found turns a statement that changed no row into ErrNotFound.
func found(result sql.Result, err error) error {
	if err != nil {
		return err
	}
	n, err := result.RowsAffected()
	if err == nil && n == 0 {
		return ErrNotFound
	}
	return err
}

// missing turns the driver's word for no row into ours.
func missing(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return ErrNotFound
	}
	return err
}
