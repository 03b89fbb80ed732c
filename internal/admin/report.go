// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"bawn/internal/apitype"
	"bawn/internal/audit"
	"bawn/internal/codes"
	"bawn/internal/index"
	"bawn/internal/peercred"
	"bawn/internal/session"
)

// auditReport says what agents did in a time, and what of it is new.
func (s *Server) auditReport(w http.ResponseWriter, q *http.Request, _ peercred.Peer) error {
	values := q.URL.Query()
	for k := range values {
		if k != "since" && k != "until" {
			return badRequest("report: %q is unknown", k)
		}
	}
	since, err := filterTime("since", values.Get("since"))
	if err != nil || since.IsZero() {
		return badRequest("report: since %q is not a time (RFC 3339)", values.Get("since"))
	}
	until, err := filterTime("until", values.Get("until"))
	if err != nil {
		return err
	}
	if until.IsZero() {
		until = s.o.Now()
	}
	if !since.Before(until) {
		return badRequest("report: there is no time between since and until")
	}
	note, _ := s.note(q.Context())
	r, err := s.reportOf(q.Context(), since, until)
	if err != nil {
		return err
	}
	r.Note, r.Damages = note, s.index.Health().Damages
	writeJSON(w, http.StatusOK, r)
	return nil
}

func (s *Server) reportOf(ctx context.Context, since, until time.Time) (*apitype.Report, error) {
	r := &apitype.Report{Since: since, Until: until, Before: since.Add(since.Sub(until)), Agents: []apitype.AgentReport{}}
	const by = index.ByAgent | index.ByUser | index.ByHost | index.ByCode
	now, err := s.index.Totals(ctx, audit.Filter{Since: since, Until: until}, by)
	if err != nil {
		return nil, err
	}
	before, err := s.index.Totals(ctx, audit.Filter{Since: r.Before, Until: since}, by)
	if err != nil {
		return nil, err
	}
	agents, order := map[string]*agentSums{}, []string{}
	for _, t := range now {
		if t.Agent == session.Doctor {
			r.Own = plus(r.Own, t)
			continue
		}
		if agents[t.Agent] == nil {
			agents[t.Agent] = newSums(t.Agent)
			order = append(order, t.Agent)
		}
		agents[t.Agent].now(t)
	}
	for _, t := range before {
		if a := agents[t.Agent]; a != nil {
			a.before(t)
		}
	}
	slices.Sort(order)
	for _, name := range order {
		r.Agents = append(r.Agents, agents[name].report())
	}
	return r, nil
}

func plus(sum *apitype.Total, t index.Total) *apitype.Total {
	if sum == nil {
		sum = &apitype.Total{}
	}
	sum.Requests += t.Requests
	sum.Denied += t.Denied
	sum.DNS += t.DNS
	sum.Messages += t.Messages
	sum.Up += t.Up
	sum.Down += t.Down
	return sum
}

// agentSums gathers what is said of one agent.
type agentSums struct {
	out            apitype.AgentReport
	users          map[string]bool
	hosts, refused map[string]*apitype.Total
	codes          map[string]int64
	knownHosts     map[string]bool // of the time before
	knownCodes     map[string]bool
}

func newSums(agent string) *agentSums {
	a := &agentSums{
		users: map[string]bool{}, hosts: map[string]*apitype.Total{}, refused: map[string]*apitype.Total{},
		codes: map[string]int64{}, knownHosts: map[string]bool{}, knownCodes: map[string]bool{},
	}
	a.out.Agent = agent
	return a
}

func (a *agentSums) now(t index.Total) {
	plus(&a.out.Total, t)
	a.users[t.User] = true
	if t.Denied > 0 {
		a.codes[t.Code] += t.Denied
		a.refused[t.Host] = plus(a.refused[t.Host], t)
	}
	if t.Requests > 0 {
		a.hosts[t.Host] = plus(a.hosts[t.Host], t)
	}
}

func (a *agentSums) before(t index.Total) {
	a.out.Before = plus(a.out.Before, t)
	a.knownHosts[t.Host], a.knownCodes[t.Code] = true, true
}

func (a *agentSums) report() apitype.AgentReport {
	out := a.out
	out.New = out.Before == nil
	for u := range a.users {
		out.Users = append(out.Users, u)
	}
	slices.Sort(out.Users)
	out.Hosts, out.Asked = byUse(a.hosts), byUse(a.refused)
	for _, h := range out.Hosts {
		if h.Host != "" && !a.knownHosts[h.Host] {
			out.Fresh = append(out.Fresh, h.Host)
		}
	}
	out.Codes = []apitype.Denial{}
	for code, n := range a.codes {
		d := apitype.Denial{Code: code, Count: n, New: !a.knownCodes[code]}
		if e, ok := codes.Lookup(codes.Code(code)); ok {
			d.Guidance = e.OperatorFor(a.out.Agent)
		}
		out.Codes = append(out.Codes, d)
	}
	slices.SortFunc(out.Codes, func(a, b apitype.Denial) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Code, b.Code))
	})
	return out
}

func byUse(m map[string]*apitype.Total) []apitype.Total {
	list := make([]apitype.Total, 0, len(m))
	for host, t := range m {
		t.Host = host
		list = append(list, *t)
	}
	slices.SortFunc(list, func(a, b apitype.Total) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(b.Denied, a.Denied), cmp.Compare(a.Host, b.Host))
	})
	return list
}
