// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package index

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"bawn/internal/audit"
	"bawn/internal/codes"
)

// stepRows is how many rows one step of deleting takes: some 20 ms, for which
// nothing else is written.
const stepRows = 2000

// syncEvery is how often what was taken in is brought to the disk for good.
const syncEvery = 5 * time.Second

// oldestDay is the day before which nothing is kept.
func (x *Index) oldestDay() int64 {
	if x.o.Keep.Age <= 0 {
		return -1 << 31
	}
	return dayOf(x.o.Now().Add(-x.o.Keep.Age))
}

// keepHouse does one step of what is due when nothing else is.
func (x *Index) keepHouse(ctx context.Context) error {
	db, done, err := x.use()
	if err != nil {
		return err
	}
	defer done()
	w := &x.writer
	if w.conn == nil {
		return nil
	}
	if now := x.o.Now(); now.Sub(w.synced) >= syncEvery || now.Before(w.synced) {
		if err := x.sync(ctx, w); err != nil {
			return err
		}
		w.synced = now
		if err := x.mark(ctx, w); err != nil {
			return err
		}
	}
	return x.shrink(ctx, w, db)
}

// sync brings the write-ahead log into the database. What was in the index
// before is on the disk then, if nobody who reads kept part of it back.
func (x *Index) sync(ctx context.Context, w *writer) error {
	var busy, logged, moved int
	if err := w.conn.QueryRowContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)").Scan(&busy, &logged, &moved); err != nil {
		return fmt.Errorf("bringing the audit index to the disk: %w", err)
	}
	if busy != 0 || logged != moved {
		return nil
	}
	for _, s := range w.sources {
		s.durable = s.saved.File
	}
	x.report(w, true)
	return nil
}

// mark says of the parts that are beyond a bound that they are to go, and how
// much there is.
func (x *Index) mark(ctx context.Context, w *writer) error {
	used, err := size(ctx, w.conn)
	if err != nil {
		return err
	}
	x.health.Lock()
	x.state.Bytes = used
	x.health.Unlock()
	if _, err := w.conn.ExecContext(ctx, "UPDATE parts SET floor = ? WHERE day < ? AND floor < ?", maxID, x.oldestDay(), maxID); err != nil {
		return err
	}
	if x.o.Keep.Size <= 0 || used <= x.o.Keep.Size {
		return nil
	}
	return x.markOldest(ctx, w)
}

// markOldest gives up the oldest hour that has something in it.
func (x *Index) markOldest(ctx context.Context, w *writer) error {
	var waiting int
	if err := w.conn.QueryRowContext(ctx, "SELECT count(*) FROM parts WHERE floor = ?", maxID).Scan(&waiting); err != nil || waiting > 0 {
		return err // what is given up already has not gone yet
	}
	var day, floor, parts int64
	err := w.conn.QueryRowContext(ctx, "SELECT day, floor, (SELECT count(*) FROM parts) FROM parts ORDER BY day LIMIT 1").Scan(&day, &floor, &parts)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	next := maxID
	if parts == 1 {
		var first sql.NullInt64
		if err := w.conn.QueryRowContext(ctx, fmt.Sprintf("SELECT min(id) FROM row_%d", day)).Scan(&first); err != nil {
			return err
		}
		if next = hourStart(hourOf(first.Int64) + 1); !first.Valid || first.Int64 < floor {
			return nil // the hour before is still going
		}
	}
	x.o.Log.Info("the audit index is at its bound: the oldest entries go", "before", timeOf(day, min(next, dayMicros<<tieBits)))
	_, err = w.conn.ExecContext(ctx, "UPDATE parts SET floor = ? WHERE day = ?", next, day)
	return err
}

// size is how many bytes of the file are in use.
func size(ctx context.Context, conn *sql.Conn) (int64, error) {
	var pages, free, each int64
	err := conn.QueryRowContext(ctx, "SELECT (SELECT * FROM pragma_page_count), (SELECT * FROM pragma_freelist_count), (SELECT * FROM pragma_page_size)").
		Scan(&pages, &free, &each)
	return (pages - free) * each, err
}

// shrink deletes a step's worth of what is to go, and gives pages back that are
// free in large numbers.
func (x *Index) shrink(ctx context.Context, w *writer, db *databases) error {
	var day, floor int64
	err := w.conn.QueryRowContext(ctx, "SELECT day, floor FROM parts WHERE floor > 0 ORDER BY day LIMIT 1").Scan(&day, &floor)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return vacuum(ctx, w)
	case err != nil:
		return err
	}
	if floor < maxID {
		return x.trim(ctx, w, day, floor)
	}
	for _, table := range partTables {
		gone, err := deleteStep(ctx, w, table, day)
		if err != nil || gone > 0 {
			x.again()
			return err
		}
	}
	if p := w.parts[day]; p != nil {
		p.close()
		delete(w.parts, day)
	}
	x.o.Log.Info("a day has left the audit index", "day", timeOf(day, 0).Format(time.DateOnly))
	drop := "BEGIN IMMEDIATE;"
	for _, table := range partTables {
		drop += fmt.Sprintf(" DROP TABLE %s_%d;", table, day)
	}
	if _, err := w.conn.ExecContext(ctx, drop+fmt.Sprintf(" DELETE FROM parts WHERE day = %d; COMMIT", day)); err != nil {
		w.exec("ROLLBACK") //nolint:errcheck // the error before says it
		return err
	}
	x.again()
	return nil
}

// again has the next look come at once.
func (x *Index) again() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

func deleteStep(ctx context.Context, w *writer, table string, day int64) (int64, error) {
	key := "id"
	if table == "hour" {
		key = "shape, hour"
	}
	res, err := w.conn.ExecContext(ctx, fmt.Sprintf("DELETE FROM %[1]s_%[2]d WHERE (%[3]s) IN (SELECT %[3]s FROM %[1]s_%[2]d LIMIT %[4]d)", table, day, key, stepRows))
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// trim deletes the entries of one part below a number. Its texts and shapes stay
// until the part goes.
func (x *Index) trim(ctx context.Context, w *writer, day, floor int64) error {
	res, err := w.conn.ExecContext(ctx, fmt.Sprintf("DELETE FROM row_%[1]d WHERE id IN (SELECT id FROM row_%[1]d WHERE id < ? ORDER BY id LIMIT %[2]d)", day, stepRows), floor)
	if err != nil {
		return err
	}
	if gone, err := res.RowsAffected(); err != nil || gone > 0 {
		x.again()
		return err
	}
	_, err = w.conn.ExecContext(ctx, fmt.Sprintf("DELETE FROM hour_%d WHERE hour < ?", day), hourOf(floor))
	return errors.Join(err, vacuum(ctx, w))
}

// vacuum gives pages back to the file system where a quarter of them is free.
// Other free pages are used again.
func vacuum(ctx context.Context, w *writer) error {
	var pages, free int64
	if err := w.conn.QueryRowContext(ctx, "SELECT (SELECT * FROM pragma_page_count), (SELECT * FROM pragma_freelist_count)").Scan(&pages, &free); err != nil {
		return err
	}
	if free < 4096 || free*4 < pages {
		return nil
	}
	rows, err := w.conn.QueryContext(ctx, "PRAGMA incremental_vacuum(512)")
	if err != nil {
		return err
	}
	for rows.Next() { // each step gives back a page
	}
	return errors.Join(rows.Err(), rows.Close())
}

// undo takes out what a journal took back: writes that failed half way, of
// records that nobody acted on.
func (w *writer) undo(t taken) error {
	const most = 10000 // entries that one write could have held, by far
	left := most
	for _, day := range w.days {
		p, err := w.part(day)
		if err != nil {
			return err
		}
		find, err := p.stmt("SELECT id, shape, body, more, request FROM row_DAY ORDER BY id DESC LIMIT ?")
		if err != nil {
			return err
		}
		list, err := newest(find, left)
		if err != nil {
			return err
		}
		for i := range list {
			if err := w.undoOne(p, &list[i], t); err != nil {
				return err
			}
		}
		if left -= len(list); left <= 0 {
			break
		}
	}
	return nil
}

type newestRow struct {
	held
	request sql.NullInt64
}

func newest(find *sql.Stmt, most int) ([]newestRow, error) {
	rows, err := find.Query(most)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []newestRow
	for rows.Next() {
		var r newestRow
		if err := rows.Scan(&r.id, &r.shapeID, &r.body, &r.more, &r.request); err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, rows.Err()
}

func (w *writer) undoOne(p *part, r *newestRow, t taken) error {
	s, err := p.shape(r.shapeID)
	if err != nil || s.plane != t.plane || s.kind == kindDamage {
		return err
	}
	e, err := entryOf(s, p.day, r.id, r.request.Int64, r.body, r.more)
	if err != nil {
		return err
	}
	up, down := bytesOf(e.Outcome)
	if seqOf(e) >= t.seq {
		w.count(p.day, hourOf(r.id), r.shapeID, count{-1, -up, -down})
		if e.Summary != nil {
			if err := w.summed(p, r.id, s, negated(e.Summary)); err != nil {
				return err
			}
		}
		_, err := p.exec("DELETE FROM row_DAY WHERE id = ?", r.id)
		return err
	}
	if after := laterSeq(e); after < t.seq {
		return nil
	}
	// The entry stays, and what came of it goes.
	open := *s
	open.state, open.status, open.outcode, open.cut, open.presented, open.certificate = stateOpen, 0, "", "", "", ""
	if err := w.change(p, &r.held, &open, columns{}, nil); err != nil {
		return err
	}
	w.count(p.day, hourOf(r.id), r.shapeID, count{0, -up, -down})
	return nil
}

func negated(s *audit.Summary) *audit.Summary {
	n := *s
	n.Denials = -n.Denials
	n.Codes = nil
	for c, v := range s.Codes {
		if n.Codes == nil {
			n.Codes = map[codes.Code]uint64{}
		}
		n.Codes[c] = -v
	}
	return &n
}

func seqOf(e *audit.Entry) uint64 {
	switch {
	case e.Decision != nil:
		return e.Decision.Seq
	case e.Act != nil:
		return e.Act.Seq
	case e.Summary != nil:
		return e.Summary.Seq
	case e.Gap != nil:
		return e.Gap.Seq
	}
	return laterSeq(e)
}

func laterSeq(e *audit.Entry) uint64 {
	switch {
	case e.Outcome != nil:
		return e.Outcome.Seq
	case e.Result != nil:
		return e.Result.Seq
	case e.Dial != nil:
		return e.Dial.Seq
	}
	return 0
}
