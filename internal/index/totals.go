// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package index

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"bawn/internal/audit"
	"bawn/internal/verdict"
)

// A Group is what totals are added up by.
type Group struct {
	Agent, User, Host, Code string
	Hour                    time.Time
}

// A Total is what a group comes to. A refusal is in Denied, whatever was refused:
// a request, a CONNECT, a connection, a question, a message of a WebSocket.
type Total struct {
	Group
	Requests int64 // let through, as budgets count them
	Denied   int64 // refusals, those without a record of their own included
	DNS      int64 // questions to the resolver, whatever it answered
	Messages int64 // of WebSockets that were judged, refused ones included
	Up, Down int64 // bytes
}

// isDNS is 1 for questions to the resolver.
func isDNS(proto string) int64 {
	if proto == "dns" {
		return 1
	}
	return 0
}

// The things to group by; they can be joined.
const (
	ByAgent = 1 << iota
	ByUser
	ByHost
	ByCode
	ByHour
)

// Totals adds up what f chooses, by one thing or several, the largest first; by
// hour, the oldest first. Entries are counted in the hour of their decision.
func (x *Index) Totals(ctx context.Context, f audit.Filter, by int) ([]Total, error) {
	f.Limit = 0
	q, err := x.query(ctx, f)
	if err != nil {
		return nil, err
	}
	defer q.done()
	t := &totals{by: by, sums: map[Group]*Total{}}
	days, err := q.days(Cursor{})
	if err != nil {
		return nil, err
	}
	for _, d := range days {
		if err := t.day(q, d); err != nil {
			return nil, q.fault(x, err)
		}
	}
	return t.sorted(), nil
}

type totals struct {
	by   int
	sums map[Group]*Total
}

// day adds what one part has: by whole hours where shapes can tell, and entry by
// entry where they cannot, or where an hour is cut.
func (t *totals) day(q *query, s span) error {
	f := &q.f
	wide, err := q.hasWide(s.day)
	if err != nil {
		return err
	}
	if f.Path+f.Client+f.Upstream+f.Request != "" || wide && (f.Host+f.Method != "") {
		return t.entries(q, s, 0, 0)
	}
	first, end := int64(0), int64(24) // whole hours
	for first < end && (hourStart(first) < s.lo-1<<tieBits || !f.Since.IsZero() && timeOf(s.day, hourStart(first)).Before(f.Since)) {
		first++
	}
	for first < end && !f.Until.IsZero() && timeOf(s.day, hourStart(end)).After(f.Until) {
		end--
	}
	if err := t.hours(q, s.day, first, end); err != nil {
		return err
	}
	return t.entries(q, s, first, end)
}

// hasWide reports whether a part has shapes that do not tell host and method.
func (q *query) hasWide(day int64) (wide bool, err error) {
	err = q.tx.QueryRowContext(q.ctx, fmt.Sprintf("SELECT EXISTS (SELECT 1 FROM shape_%d WHERE id > ? AND wide <> 0)", day), q.most).Scan(&wide)
	return wide, err
}

// hours adds the counts of whole hours.
func (t *totals) hours(q *query, day, first, end int64) error {
	if first >= end {
		return nil
	}
	where, args := shapeWhere(&q.f)
	where = append(where, "h.hour >= ? AND h.hour < ?", fmt.Sprintf("s.kind NOT IN (%d, %d, %d, %d)", kindSummary, kindGap, kindDamage, kindAct))
	args = append(args, first, end)
	if q.f.Host+q.f.Session+q.f.Rule+q.f.Method != "" || q.f.Status != 0 {
		where = append(where, fmt.Sprintf("s.kind <> %d", kindSummed)) // of which nothing of the kind is known
	}
	columns := []string{"''", "''", "''", "''", "0"}
	for i, c := range []struct {
		by   int
		expr string
	}{{ByAgent, "s.agent"}, {ByUser, "s.user"}, {ByHost, "s.host"}, {ByCode, "CASE s.code WHEN '' THEN s.outcode ELSE s.code END"}, {ByHour, "h.hour"}} {
		if t.by&c.by != 0 {
			columns[i] = c.expr
		}
	}
	rows, err := q.tx.QueryContext(q.ctx, fmt.Sprintf(`SELECT s.kind, s.verdict, s.dns, %[2]s, sum(h.n), sum(h.up), sum(h.down)
		FROM shape_%[1]d s CROSS JOIN hour_%[1]d h ON h.shape = s.id WHERE %[3]s GROUP BY 1, 2, 3, 4, 5, 6, 7, 8`,
		day, strings.Join(columns, ", "), strings.Join(where, " AND ")), args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var kind, effect, dns, hour, n, up, down int64
		var g Group
		if err := rows.Scan(&kind, &effect, &dns, &g.Agent, &g.User, &g.Host, &g.Code, &hour, &n, &up, &down); err != nil {
			return err
		}
		if g.Hour = timeOf(day, hourStart(hour)); n != 0 {
			t.add(g, kind, dns != 0, verdict.Effect(effect), count{n, up, down})
		}
	}
	return rows.Err()
}

func (t *totals) add(g Group, kind int64, dns bool, v verdict.Effect, c count) {
	if kind != kindDecision && kind != kindMessage && kind != kindSummed && kind != kindLost {
		return
	}
	sum := t.sums[g.only(t.by)]
	if sum == nil {
		sum = &Total{Group: g.only(t.by)}
		t.sums[sum.Group] = sum
	}
	switch {
	case kind == kindMessage:
		sum.Messages += c.n
	case kind == kindDecision && dns:
		sum.DNS += c.n
	case kind == kindDecision && v != verdict.Deny:
		sum.Requests += c.n
	}
	if kind != kindLost && v == verdict.Deny {
		sum.Denied += c.n
	}
	sum.Up += c.up
	sum.Down += c.down
}

// only leaves of g what is grouped by.
func (g Group) only(by int) Group {
	var out Group
	if by&ByAgent != 0 {
		out.Agent = g.Agent
	}
	if by&ByUser != 0 {
		out.User = g.User
	}
	if by&ByHost != 0 {
		out.Host = g.Host
	}
	if by&ByCode != 0 {
		out.Code = g.Code
	}
	if by&ByHour != 0 {
		out.Hour = g.Hour
	}
	return out
}

// entries adds entry by entry, but for whole hours that have been added.
func (t *totals) entries(q *query, s span, first, end int64) error {
	for hour := range int64(24) {
		one := span{s.day, max(s.lo, hourStart(hour)), min(s.hi, hourStart(hour+1))}
		if hour == 23 {
			one.hi = s.hi
		}
		if one.lo >= one.hi || hour >= first && hour < end {
			continue
		}
		for {
			hits, err := q.part(one, chunk, false)
			if err != nil {
				return err
			}
			for i := range hits {
				t.entry(&hits[i].Entry)
			}
			if len(hits) < chunk {
				break
			}
			one.lo = hits[len(hits)-1].id + 1
		}
	}
	return nil
}

func (t *totals) entry(e *audit.Entry) {
	switch {
	case e.Decision != nil:
		d := e.Decision
		g := Group{Agent: d.Agent, User: d.User, Host: d.Host, Code: string(d.Code), Hour: d.Time.Truncate(time.Hour)}
		kind := int64(kindDecision)
		if d.Message != 0 {
			kind = kindMessage
		}
		if e.Outcome != nil && g.Code == "" {
			g.Code = string(e.Outcome.Code)
		}
		up, down := bytesOf(e.Outcome)
		t.add(g, kind, isDNS(d.Proto) != 0, d.Verdict, count{1, up, down})
	case e.Outcome != nil:
		o := e.Outcome
		t.add(Group{Agent: o.Agent, User: o.User, Code: string(o.Code), Hour: o.Time.Truncate(time.Hour)}, kindLost, false, verdict.Allow, count{1, o.BytesUp, o.BytesDown})
	case e.Summary != nil:
		t.summary(e.Summary)
	}
}

func (t *totals) summary(s *audit.Summary) {
	left := s.Denials
	g := Group{Agent: s.Agent, User: s.User, Hour: s.Time.Truncate(time.Hour)}
	for code, n := range s.Codes {
		g.Code = string(code)
		left -= n
		t.add(g, kindSummed, false, verdict.Deny, count{n: int64(n)})
	}
	if left > 0 {
		g.Code = ""
		t.add(g, kindSummed, false, verdict.Deny, count{n: int64(left)})
	}
}

func (t *totals) sorted() []Total {
	list := make([]Total, 0, len(t.sums))
	for _, s := range t.sums {
		list = append(list, *s)
	}
	slices.SortFunc(list, func(a, b Total) int {
		if c := a.Hour.Compare(b.Hour); c != 0 {
			return c
		}
		if c := cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(b.Denied, a.Denied), cmp.Compare(b.DNS, a.DNS)); c != 0 {
			return c
		}
		return strings.Compare(a.Agent+"\x00"+a.User+"\x00"+a.Host+"\x00"+a.Code, b.Agent+"\x00"+b.User+"\x00"+b.Host+"\x00"+b.Code)
	})
	return list
}
