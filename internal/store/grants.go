// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// A Grant is a rule that one agent has for a time, beside the policy. It belongs
// to the agent's registration, and ends with that.
type Grant struct {
	Number  uint64 // from 1 on, never given twice; set by AddGrant
	Agent   string
	AgentID string // of the registration
	Rule    string // YAML
	Reason  string // in the words of who gave it
	UID     uint32 // who gave it, from the kernel
	Account string // the name of that account then
	At      time.Time
	Until   time.Time // when it ends by itself
	Ended   time.Time // when somebody ended it, or its time was found to be over; zero: neither
	Why     string    // how it ended
}

const grantColumns = "number, agent, agent_id, rule, reason, uid, account, at, until, ended, why"

// AddGrant adds g and returns it with its number. The error is [ErrNotFound]
// where no agent has the name and id.
func (s *Store) AddGrant(ctx context.Context, g Grant) (Grant, error) {
	err := s.write(ctx, func(tx *sql.Tx) error {
		var there bool
		if err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM agents WHERE name = ? AND id = ?)", g.Agent, g.AgentID).Scan(&there); err != nil {
			return err
		}
		if !there {
			return ErrNotFound
		}
		return tx.QueryRowContext(ctx, `INSERT INTO grants (agent, agent_id, rule, reason, uid, account, at, until)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING number`,
			g.Agent, g.AgentID, g.Rule, g.Reason, g.UID, g.Account, micros(g.At), micros(g.Until)).Scan(&g.Number)
	})
	if err != nil {
		return Grant{}, fmt.Errorf("adding a grant for agent %s: %w", g.Agent, err)
	}
	g.At, g.Until = fromMicros(micros(g.At)), fromMicros(micros(g.Until))
	return g, nil
}

// EndGrant ends grant n. The error is [ErrNotFound] where there is none or it
// has ended.
func (s *Store) EndGrant(ctx context.Context, n uint64, at time.Time, why string) error {
	err := s.write(ctx, func(tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, "UPDATE grants SET ended = ?, why = ? WHERE number = ? AND ended IS NULL", micros(at), why, n)
		return found(result, err)
	})
	if err != nil {
		return fmt.Errorf("ending grant %d: %w", n, err)
	}
	return nil
}

// Grants returns the grants that have not ended and those that ended at or after
// since, oldest first; the zero time asks for all there ever were.
func (s *Store) Grants(ctx context.Context, since time.Time) ([]Grant, error) {
	at := int64(-1 << 62)
	if !since.IsZero() {
		at = micros(since)
	}
	rows, err := s.reader.QueryContext(ctx, "SELECT "+grantColumns+" FROM grants WHERE ended IS NULL OR ended >= ? ORDER BY number", at)
	if err != nil {
		return nil, fmt.Errorf("listing grants: %w", err)
	}
	defer rows.Close()
	var all []Grant
	for rows.Next() {
		g, err := scanGrant(rows)
		if err != nil {
			return nil, fmt.Errorf("listing grants: %w", err)
		}
		all = append(all, g)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("listing grants: %w", err)
	}
	return all, nil
}

func scanGrant(row interface{ Scan(...any) error }) (Grant, error) {
	var g Grant
	var at, until int64
	var ended sql.NullInt64
	if err := row.Scan(&g.Number, &g.Agent, &g.AgentID, &g.Rule, &g.Reason, &g.UID, &g.Account, &at, &until, &ended, &g.Why); err != nil {
		return Grant{}, missing(err)
	}
	g.At, g.Until = fromMicros(at), fromMicros(until)
	if ended.Valid {
		g.Ended = fromMicros(ended.Int64)
	}
	return g, nil
}

// endGrantsOf ends the grants of a registration that ends.
func endGrantsOf(ctx context.Context, tx *sql.Tx, agent string) error {
	_, err := tx.ExecContext(ctx, `UPDATE grants SET ended = ?, why = 'the agent was removed'
		WHERE ended IS NULL AND agent_id = (SELECT id FROM agents WHERE name = ?)`, micros(time.Now()), agent)
	return err
}
