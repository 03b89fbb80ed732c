// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package index

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"bawn/internal/audit"
)

// batchLines is how many lines one transaction takes in at most: each touches
// pages all over the file, so that many at once cost less.
const batchLines = 1 << 14

// A source is one series on its way into the index.
type source struct {
	dir, plane string
	reader     *audit.Reader
	saved      audit.Position // as in the database
	at         audit.Position // behind the last line of the batch at hand
	fresh      bool           // nothing is in the database yet
	last       time.Time
	records    uint64
	damages    uint64
	damage     string
	held       *audit.Line // was read and waits for the next batch
	durable    string
}

// Run reads the journals into the index until ctx is done. What goes wrong it
// tells the log and [Index.Health], and tries again.
func (x *Index) Run(ctx context.Context) error {
	tick := time.NewTicker(x.o.Every)
	defer tick.Stop()
	cpus := hostProcessors()
	for ctx.Err() == nil {
		waiters, began := x.takeWaiters(), time.Now()
		complete, err := x.ingest(ctx)
		pause := rest(time.Since(began), cpus.unused(), x.answer(waiters, complete && err == nil))
		if err != nil && ctx.Err() == nil {
			x.failed(ctx, err)
		}
		if err == nil && complete {
			x.quiet()
			if err := x.keepHouse(ctx); err != nil && ctx.Err() == nil {
				x.failed(ctx, err)
			}
		}
		if asked := x.wait(ctx, pause); err == nil && !complete || asked {
			continue
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-x.wake:
		}
	}
	return nil
}

// wait lets the pause go by, or reports that somebody asks meanwhile.
func (x *Index) wait(ctx context.Context, pause time.Duration) (asked bool) {
	if pause <= 0 {
		return false
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-x.wake:
		return true
	}
	return false
}

// failed makes the index anew if it is spoilt; otherwise what was under way is
// forgotten and read again.
func (x *Index) failed(ctx context.Context, err error) {
	if spoilt(err) {
		if err = x.rebuild(ctx, err); err == nil {
			x.health.Lock()
			x.state.Rebuilt++
			x.health.Unlock()
			return
		}
	}
	x.alarm(err.Error())
	x.mu.Lock()
	defer x.mu.Unlock()
	x.writer.reset()
}

// ingest takes in one batch. It reports whether it has come to the end of every
// series.
func (x *Index) ingest(ctx context.Context) (complete bool, err error) {
	if err := x.reopen(ctx); err != nil {
		return false, err
	}
	db, done, err := x.use()
	if err != nil {
		return false, err
	}
	defer done()
	if err := db.replaced(); err != nil {
		return false, err
	}
	w := &x.writer
	if w.conn == nil {
		if w.conn, err = db.writer.Conn(ctx); err != nil {
			return false, err
		}
	}
	w.oldest = x.oldestDay()
	if err := x.findSources(w); err != nil {
		return false, err
	}
	b, complete, fault := x.gather(ctx, w)
	if b.lines > 0 || len(b.undo) > 0 {
		if err := w.take(b); err != nil {
			return false, fmt.Errorf("writing the audit index: %w", err)
		}
		for _, s := range w.sources {
			s.saved, s.fresh = s.at, false
		}
	}
	x.report(w, complete)
	return complete, fault
}

// findSources looks for series that are new.
func (x *Index) findSources(w *writer) error {
	for _, dir := range x.o.Journals {
		planes, err := audit.Series(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		for _, plane := range planes {
			if w.sources[plane] != nil {
				continue
			}
			s, err := loadSource(w.conn, dir, plane)
			if err != nil {
				return err
			}
			w.sources[plane] = s
		}
	}
	return nil
}

func loadSource(conn *sql.Conn, dir, plane string) (*source, error) {
	s := &source{dir: dir, plane: plane}
	var hash []byte
	var last int64
	err := conn.QueryRowContext(context.Background(), "SELECT file, offset, seq, hash, last, records, damages, damage FROM series WHERE plane = ?", plane).
		Scan(&s.saved.File, &s.saved.Offset, &s.saved.Seq, &hash, &last, &s.records, &s.damages, &s.damage)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		s.fresh = true
	case err != nil:
		return nil, err
	default:
		copy(s.saved.Hash[:], hash)
		s.last = time.UnixMicro(last).UTC()
	}
	s.at, s.reader = s.saved, audit.OpenReader(dir, plane, s.saved)
	return s, nil
}

var errMoved = errors.New("somebody else writes to the audit index as well")

// save keeps how far the series has been read. That somebody else has moved it on
// takes the transaction back: each record goes in once.
func (s *source) save(w *writer) error {
	p := s.at
	res, err := w.conn.ExecContext(context.Background(), `
		INSERT INTO series (plane, file, offset, seq, hash, last, records, damages, damage) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
		ON CONFLICT (plane) DO UPDATE SET file = ?2, offset = ?3, seq = ?4, hash = ?5, last = ?6, records = ?7, damages = ?8, damage = ?9
		WHERE NOT ?10 AND file = ?11 AND offset = ?12`,
		s.plane, p.File, p.Offset, int64(p.Seq), p.Hash[:], s.last.UnixMicro(), int64(s.records), int64(s.damages), s.damage,
		s.fresh, s.saved.File, s.saved.Offset)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n != 1 {
		return errors.Join(errMoved, err)
	}
	return nil
}

// gather reads what is new, one series after the other, up to the bound of a
// batch. A series that cannot be read does not keep the others back.
func (x *Index) gather(ctx context.Context, w *writer) (b *batch, complete bool, fault error) {
	b, complete = newBatch(), true
	for _, s := range w.sources {
		end, err := x.read(ctx, b, s)
		fault = errors.Join(fault, err)
		complete = complete && end
	}
	return b, complete, fault
}

func (x *Index) read(ctx context.Context, b *batch, s *source) (end bool, err error) {
	for n := 0; n < batchLines; n++ {
		line, err := s.line()
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil || ctx.Err() != nil {
			return false, err
		}
		if line.Back {
			if n > 0 {
				s.held = &line
				return false, nil
			}
			b.undo = append(b.undo, taken{s.plane, line.Seq})
		}
		s.note(x, line)
		b.add(s.plane, line, s.last)
	}
	return false, nil
}

func (s *source) line() (audit.Line, error) {
	if s.held != nil {
		line := *s.held
		s.held = nil
		return line, nil
	}
	return s.reader.Next()
}

func (s *source) note(x *Index, line audit.Line) {
	s.at = line.Next
	if line.Damage != nil {
		s.damages++
		s.damage = fmt.Sprintf("%s, byte %d: %s", line.Damage.File, line.Damage.Offset, line.Damage.Error)
		x.o.Log.Error("a journal is damaged; the audit index goes on behind", "plane", s.plane,
			"file", line.Damage.File, "offset", line.Damage.Offset, "error", line.Damage.Error)
	}
	if t := line.Time(); !t.IsZero() {
		s.last = t
		s.records++
	}
}

// report brings the health up to date.
func (x *Index) report(w *writer, complete bool) {
	x.health.Lock()
	defer x.health.Unlock()
	st := &x.state
	st.Series, st.Damages, st.Behind = st.Series[:0], 0, 0
	for _, s := range w.sources {
		st.Series = append(st.Series, SeriesHealth{
			Plane: s.plane, Position: s.saved, Last: s.last, Records: s.records, Damages: s.damages, Damage: s.damage, Durable: s.durable,
		})
		st.Damages += s.damages
		if n, err := audit.Behind(s.dir, s.plane, s.saved); err == nil && !complete {
			st.Behind += n
		}
	}
	slices.SortFunc(st.Series, func(a, b SeriesHealth) int { return strings.Compare(a.Plane, b.Plane) })
	if complete {
		x.complete = x.o.Now()
	}
}
