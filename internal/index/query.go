// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package index

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"bawn/internal/audit"
)

// A Cursor is a place between entries. The zero Cursor is behind all of them.
type Cursor struct{ day, id int64 }

// String gives the form that [ParseCursor] reads.
func (c Cursor) String() string {
	return strconv.FormatInt(c.day, 10) + "." + strconv.FormatInt(c.id, 10)
}

var errCursor = errors.New("not a place that an earlier page gave")

// ParseCursor reads the form of [Cursor.String].
func ParseCursor(s string) (Cursor, error) {
	day, id, ok := strings.Cut(s, ".")
	d, err1 := strconv.ParseInt(day, 10, 32)
	n, err2 := strconv.ParseInt(id, 10, 64)
	if !ok || err1 != nil || err2 != nil || n < 0 || n > maxID || (Cursor{d, n}).String() != s {
		return Cursor{}, errCursor
	}
	return Cursor{d, n}, nil
}

// Entries hands out what f chooses, oldest first; with f.Limit the newest so
// many. An error ends it.
func (x *Index) Entries(ctx context.Context, f audit.Filter) iter.Seq2[audit.Entry, error] {
	return func(yield func(audit.Entry, error) bool) {
		if f.Limit == 0 {
			x.forward(ctx, f, yield)
			return
		}
		list, err := x.newest(ctx, f)
		for _, e := range list {
			if !yield(e, nil) {
				return
			}
		}
		if err != nil {
			yield(audit.Entry{}, err)
		}
	}
}

// newest returns a whole page, however long it takes.
func (x *Index) newest(ctx context.Context, f audit.Filter) ([]audit.Entry, error) {
	var list []audit.Entry
	limit, at := f.Limit, Cursor{}
	for {
		f.Limit = limit - len(list)
		page, more, err := x.Page(ctx, f, at)
		if err != nil {
			return nil, err
		}
		list = append(page, list...)
		if at = more; len(list) == limit || more == (Cursor{}) {
			return list, nil
		}
	}
}

// pageTime is how long a page is looked for. One that is not full then says where
// to go on.
const pageTime = 700 * time.Millisecond

// Page returns the newest f.Limit entries in front of a cursor that f chooses,
// oldest first, and the cursor of the page before; zero where there is none. Where
// entries are rare and far back, there can be fewer, and a page before them all
// the same.
func (x *Index) Page(ctx context.Context, f audit.Filter, before Cursor) (page []audit.Entry, more Cursor, err error) {
	q, err := x.query(ctx, f)
	if err != nil {
		return nil, Cursor{}, err
	}
	defer q.done()
	days, err := q.days(before)
	if err != nil {
		return nil, Cursor{}, err
	}
	q.until = time.Now().Add(x.pageTime)
	for _, d := range days {
		if q.late(&d) {
			more = q.stopped
			break
		}
		hits, err := q.part(d, f.Limit-len(page), true)
		if err != nil {
			return nil, Cursor{}, q.fault(x, err)
		}
		for i := range hits {
			page = append(page, hits[i].Entry)
		}
		if q.stopped != (Cursor{}) && len(page) < f.Limit {
			more = q.stopped
			break
		}
		if len(page) == f.Limit && len(hits) > 0 {
			more = Cursor{d.day, hits[len(hits)-1].id}
			break
		}
	}
	for i, j := 0, len(page)-1; i < j; i, j = i+1, j-1 {
		page[i], page[j] = page[j], page[i]
	}
	return page, more, nil
}

// chunk is how many entries are fetched at once where all are wanted: nothing is
// kept open while somebody reads them slowly.
const chunk = 1000

func (x *Index) forward(ctx context.Context, f audit.Filter, yield func(audit.Entry, error) bool) {
	var from Cursor
	for {
		hits, next, err := x.ahead(ctx, f, from)
		if err != nil {
			yield(audit.Entry{}, err)
			return
		}
		for i := range hits {
			if !yield(hits[i].Entry, nil) {
				return
			}
		}
		if next == (Cursor{}) {
			return
		}
		from = next
	}
}

// ahead returns the next entries from a cursor on, oldest first, and where to go
// on; zero at the end.
func (x *Index) ahead(ctx context.Context, f audit.Filter, from Cursor) (hits []hit, next Cursor, err error) {
	q, err := x.query(ctx, f)
	if err != nil {
		return nil, Cursor{}, err
	}
	defer q.done()
	days, err := q.days(Cursor{})
	if err != nil {
		return nil, Cursor{}, err
	}
	for i := len(days) - 1; i >= 0; i-- {
		d := days[i]
		if from != (Cursor{}) && d.day < from.day {
			continue
		}
		if from != (Cursor{}) && d.day == from.day {
			d.lo = max(d.lo, from.id)
		}
		hits, err := q.part(d, chunk, false)
		if err != nil {
			return nil, Cursor{}, q.fault(x, err)
		}
		switch {
		case len(hits) == chunk:
			return hits, Cursor{d.day, hits[len(hits)-1].id + 1}, nil
		case i > 0:
			if len(hits) > 0 {
				return hits, Cursor{days[i-1].day, days[i-1].lo}, nil
			}
		default:
			return hits, Cursor{}, nil
		}
	}
	return nil, Cursor{}, nil
}

// A query is one look at the index.
type query struct {
	ctx  context.Context
	db   *databases
	tx   *sql.Tx // all of it is of one moment
	f    audit.Filter
	done func()

	until   time.Time // when to stop looking; zero: at the end
	looked  bool      // each page gets somewhere
	most    int64     // shapes of a day that are not wide
	stopped Cursor    // where that was
}

// late reports whether it is time to stop, in front of the end of s.
func (q *query) late(s *span) bool {
	if q.until.IsZero() || !q.looked || time.Now().Before(q.until) {
		return false
	}
	q.stopped = Cursor{s.day, s.hi}
	return true
}

func (x *Index) query(ctx context.Context, f audit.Filter) (*query, error) {
	db, done, err := x.use()
	if err != nil {
		return nil, err
	}
	if err := db.replaced(); err != nil {
		done()
		return nil, fmt.Errorf("asking the audit index: %w", err)
	}
	tx, err := db.reader.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		done()
		return nil, fmt.Errorf("asking the audit index: %w", err)
	}
	q := &query{ctx: ctx, db: db, tx: tx, f: f, most: x.o.Shapes}
	q.done = func() {
		tx.Rollback() //nolint:errcheck // nothing was written
		done()
	}
	return q, nil
}

// fault has an index that is spoilt looked at by the one who can mend it.
func (q *query) fault(x *Index, err error) error {
	if spoilt(err) {
		x.again()
	}
	return fmt.Errorf("asking the audit index: %w", err)
}

// A span is the part of a part that is asked for: lo <= number < hi.
type span struct{ day, lo, hi int64 }

// days returns the parts that f is about, newest first.
func (q *query) days(before Cursor) ([]span, error) {
	rows, err := q.tx.QueryContext(q.ctx, "SELECT day, floor FROM parts ORDER BY day DESC")
	if err != nil {
		return nil, fmt.Errorf("asking the audit index: %w", err)
	}
	defer rows.Close()
	var list []span
	for rows.Next() {
		s := span{hi: maxID}
		if err := rows.Scan(&s.day, &s.lo); err != nil {
			return nil, err
		}
		if before != (Cursor{}) {
			if s.day > before.day {
				continue
			}
			if s.day == before.day {
				s.hi = before.id
			}
		}
		if s.within(q.f.Since, q.f.Until); s.lo < s.hi {
			list = append(list, s)
		}
	}
	return list, rows.Err()
}

// within narrows s to what may be of a time from since until before until.
func (s *span) within(since, until time.Time) {
	if !since.IsZero() {
		switch day := dayOf(since); {
		case day > s.day:
			s.lo = maxID
		case day == s.day:
			s.lo = max(s.lo, idOf(since)-1<<tieBits) // entries of one moment may have moved on
		}
	}
	if !until.IsZero() {
		switch day := dayOf(until); {
		case day < s.day:
			s.hi = 0
		case day == s.day:
			s.hi = min(s.hi, idOf(until)+1000<<tieBits)
		}
	}
}

// A hit is an entry with its number.
type hit struct {
	audit.Entry
	id int64
}

// part returns the first entries of a span, at most limit, from its end if back.
func (q *query) part(s span, limit int, back bool) ([]hit, error) {
	plan, err := q.plan(s)
	q.looked = true
	if err != nil || plan == nil {
		return nil, err
	}
	v := &view{q: q, day: s.day, shapes: map[int64]*shape{}, texts: map[int64]string{}}
	var hits []hit
	for len(hits) < limit {
		want := limit - len(hits)
		if plan.loose {
			want = max(want, 256) // some will not be what is asked for
		}
		ids, end, err := plan.next(q, &s, want, back)
		if err != nil {
			return nil, err
		}
		found, err := v.entries(ids)
		if err != nil {
			return nil, err
		}
		for i := range found {
			if q.f.Chooses(&found[i].Entry) && len(hits) < limit {
				hits = append(hits, found[i])
			}
		}
		if end || len(hits) < limit && q.late(&s) {
			break
		}
	}
	return hits, nil
}

// A plan says how to find the numbers of entries in a part.
type plan struct {
	where  []string // conditions, joined by AND
	index  string   // that finds them; empty: SQLite chooses
	args   []any
	shapes string         // JSON list of the shapes that will do; empty: any
	scan   bool           // go through the entries by time, and not through an index
	hours  map[int64]bool // that hold something
	total  int64          // entries that have one of the shapes
	loose  bool
}

// scanBeyond is how many entries are rather found by going through all of them,
// since they are many of all, than sorted.
const scanBeyond = 60000

// plan returns nil where the part holds nothing that is asked for.
func (q *query) plan(s span) (*plan, error) {
	p := &plan{}
	if known, err := q.knowsPath(s.day); err != nil || !known {
		return nil, err
	}
	shapes, all, err := q.shapes(s.day)
	if err != nil || !all && len(shapes) == 0 {
		return nil, err
	}
	if !all {
		list, err := json.Marshal(shapes)
		if err != nil {
			return nil, err
		}
		p.shapes = string(list)
	}
	ok, err := q.columns(p, s.day)
	if err != nil || !ok {
		return nil, err
	}
	p.loose = q.f.Code != ""
	if p.index != "" {
		return p, nil
	}
	if q.f.Path == "" && all {
		p.scan = true
		return p, nil
	}
	if err := q.weigh(p, s.day); err != nil || q.f.Path == "" {
		return p, err
	}
	return q.withPath(p, s.day)
}

// knowsPath reports whether the part has a path of the kind that is asked for.
func (q *query) knowsPath(day int64) (known bool, err error) {
	if q.f.Path == "" {
		return true, nil
	}
	err = q.tx.QueryRowContext(q.ctx, fmt.Sprintf("SELECT EXISTS (SELECT 1 FROM path_%d WHERE text >= ? AND text < ?)", day), q.f.Path, q.f.Path+"\U0010ffff").Scan(&known)
	return known, err
}

// withPath decides what a path is looked for by: by the index of paths, where
// that holds few of the kind, or with each entry, since many entries have it.
func (q *query) withPath(p *plan, day int64) (*plan, error) {
	var texts, rows, paths int64
	err := q.tx.QueryRowContext(q.ctx, fmt.Sprintf(`SELECT
		(SELECT count(*) FROM (SELECT 1 FROM path_%[1]d WHERE text >= ?1 AND text < ?2 LIMIT 5000)),
		(SELECT coalesce(sum(n), 0) FROM hour_%[1]d), (SELECT coalesce(max(id), 1) FROM path_%[1]d)`, day), q.f.Path, q.f.Path+"\U0010ffff").
		Scan(&texts, &rows, &paths)
	if err != nil || texts == 0 {
		return nil, err
	}
	p.args = append(p.args, q.f.Path, q.f.Path+"\U0010ffff")
	if likely := texts * max(1, rows/max(1, paths)); texts < 5000 && likely < p.total {
		p.where = append(p.where, fmt.Sprintf("path IN (SELECT id FROM path_%d WHERE text >= ? AND text < ?)", day))
		p.index, p.scan = fmt.Sprintf("row_path_%d", day), false
		return p, nil
	}
	p.where = append(p.where, fmt.Sprintf("EXISTS (SELECT 1 FROM path_%[1]d p WHERE p.id = row_%[1]d.path AND p.text >= ? AND p.text < ?)", day))
	return p, nil
}

// weigh decides whether what has one of the shapes is sorted or met by going
// through the hours that have it.
func (q *query) weigh(p *plan, day int64) error {
	where, args := "", []any{}
	if p.shapes != "" {
		where, args = " WHERE shape IN (SELECT value FROM json_each(?))", append(args, p.shapes)
	}
	rows, err := q.tx.QueryContext(q.ctx, fmt.Sprintf("SELECT hour, sum(n) FROM hour_%d%s GROUP BY hour", day, where), args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	p.hours = map[int64]bool{}
	for rows.Next() {
		var hour, n int64
		if err := rows.Scan(&hour, &n); err != nil {
			return err
		}
		p.total += n
		p.hours[hour] = n > 0
	}
	p.scan = p.total > scanBeyond || p.shapes == ""
	return rows.Err()
}

// next returns the numbers that come next in s, and takes them out of it. end says
// that there are no more.
func (p *plan) next(q *query, s *span, want int, back bool) (ids []int64, end bool, err error) {
	if p.scan && p.hours != nil {
		return p.nextHours(q, s, want, back)
	}
	ids, err = p.fetch(q, *s, want, back)
	if err != nil || len(ids) < want {
		return ids, true, err
	}
	s.take(ids[len(ids)-1], back)
	return ids, false, nil
}

func (s *span) take(id int64, back bool) {
	if back {
		s.hi = id
	} else {
		s.lo = id + 1
	}
}

// nextHours is next for a plan that goes through the hours that hold something.
func (p *plan) nextHours(q *query, s *span, want int, back bool) (ids []int64, end bool, err error) {
	for s.lo < s.hi && !q.late(s) {
		hour := hourOf(min(s.lo, hourStart(24)-1))
		if back {
			hour = hourOf(min(s.hi, hourStart(24)) - 1)
		}
		one := span{s.day, max(s.lo, hourStart(hour)), min(s.hi, hourStart(hour+1))}
		if hour == 23 {
			one.hi = s.hi
		}
		if p.hours[hour] {
			ids, err = p.fetch(q, one, want, back)
			if err != nil {
				return nil, true, err
			}
		}
		if len(ids) == want {
			s.take(ids[len(ids)-1], back)
			return ids, false, nil
		}
		if back {
			s.hi = one.lo
		} else {
			s.lo = one.hi
		}
		if len(ids) > 0 {
			return ids, s.lo >= s.hi, nil
		}
	}
	return nil, true, nil
}

// fetch reads numbers of a span in order.
func (p *plan) fetch(q *query, s span, want int, back bool) ([]int64, error) {
	q.looked = true
	where := append([]string{"id >= ? AND id < ?"}, p.where...)
	args := append([]any{s.lo, s.hi}, p.args...)
	if p.shapes != "" {
		column := "shape"
		if p.scan || p.index != "" {
			column = "+shape" // not by its index
		}
		where, args = append(where, column+" IN (SELECT value FROM json_each(?))"), append(args, p.shapes)
	}
	order := ""
	if back {
		order = " DESC"
	}
	from := fmt.Sprintf("row_%d", s.day)
	switch {
	case p.scan:
		from += " NOT INDEXED"
	case p.index != "":
		from += " INDEXED BY " + p.index
	}
	rows, err := q.tx.QueryContext(q.ctx, fmt.Sprintf("SELECT id FROM %s WHERE %s ORDER BY id%s LIMIT ?", from, strings.Join(where, " AND "), order), append(args, want)...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var ids []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// shapes returns those that f lets through, as far as a shape can tell; all
// where f asks nothing of them.
func (q *query) shapes(day int64) (list []int64, all bool, err error) {
	where, args := shapeWhere(&q.f)
	if len(where) == 0 {
		return nil, true, nil
	}
	rows, err := q.tx.QueryContext(q.ctx, fmt.Sprintf("SELECT id FROM shape_%d WHERE %s", day, strings.Join(where, " AND ")), args...)
	if err != nil {
		return nil, false, err
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, false, err
		}
		list = append(list, id)
	}
	return list, false, rows.Err()
}

// shapeWhere gives the conditions of f on shapes. They let through more than f
// does where a shape does not tell.
func shapeWhere(f *audit.Filter) (where []string, args []any) {
	add := func(cond string, arg ...any) {
		where, args = append(where, cond), append(args, arg...)
	}
	for _, c := range []struct{ column, value string }{
		{"agent", f.Agent}, {"user", f.User}, {"session", f.Session}, {"plane", f.Plane}, {"rule", f.Rule},
	} {
		if c.value != "" {
			add(c.column+" = ?", c.value)
		}
	}
	if f.Except != "" {
		add("agent <> ?", f.Except)
	}
	if f.NoActs {
		add(fmt.Sprintf("kind <> %d", kindAct))
	}
	if f.Host != "" {
		add("(host = ? OR wide <> 0)", f.Host)
	}
	if f.Method != "" {
		add("(method = ? OR wide <> 0)", f.Method)
	}
	if f.Verdict != nil {
		add("verdict = ?", int64(*f.Verdict))
	}
	if f.Code != "" {
		add(fmt.Sprintf("(code = ? OR outcode = ? OR kind = %d)", kindSummary), string(f.Code), string(f.Code))
	}
	if f.Status != 0 {
		add("status = ?", f.Status)
	}
	return where, args
}

// columns adds the conditions of f on entries themselves. It reports false where
// the part does not know what is asked for.
func (q *query) columns(p *plan, day int64) (bool, error) {
	f := &q.f
	use := func(column, cond string, args ...any) {
		p.where, p.args = append(p.where, cond), append(p.args, args...)
		if p.index == "" {
			p.index = fmt.Sprintf("row_%s_%d", column, day)
		}
	}
	if f.Request != "" {
		use("request", "request = ?", requestKey(f.Request))
	}
	for _, c := range []struct{ column, value string }{{"client", f.Client}, {"upstream", f.Upstream}} {
		if c.value == "" {
			continue
		}
		cond, args, err := q.end(day, c.column, c.value)
		if err != nil || cond == "" {
			return false, err
		}
		use(c.column, cond, args...)
	}
	return true, nil
}

// end gives the condition that an address, with a port or without, is in a
// column; none where the part does not know it.
func (q *query) end(day int64, column, value string) (cond string, args []any, err error) {
	number := func(text string) (n int64, err error) {
		err = q.tx.QueryRowContext(q.ctx, fmt.Sprintf("SELECT id FROM text_%d WHERE text = ?", day), text).Scan(&n)
		if errors.Is(err, sql.ErrNoRows) {
			return 0, nil
		}
		return n, err
	}
	host, port := splitAddress(value)
	if addr, err := netip.ParseAddr(value); err == nil {
		if host, port = value, 0; addr.Is6() {
			host = "[" + value + "]"
		}
	}
	n, err := number(host)
	if err != nil {
		return "", nil, err
	}
	if port != 0 {
		if n == 0 {
			return "", nil, nil
		}
		return column + " = ?", []any{n<<16 | port}, nil
	}
	if n == 0 {
		return "", nil, nil
	}
	return column + " BETWEEN ? AND ?", []any{n << 16, n<<16 | math.MaxUint16}, nil
}
