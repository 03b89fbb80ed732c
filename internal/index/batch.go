// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package index

import (
	"time"

	"bawn/internal/audit"
	"bawn/internal/verdict"
)

// A pending is an entry on its way into the index.
type pending struct {
	audit.Entry
	at    time.Time
	plane string // of the series
}

// A batch is what one transaction takes in.
type batch struct {
	rows  []*pending
	open  map[string]*pending // those of rows that something may come of, by request or act
	late  []audit.Record      // what has come of older ones
	plane []string            // of late
	undo  []taken
	lines int
}

// A taken is what a journal took back: its records from seq on.
type taken struct {
	plane string
	seq   uint64
}

func newBatch() *batch { return &batch{open: map[string]*pending{}} }

// actKey keeps acts apart from requests, whose ids hold no space.
func actKey(id string) string { return "act " + id }

// add takes in a line of a series whose last record was of a time.
func (b *batch) add(plane string, line audit.Line, last time.Time) {
	b.lines++
	if line.Damage != nil {
		b.push(&pending{Entry: audit.Entry{Damage: line.Damage}, at: last, plane: plane})
	}
	switch r := line.Record; {
	case r.Decision != nil:
		row := &pending{Entry: audit.Entry{Decision: r.Decision}, at: r.Decision.Time, plane: plane}
		b.push(row)
		if r.Decision.Verdict != verdict.Deny && r.Decision.Message == 0 {
			b.open[r.Decision.Request] = row
		}
	case r.Outcome != nil:
		if row := b.open[r.Outcome.Request]; row != nil {
			row.Outcome, row.Dial = r.Outcome, nil
			delete(b.open, r.Outcome.Request)
			return
		}
		b.leave(plane, r)
	case r.Dial != nil:
		if row := b.open[r.Dial.Request]; row != nil {
			row.Dial = r.Dial
			return
		}
		b.leave(plane, r)
	case r.Summary != nil:
		b.push(&pending{Entry: audit.Entry{Summary: r.Summary}, at: r.Summary.Time, plane: plane})
	case r.Gap != nil:
		b.push(&pending{Entry: audit.Entry{Gap: r.Gap}, at: r.Gap.Time, plane: plane})
	case r.Act != nil:
		b.act(plane, r)
	}
}

func (b *batch) act(plane string, r audit.Record) {
	key := actKey(r.Act.ID)
	begun := r.Act.Result == audit.ActBegun
	if row := b.open[key]; row != nil && !begun {
		row.Result = r.Act
		delete(b.open, key)
		return
	}
	if !begun {
		b.leave(plane, r)
		return
	}
	row := &pending{Entry: audit.Entry{Act: r.Act}, at: r.Act.Time, plane: plane}
	b.push(row)
	b.open[key] = row
}

func (b *batch) push(row *pending) { b.rows = append(b.rows, row) }

func (b *batch) leave(plane string, r audit.Record) {
	b.late, b.plane = append(b.late, r), append(b.plane, plane)
}
