// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package index

import (
	"context"
	"fmt"
	"slices"
	"time"

	"bawn/internal/audit"
	"bawn/internal/ids"
)

// An Asking is the question who was behind an address at a time.
type Asking struct {
	Address  string // and port
	Upstream bool   // on the upstream side: Bawn's end, or else the server's; if not: the agent's end
	At       time.Time
	Within   time.Duration // how exact At is: the time meant is from At until Within later
	Agent    string        // only this one; empty: any
}

// A Certainty says how much speaks for an answer. The greater, the more.
type Certainty int

// The certainties.
const (
	// Later: the first use of the address that is on record came after the time.
	Later Certainty = iota
	// Earlier: the last use of the address had ended before, and nothing later is
	// on record.
	Earlier
	// Between: the same session used the address before and after.
	Between
	// Carried: a request was under way.
	Carried
)

// String gives the word that the API has.
func (c Certainty) String() string { return [...]string{"later", "earlier", "between", "carried"}[c] }

// A Suspect is one session that may have been behind the address.
type Suspect struct {
	ids.Identity
	Certainty Certainty
	Entry     audit.Entry // the request that speaks for it
	From, To  time.Time   // of that request; To is zero while it goes on
}

// Found answers an [Asking]: the sessions that had to do with the address, those
// that most speaks for first.
type Found struct {
	// Side says what the address was found to be: client, local (Bawn's end of an
	// upstream connection) or server.
	Side     string
	Suspects []Suspect
	// More says that more requests had the address near the time than were looked
	// at: one that began before them may have been under way as well.
	More bool
}

// Certain reports whether one session was behind the address, and no other can
// have been.
func (f *Found) Certain() bool {
	return !f.More && len(f.Suspects) > 0 && f.Suspects[0].Certainty == Carried &&
		(len(f.Suspects) == 1 || f.Suspects[1].Certainty < Between)
}

const (
	// whoBefore is how long before the time a request may have begun that was
	// under way then: nothing may take longer.
	whoBefore = 25 * time.Hour
	// whoAfter is how long after it a session is looked for that had the address
	// before as well.
	whoAfter = time.Hour
	// whoMost bounds how many entries are looked at on each side of the time, the
	// nearest of all that had the address, and whoRows how many are read for it.
	whoMost = 2000
	whoRows = 20_000
)

// Who looks for the sessions behind an address.
func (x *Index) Who(ctx context.Context, a Asking) (*Found, error) {
	q, err := x.query(ctx, audit.Filter{Agent: a.Agent})
	if err != nil {
		return nil, err
	}
	defer q.done()
	sides := []string{"client"}
	if a.Upstream {
		sides = []string{"local", "upstream"}
	}
	f := &Found{}
	for _, column := range sides {
		f.Side = map[string]string{"client": "client", "local": "local", "upstream": "server"}[column]
		hits, more, err := q.around(column, a)
		if err != nil {
			return nil, q.fault(x, err)
		}
		f.More = more
		f.weigh(hits, a)
		if len(f.Suspects) > 0 {
			break
		}
	}
	return f, nil
}

// around returns the entries that have the address, near the time.
func (q *query) around(column string, a Asking) (all []audit.Entry, more bool, err error) {
	for _, back := range []bool{true, false} {
		if !back && column == "upstream" {
			break // only those matter that were connected then
		}
		s := q.f
		end := a.At.Add(a.Within)
		if back {
			s.Since, s.Until = a.At.Add(-whoBefore), end.Add(time.Microsecond)
		} else {
			s.Since, s.Until = end.Add(time.Microsecond), end.Add(whoAfter)
		}
		side := query{ctx: q.ctx, db: q.db, tx: q.tx, f: s}
		days, err := side.days(Cursor{})
		if err != nil {
			return nil, false, err
		}
		if !back {
			slices.Reverse(days)
		}
		left := bounds{entries: whoMost, rows: whoRows}
		for _, d := range days {
			if left.over() {
				break
			}
			hits, err := side.withAddress(d, column, a.Address, &left, back)
			if err != nil {
				return nil, false, err
			}
			for i := range hits {
				all = append(all, hits[i].Entry)
			}
		}
		more = more || back && left.over()
	}
	return all, more, nil
}

// bounds are how much may still be looked at.
type bounds struct{ entries, rows int }

func (b *bounds) over() bool { return b.entries <= 0 || b.rows <= 0 }

// withAddress returns entries of a part that have the address in a column, the
// nearest of the span's end if back. What the filter leaves out costs rows and no
// entries: others who have the address hide nobody who is asked for.
func (q *query) withAddress(s span, column, address string, left *bounds, back bool) (hits []hit, err error) {
	cond, args, err := q.end(s.day, column, address)
	if err != nil || cond == "" {
		return nil, err
	}
	p := &plan{where: []string{cond}, args: args, index: fmt.Sprintf("row_%s_%d", column, s.day)}
	v := &view{q: q, day: s.day, shapes: map[int64]*shape{}, texts: map[int64]string{}}
	for end := false; !end && !left.over(); {
		var ids []int64
		if ids, end, err = p.next(q, &s, min(left.rows, left.entries), back); err != nil {
			return nil, err
		}
		found, err := v.entries(ids)
		if err != nil {
			return nil, err
		}
		left.rows -= len(ids)
		for i := range found {
			if found[i].Decision != nil && q.f.Chooses(&found[i].Entry) && left.entries > 0 {
				hits = append(hits, found[i])
				left.entries--
			}
		}
	}
	return hits, nil
}

// weigh makes one suspect of each session.
func (f *Found) weigh(entries []audit.Entry, a Asking) {
	type seen struct{ before, carried, after *Suspect }
	sessions := map[ids.Identity]*seen{}
	var order []ids.Identity
	for i := range entries {
		s := suspect(&entries[i])
		at := sessions[s.Identity]
		if at == nil {
			at = &seen{}
			sessions[s.Identity] = at
			order = append(order, s.Identity)
		}
		switch {
		case s.From.After(a.At.Add(a.Within)):
			if at.after == nil || s.From.Before(at.after.From) {
				at.after = s
			}
		case s.To.IsZero() || !s.To.Before(a.At):
			if at.carried == nil || s.From.After(at.carried.From) {
				at.carried = s
			}
		case at.before == nil || s.To.After(at.before.To):
			at.before = s
		}
	}
	for _, id := range order {
		at := sessions[id]
		switch {
		case at.carried != nil:
			f.add(at.carried, Carried)
		case at.before != nil && at.after != nil:
			f.add(at.before, Between)
		case at.before != nil:
			f.add(at.before, Earlier)
		default:
			f.add(at.after, Later)
		}
	}
	slices.SortStableFunc(f.Suspects, func(a, b Suspect) int { return int(b.Certainty - a.Certainty) })
}

func (f *Found) add(s *Suspect, c Certainty) {
	s.Certainty = c
	f.Suspects = append(f.Suspects, *s)
}

// suspect gives the time of an entry: a refusal ends at once, and so does what
// has no connection of its own.
func suspect(e *audit.Entry) *Suspect {
	s := &Suspect{Identity: e.Decision.Identity, Entry: *e, From: e.Decision.Time, To: e.Decision.Time}
	switch {
	case e.Outcome != nil:
		s.To = e.Outcome.Time
	case e.Decision.Verdict.String() != "deny" && e.Decision.Proto != "dns" && e.Decision.Message == 0:
		s.To = time.Time{}
	}
	return s
}
