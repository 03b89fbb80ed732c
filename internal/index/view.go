// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package index

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"bawn/internal/audit"
)

// A view reads entries of one part.
type view struct {
	q      *query
	day    int64
	shapes map[int64]*shape
	texts  map[int64]string
}

// entries returns the entries of numbers, in their order.
func (v *view) entries(ids []int64) ([]hit, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	list, err := json.Marshal(ids)
	if err != nil {
		return nil, err
	}
	rows, err := v.q.tx.QueryContext(v.q.ctx, fmt.Sprintf(`SELECT r.id, r.shape, p.text, r.client, r.local, r.upstream, r.request, r.body, r.more
		FROM json_each(?) j CROSS JOIN row_%[1]d r ON r.id = j.value LEFT JOIN path_%[1]d p ON p.id = r.path ORDER BY j.key`, v.day), string(list))
	if err != nil {
		return nil, err
	}
	var raw []rawRow
	for rows.Next() {
		var r rawRow
		if err := rows.Scan(&r.id, &r.shape, &r.path, &r.client, &r.local, &r.upstream, &r.request, &r.body, &r.more); err != nil {
			rows.Close()
			return nil, err
		}
		raw = append(raw, r)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return nil, err
	}
	hits := make([]hit, 0, len(raw))
	for i := range raw {
		e, err := v.entry(&raw[i])
		if err != nil {
			return nil, err
		}
		hits = append(hits, hit{*e, raw[i].id})
	}
	return hits, nil
}

type rawRow struct {
	id, shape                        int64
	path                             sql.NullString
	client, local, upstream, request sql.NullInt64
	body, more                       []byte
}

func (v *view) entry(r *rawRow) (*audit.Entry, error) {
	s, err := v.shape(r.shape)
	if err != nil {
		return nil, err
	}
	e, err := entryOf(s, v.day, r.id, r.request.Int64, r.body, r.more)
	if err != nil || e.Decision == nil {
		return e, err
	}
	e.Decision.Path = r.path.String
	if e.Decision.Client, err = v.address(r.client); err != nil {
		return nil, err
	}
	if e.Outcome == nil {
		return e, nil
	}
	if e.Outcome.Local, err = v.address(r.local); err != nil {
		return nil, err
	}
	e.Outcome.Upstream, err = v.address(r.upstream)
	return e, err
}

func (v *view) shape(id int64) (*shape, error) {
	if s := v.shapes[id]; s != nil {
		return s, nil
	}
	var key []byte
	if err := v.q.tx.QueryRowContext(v.q.ctx, fmt.Sprintf("SELECT key FROM shape_%d WHERE id = ?", v.day), id).Scan(&key); err != nil {
		return nil, err
	}
	s, err := parseShape(key)
	if err == nil {
		v.shapes[id] = s
	}
	return s, err
}

func (v *view) address(n sql.NullInt64) (string, error) {
	if !n.Valid {
		return "", nil
	}
	id := n.Int64 >> 16
	text, ok := v.texts[id]
	if !ok {
		if err := v.q.tx.QueryRowContext(v.q.ctx, fmt.Sprintf("SELECT text FROM text_%d WHERE id = ?", v.day), id).Scan(&text); err != nil {
			return "", err
		}
		v.texts[id] = text
	}
	return joinAddress(text, n.Int64&math.MaxUint16), nil
}

// entryOf puts an entry together, without what is in columns of its own.
func entryOf(s *shape, day, id, request int64, body, more []byte) (*audit.Entry, error) {
	e, at := &audit.Entry{}, timeOf(day, id)
	switch s.kind {
	case kindDecision, kindMessage:
		e.Decision = &audit.Decision{}
		s.decision(e.Decision)
		if err := unpackDecision(body, e.Decision, at, request); err != nil {
			return nil, err
		}
	case kindSummary:
		e.Summary = &audit.Summary{}
		return e, unpackJSON(body, e.Summary)
	case kindGap:
		e.Gap = &audit.Gap{}
		return e, unpackJSON(body, e.Gap)
	case kindDamage:
		e.Damage = &audit.Damage{}
		return e, unpackJSON(body, e.Damage)
	case kindLost:
		e.Outcome, e.Lost = &audit.Outcome{}, lost
		return e, unpackJSON(body, e.Outcome)
	case kindAct:
		e.Act = &audit.Act{}
		if err := unpackJSON(body, e.Act); err != nil || more == nil {
			return e, err
		}
		e.Result = &audit.Act{}
		return e, unpackJSON(more, e.Result)
	default:
		return nil, errKey
	}
	return e, ended(e, s, request, more, at)
}

// lost is what an outcome without its decision says.
const lost = "the decision is not in the journal any more, or could not be read"

func ended(e *audit.Entry, s *shape, request int64, more []byte, at time.Time) error {
	switch {
	case s.state == stateDial:
		e.Dial = &audit.Dial{}
		return unpackJSON(more, e.Dial)
	case s.state == stateEnded:
		e.Outcome = &audit.Outcome{Request: e.Decision.Request}
		s.outcome(e.Outcome)
		return unpackOutcome(more, e.Outcome, at)
	}
	return nil
}
