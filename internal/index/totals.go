// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package index

import (
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

// A Total is what a group comes to.
type Total struct {
	Group
	Requests int64 // decisions, those without a record of their own included; messages of WebSockets not
	Denied   int64 // of these
	Messages int64
	Up, Down int64 // bytes
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
	if f.Path+f.Client+f.Upstream+f.Request != "" {
		return t.entries(q, s, func(int64) bool { return true })
	}
	whole := func(hour int64) bool {
		from := timeOf(s.day, hourStart(hour))
		return hourStart(hour) >= s.lo-1<<tieBits && (f.Since.IsZero() || !from.Before(f.Since)) &&
			(f.Until.IsZero() || !from.Add(time.Hour).After(f.Until))
	}
	wide, err := t.hours(q, s, whole)
	if err != nil {
		return err
	}
	return t.entries(q, s, func(hour int64) bool { return !whole(hour) || wide[hour] })
}

// hours adds the counts of whole hours. It returns the hours that have shapes
// which do not tell what f or the grouping asks for, and leaves those out.
func (t *totals) hours(q *query, s span, whole func(int64) bool) (map[int64]bool, error) {
	where, args := shapeWhere(&q.f)
	cond := ""
	if len(where) > 0 {
		cond = " WHERE " + strings.Join(where, " AND ")
	}
	rows, err := q.tx.QueryContext(q.ctx, fmt.Sprintf(`SELECT h.hour, h.n, h.up, h.down, s.kind, s.agent, s.user, s.host, s.verdict, s.code, s.outcode, s.wide
		FROM (SELECT * FROM shape_%[1]d%[2]s) s CROSS JOIN hour_%[1]d h ON h.shape = s.id`, s.day, cond), args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	type line struct {
		hour, n, up, down, kind, verdict, wide int64
		g                                      Group
		outcode                                string
	}
	var lines []line
	wide := map[int64]bool{}
	for rows.Next() {
		var l line
		if err := rows.Scan(&l.hour, &l.n, &l.up, &l.down, &l.kind, &l.g.Agent, &l.g.User, &l.g.Host, &l.verdict, &l.g.Code, &l.outcode, &l.wide); err != nil {
			return nil, err
		}
		if !whole(l.hour) || l.n == 0 {
			continue
		}
		if l.wide != 0 && (q.f.Host+q.f.Method != "") {
			wide[l.hour] = true
		}
		lines = append(lines, l)
	}
	for _, l := range lines {
		if wide[l.hour] || q.f.Code != "" && !counts(string(q.f.Code), l.kind, l.g.Code, l.outcode) {
			continue
		}
		if l.kind == kindSummed && (q.f.Host+q.f.Session+q.f.Rule+q.f.Method != "" || q.f.Status != 0) {
			continue
		}
		if l.g.Code == "" {
			l.g.Code = l.outcode
		}
		l.g.Hour = timeOf(s.day, hourStart(l.hour))
		t.add(l.g, l.kind, verdict.Effect(l.verdict), l.n, l.up, l.down)
	}
	return wide, rows.Err()
}

// counts reports whether a shape is of a code: that of a summary is not known, but
// its denials are counted under a shape for each.
func counts(want string, kind int64, code, outcode string) bool {
	return kind != kindSummary && (code == want || outcode == want)
}

func (t *totals) add(g Group, kind int64, v verdict.Effect, n, up, down int64) {
	if kind != kindDecision && kind != kindMessage && kind != kindSummed && kind != kindLost {
		return
	}
	sum := t.sums[g.only(t.by)]
	if sum == nil {
		sum = &Total{Group: g.only(t.by)}
		t.sums[sum.Group] = sum
	}
	switch kind {
	case kindMessage:
		sum.Messages += n
	case kindDecision, kindSummed:
		sum.Requests += n
		if v == verdict.Deny {
			sum.Denied += n
		}
	}
	sum.Up += up
	sum.Down += down
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

// entries adds entry by entry, in the hours that are wanted.
func (t *totals) entries(q *query, s span, wanted func(hour int64) bool) error {
	for hour := range int64(24) {
		one := span{s.day, max(s.lo, hourStart(hour)), min(s.hi, hourStart(hour+1))}
		if hour == 23 {
			one.hi = s.hi
		}
		if one.lo >= one.hi || !wanted(hour) {
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
		t.add(g, kind, d.Verdict, 1, up, down)
	case e.Outcome != nil:
		o := e.Outcome
		t.add(Group{Agent: o.Agent, User: o.User, Code: string(o.Code), Hour: o.Time.Truncate(time.Hour)}, kindLost, verdict.Allow, 1, o.BytesUp, o.BytesDown)
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
		t.add(g, kindSummed, verdict.Deny, int64(n), 0, 0)
	}
	if left > 0 {
		g.Code = ""
		t.add(g, kindSummed, verdict.Deny, int64(left), 0, 0)
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
		if a.Requests != b.Requests {
			return int(b.Requests - a.Requests)
		}
		return strings.Compare(a.Agent+"\x00"+a.User+"\x00"+a.Host+"\x00"+a.Code, b.Agent+"\x00"+b.User+"\x00"+b.Host+"\x00"+b.Code)
	})
	return list
}
