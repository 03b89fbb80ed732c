// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package index_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"bawn/internal/audit"
	"bawn/internal/codes"
	"bawn/internal/index"
	"bawn/internal/verdict"
)

// added adds the journals up, entry by entry.
func (w *world) added(f audit.Filter, by int) []index.Total {
	sums := map[index.Group]*index.Total{}
	add := func(g index.Group, t index.Total) {
		var only index.Group
		for bit, set := range map[int]func(){
			index.ByAgent: func() { only.Agent = g.Agent }, index.ByUser: func() { only.User = g.User }, index.ByHost: func() { only.Host = g.Host },
			index.ByCode: func() { only.Code = g.Code }, index.ByHour: func() { only.Hour = g.Hour.Truncate(time.Hour) },
		} {
			if by&bit != 0 {
				set()
			}
		}
		s := sums[only]
		if s == nil {
			s = &index.Total{Group: only}
			sums[only] = s
		}
		s.Requests += t.Requests
		s.Denied += t.Denied
		s.DNS += t.DNS
		s.Messages += t.Messages
		s.Up += t.Up
		s.Down += t.Down
	}
	for _, e := range w.oracle(f) {
		switch {
		case e.Decision != nil:
			d, t := e.Decision, index.Total{Requests: 1}
			if d.Proto == "dns" {
				t = index.Total{DNS: 1}
			}
			if d.Message != 0 {
				t = index.Total{Messages: 1}
			}
			g := index.Group{Agent: d.Agent, User: d.User, Host: d.Host, Code: string(d.Code), Hour: d.Time}
			if d.Verdict == verdict.Deny {
				t.Requests, t.Denied = 0, 1
			}
			if o := e.Outcome; o != nil {
				t.Up, t.Down = o.BytesUp, o.BytesDown
				if g.Code == "" {
					g.Code = string(o.Code)
				}
			}
			add(g, t)
		case e.Summary != nil:
			for code, n := range e.Summary.Codes {
				if f.Code == "" || f.Code == code {
					add(index.Group{Agent: e.Summary.Agent, User: e.Summary.User, Code: string(code), Hour: e.Summary.Time}, index.Total{Denied: int64(n)})
				}
			}
		}
	}
	var list []index.Total
	for _, s := range sums {
		list = append(list, *s)
	}
	return list
}

func byGroup(a, b index.Total) int {
	return strings.Compare(fmt.Sprint(a.Group), fmt.Sprint(b.Group))
}

func TestTotalsAgreeWithTheJournals(t *testing.T) {
	w := newWorld(t, 5)
	w.denials = 2
	w.reopen()
	x := run(t, w.options())
	w.write(1500)
	w.flood(40)
	w.close()
	x.catchUp()
	deny := verdict.Deny
	for name, f := range map[string]audit.Filter{
		"all": {}, "agent": {Agent: "dev"}, "host": {Host: "a.example"}, "denied": {Verdict: &deny}, "code": {Code: codes.HostNotAllowed},
		"part of an hour": {Since: start.Add(100 * time.Minute), Until: start.Add(200 * time.Minute)},
		"within an hour":  {Since: start.Add(62 * time.Minute), Until: start.Add(75 * time.Minute)},
		"whole hours":     {Since: start.Add(time.Hour), Until: start.Add(3 * time.Hour)}, "path": {Path: "/v1/"}, "upstream": {Upstream: "192.0.2.1"},
		"status": {Status: 200}, "rule": {Rule: "r1", User: "ann"},
	} {
		for _, by := range []int{index.ByAgent, index.ByHost | index.ByAgent, index.ByCode, index.ByHour, index.ByUser | index.ByCode | index.ByHour} {
			got, err := x.Totals(t.Context(), f, by)
			must(t, err)
			want := w.added(f, by)
			slices.SortFunc(want, byGroup)
			slices.SortFunc(got, byGroup)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s by %d\n-journal +index\n%s", name, by, diff)
			}
		}
	}
}
