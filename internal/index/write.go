// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package index

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"bawn/internal/audit"
	"bawn/internal/verdict"
)

// A count is what an hour has of a shape.
type count struct{ n, up, down int64 }

type hourKey struct{ day, hour, shape int64 }

// A writer is what the goroutine that writes knows. After an error it is reset:
// what it knows may be of a transaction that was taken back.
type writer struct {
	conn    *sql.Conn
	parts   map[int64]*part
	sources map[string]*source
	hours   map[hourKey]count
	oldest  int64 // day before which nothing is kept
	most    int64 // shapes of a part, before new ones are widened
	days    []int64
	synced  time.Time
}

func (w *writer) reset() {
	w.close()
	*w = writer{most: w.most, parts: map[int64]*part{}, sources: map[string]*source{}, hours: map[hourKey]count{}}
}

func (w *writer) close() {
	for _, p := range w.parts {
		p.close()
	}
	for _, s := range w.sources {
		s.reader.Close()
	}
	if w.conn != nil {
		w.conn.Close()
	}
	w.conn, w.parts, w.sources = nil, nil, nil
}

// openParts bounds how many parts the writer keeps open.
const openParts = 8

func (w *writer) part(day int64) (*part, error) {
	if p := w.parts[day]; p != nil {
		return p, nil
	}
	if len(w.parts) >= openParts {
		for d, p := range w.parts {
			p.close()
			delete(w.parts, d)
		}
	}
	p, err := openPart(context.Background(), w.conn, day, w.most)
	if err == nil {
		w.parts[day] = p
	}
	return p, err
}

func (w *writer) exec(text string, args ...any) error {
	_, err := w.conn.ExecContext(context.Background(), text, args...)
	return err
}

// take puts a batch into the index, with the places that its series were read up
// to, all or nothing.
func (w *writer) take(b *batch) (err error) {
	if err := w.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			w.exec("ROLLBACK") //nolint:errcheck // the writer is reset
		}
	}()
	clear(w.hours)
	if w.days, err = days(w.conn); err != nil {
		return err
	}
	for _, t := range b.undo {
		if err := w.undo(t); err != nil {
			return err
		}
	}
	for i := range b.late {
		if err := w.late(b, &b.late[i], b.plane[i]); err != nil {
			return err
		}
	}
	for _, row := range b.rows {
		if err := w.row(row); err != nil {
			return err
		}
	}
	if err := w.addHours(); err != nil {
		return err
	}
	for _, s := range w.sources {
		if err := s.save(w); err != nil {
			return err
		}
	}
	return w.exec("COMMIT")
}

func days(conn *sql.Conn) ([]int64, error) {
	rows, err := conn.QueryContext(context.Background(), "SELECT day FROM parts ORDER BY day DESC")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []int64
	for rows.Next() {
		var d int64
		if err := rows.Scan(&d); err != nil {
			return nil, err
		}
		list = append(list, d)
	}
	return list, rows.Err()
}

func (w *writer) addHours() error {
	for k, c := range w.hours {
		if c == (count{}) {
			continue
		}
		p, err := w.part(k.day)
		if err != nil {
			return err
		}
		_, err = p.exec(`INSERT INTO hour_DAY (hour, shape, n, up, down) VALUES (?, ?, ?, ?, ?)
			ON CONFLICT (shape, hour) DO UPDATE SET n = n + excluded.n, up = up + excluded.up, down = down + excluded.down`,
			k.hour, k.shape, c.n, c.up, c.down)
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) count(day, hour, shape int64, c count) {
	k := hourKey{day, hour, shape}
	old := w.hours[k]
	w.hours[k] = count{old.n + c.n, old.up + c.up, old.down + c.down}
}

func bytesOf(o *audit.Outcome) (up, down int64) {
	if o == nil {
		return 0, 0
	}
	return o.BytesUp, o.BytesDown
}

// The times that an entry may have; what a clock shows beyond them is put at the
// time of the index, and keeps its own in its body.
var (
	firstTime = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	lastTime  = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
)

// row inserts one entry.
func (w *writer) row(r *pending) error {
	at := r.at
	if at.Before(firstTime) || at.After(lastTime) {
		at = time.Now()
	}
	day := dayOf(at)
	if day < w.oldest {
		return nil
	}
	p, err := w.part(day)
	if err != nil {
		return err
	}
	id := idOf(at)
	s, cols, err := p.columns(r, id)
	if err != nil {
		return err
	}
	if s.kind == kindDecision || s.kind == kindMessage {
		id |= int64(r.Decision.Seq & (1<<tieBits - 1))
	}
	shape, err := p.shapeID(s)
	if err != nil {
		return err
	}
	if id, err = p.insert(id, shape, cols); err != nil {
		return err
	}
	up, down := bytesOf(r.Outcome)
	w.count(day, hourOf(id), shape, count{1, up, down})
	if r.Summary != nil {
		return w.summed(p, id, s, r.Summary)
	}
	return nil
}

// summed counts the denials that a summary stands for.
func (w *writer) summed(p *part, id int64, s *shape, sum *audit.Summary) error {
	left := int64(sum.Denials)
	add := func(t shape, n int64) error {
		shape, err := p.shapeID(&t)
		if err == nil {
			w.count(p.day, hourOf(id), shape, count{n: n})
		}
		return err
	}
	for code, n := range sum.Codes {
		t := *s
		t.kind, t.code = kindSummed, code
		left -= int64(n)
		if err := add(t, int64(n)); err != nil {
			return err
		}
	}
	if left == 0 {
		return nil
	}
	t := *s
	t.kind = kindSummed
	return add(t, left)
}

// columns gives shape and columns of an entry.
func (p *part) columns(r *pending, id int64) (*shape, columns, error) {
	switch {
	case r.Decision != nil:
		return p.decisionColumns(r, id)
	case r.Outcome != nil:
		s := &shape{kind: kindLost, id: r.Outcome.Identity, revision: r.Outcome.Revision, plane: r.Outcome.Plane}
		s.ends(r.Outcome)
		body, err := packJSON(r.Outcome)
		return s, columns{body: body, request: requestKey(r.Outcome.Request)}, err
	case r.Summary != nil:
		s := &shape{kind: kindSummary, id: r.Summary.Identity, plane: r.Summary.Plane, verdict: verdict.Deny}
		body, err := packJSON(r.Summary)
		return s, columns{body: body}, err
	case r.Gap != nil:
		body, err := packJSON(r.Gap)
		return &shape{kind: kindGap, plane: r.Gap.Plane}, columns{body: body}, err
	case r.Act != nil:
		return actColumns(r)
	}
	body, err := packJSON(r.Damage)
	return &shape{kind: kindDamage, plane: r.plane}, columns{body: body}, err
}

func actColumns(r *pending) (*shape, columns, error) {
	a := r.Act
	s := &shape{kind: kindAct, plane: a.Plane, code: a.Code}
	s.id.Agent, s.id.User = a.Agent, a.User
	body, err := packJSON(a)
	cols := columns{body: body, request: hashOf(actKey(a.ID))}
	if r.Result != nil && err == nil {
		s.state, s.outcode = stateEnded, r.Result.Code
		cols.more, err = packJSON(r.Result)
	}
	return s, cols, err
}

func (p *part) decisionColumns(r *pending, id int64) (*shape, columns, error) {
	d := r.Decision
	s := decisionShape(d)
	wide := p.shapes >= p.most
	if wide {
		s.widen()
	}
	cols := columns{request: requestKey(d.Request), body: packDecision(nil, d, timeOf(p.day, id), wide)}
	var err error
	if cols.path, err = p.number(&p.paths, d.Path); err != nil {
		return nil, cols, err
	}
	if cols.client, err = p.address(d.Client); err != nil {
		return nil, cols, err
	}
	if err := p.ends(&s, &cols, d, r.Outcome, r.Dial, timeOf(p.day, id)); err != nil {
		return nil, cols, err
	}
	return &s, cols, nil
}

// ends adds what has come of a decision to its shape and columns.
func (p *part) ends(s *shape, cols *columns, d *audit.Decision, o *audit.Outcome, dial *audit.Dial, at time.Time) (err error) {
	local, upstream := "", ""
	switch {
	case o != nil:
		s.ends(o)
		local, upstream = o.Local, o.Upstream
		if o.Identity == d.Identity && o.Revision == d.Revision && o.Plane == d.Plane && o.Request == d.Request {
			cols.more = packOutcome(nil, o, at)
		} else {
			cols.more, err = packJSON(o)
		}
	case dial != nil:
		s.state, local, upstream = stateDial, dial.Local, dial.Upstream
		cols.more, err = packJSON(dial)
	default:
		return nil
	}
	if err != nil {
		return err
	}
	if cols.local, err = p.address(local); err != nil {
		return err
	}
	cols.upstream, err = p.address(upstream)
	return err
}

// late adds what has come of an entry that is in the index already.
func (w *writer) late(b *batch, r *audit.Record, plane string) error {
	key, at := int64(0), r.Time()
	switch {
	case r.Outcome != nil:
		key, at = requestKey(r.Outcome.Request), at.Add(-time.Duration(r.Outcome.Total))
	case r.Dial != nil:
		key = requestKey(r.Dial.Request)
	case r.Act != nil:
		key = hashOf(actKey(r.Act.ID))
	}
	known := false
	for _, day := range near(w.days, dayOf(at)) {
		p, err := w.part(day)
		if err != nil {
			return err
		}
		done, found, err := w.lateIn(p, key, r)
		if known = known || found; done || err != nil {
			return err
		}
	}
	if known {
		return nil // a second outcome, or one of what was refused
	}
	switch {
	case r.Outcome != nil:
		b.push(&pending{Entry: audit.Entry{Outcome: r.Outcome}, at: r.Outcome.Time, plane: plane})
	case r.Act != nil:
		b.push(&pending{Entry: audit.Entry{Act: r.Act}, at: r.Act.Time, plane: plane})
	}
	return nil
}

// near gives the days in the order in which they are likely to be the one.
func near(days []int64, hint int64) []int64 {
	list := make([]int64, 0, len(days))
	for pass := range 2 {
		for _, d := range days {
			if close := d >= hint-1 && d <= hint+1; close == (pass == 0) {
				list = append(list, d)
			}
		}
	}
	return list
}

// lateIn looks for the entry in one part. found says that there is one which it
// could belong to.
func (w *writer) lateIn(p *part, key int64, r *audit.Record) (done, found bool, err error) {
	find, err := p.stmt("SELECT id, shape, body, more FROM row_DAY WHERE request = ? ORDER BY id DESC")
	if err != nil {
		return false, false, err
	}
	rows, err := find.Query(key)
	if err != nil {
		return false, false, err
	}
	var list []held
	for rows.Next() {
		var h held
		if err := rows.Scan(&h.id, &h.shapeID, &h.body, &h.more); err != nil {
			rows.Close()
			return false, false, err
		}
		list = append(list, h)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return false, false, err
	}
	for _, h := range list {
		s, err := p.shape(h.shapeID)
		if err != nil {
			return false, found, err
		}
		mine, open, err := p.belongs(&h, s, key, r)
		if found = found || mine; err != nil {
			return false, found, err
		}
		if mine && open {
			return true, true, w.update(p, &h, s, r)
		}
	}
	return false, found, nil
}

// A held is an entry of the index that may change.
type held struct {
	id, shapeID int64
	body, more  []byte
	decision    audit.Decision
	act         audit.Act
}

// belongs reports whether r is about the entry, and whether that waits for it.
func (p *part) belongs(h *held, s *shape, key int64, r *audit.Record) (mine, open bool, err error) {
	switch {
	case s.kind == kindAct && r.Act != nil:
		err = unpackJSON(h.body, &h.act)
		return h.act.ID == r.Act.ID, s.state == stateOpen && h.act.Result == audit.ActBegun, err
	case (s.kind == kindDecision || s.kind == kindMessage) && r.Act == nil:
		s.decision(&h.decision)
		if err := unpackDecision(h.body, &h.decision, timeOf(p.day, h.id), key); err != nil {
			return false, false, err
		}
		request := ""
		if r.Outcome != nil {
			request = r.Outcome.Request
		} else {
			request = r.Dial.Request
		}
		return h.decision.Request == request,
			s.kind == kindDecision && s.verdict != verdict.Deny && s.state != stateEnded, nil
	}
	return false, false, nil
}

func (w *writer) update(p *part, h *held, old *shape, r *audit.Record) error {
	s, cols := *old, columns{}
	var err error
	if r.Act != nil {
		s.state, s.outcode = stateEnded, r.Act.Code
		cols.more, err = packJSON(r.Act)
	} else {
		err = p.ends(&s, &cols, &h.decision, r.Outcome, r.Dial, timeOf(p.day, h.id))
	}
	if err != nil {
		return err
	}
	return w.change(p, h, &s, cols, r.Outcome)
}

// change gives an entry another shape and what has come of it.
func (w *writer) change(p *part, h *held, s *shape, cols columns, o *audit.Outcome) error {
	id, err := p.shapeID(s)
	if err != nil {
		return err
	}
	if _, err := p.exec("UPDATE row_DAY SET shape = ?, local = ?, upstream = ?, more = ? WHERE id = ?",
		id, cols.local, cols.upstream, cols.more, h.id); err != nil {
		return err
	}
	up, down := bytesOf(o)
	w.count(p.day, hourOf(h.id), h.shapeID, count{n: -1})
	w.count(p.day, hourOf(h.id), id, count{1, up, down})
	return nil
}
