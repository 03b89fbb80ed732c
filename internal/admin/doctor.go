// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"bawn/internal/apitype"
	"bawn/internal/audit"
	"bawn/internal/doctor"
	"bawn/internal/ids"
	"bawn/internal/peercred"
	"bawn/internal/session"
	"bawn/internal/store"
)

// doctorTime bounds one self-test.
const doctorTime = 30 * time.Second

// What sets a self-test off, in [apitype.Doctor].
const (
	causeOperator = "operator"
	causeStart    = "start"
	causeTimer    = "timer"
	causeFailed   = "failed" // the last one did: what was mended is opened without a hand
	causePolicy   = "policy"
	causeFirewall = "firewall"
)

// doctor is the route: one self-test, now.
func (s *Server) doctor(w http.ResponseWriter, q *http.Request, _ peercred.Peer) error {
	d, err := s.selfTest(q.Context(), causeOperator)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, d)
	return nil
}

// selfTest attacks the boundary from the place of an agent, in every placement,
// opens or shuts each by what it finds, and looks at the host from outside. One
// runs at a time.
func (s *Server) selfTest(ctx context.Context, cause string) (*apitype.Doctor, error) {
	select {
	case s.testing <- struct{}{}:
		defer func() { <-s.testing }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, doctorTime)
	defer cancel()
	began := s.o.Now()
	if _, err := s.netd.wait(ctx); err != nil {
		return nil, &apitype.Error{Status: http.StatusServiceUnavailable, Message: err.Error(), Hint: "netd's log says why; bawn up starts it again"}
	}
	agent, err := s.doctorAgent(ctx)
	if err != nil {
		return nil, err
	}
	results := make([][]apitype.DoctorLine, len(placements))
	var all sync.WaitGroup
	for i, p := range placements {
		all.Go(func() { results[i] = s.examine(ctx, agent, p) })
	}
	var outside []doctor.Finding
	all.Go(func() { outside = s.examineHost(ctx) })
	all.Wait()
	lines := merge(results, outside)
	d := &apitype.Doctor{At: began, OK: true, Cause: cause, Took: s.o.Now().Sub(began).Milliseconds(), Lines: lines}
	for _, p := range placements {
		why := shutBy(lines, p)
		d.OK = d.OK && (why == "" || p != s.o.Config.Placement)
		s.open(p, why)
	}
	return d, s.finish(ctx, d)
}

// merge puts what was seen from the places and from outside into one report.
func merge(results [][]apitype.DoctorLine, outside []doctor.Finding) []apitype.DoctorLine {
	lines := slices.Concat(results...)
	for _, f := range outside {
		lines = append(lines, f.Line())
	}
	doctor.Sort(lines)
	return lines
}

// shutBy says why no agent is handed out in placement p, or nothing.
func shutBy(lines []apitype.DoctorLine, p ids.Placement) string {
	var own []apitype.DoctorLine
	for _, l := range lines {
		if l.Placement == p {
			own = append(own, l)
		}
	}
	if l := doctor.Shutting(own); l != nil {
		return fmt.Sprintf("the self-test failed: %s: %s", l.Check, l.Detail)
	}
	return ""
}

// open hands out agents in p from now on, unless why says why not. A change is
// on record before agents are handed out.
func (s *Server) open(p ids.Placement, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if (why == "") != (s.shut[p] == "") {
		a := audit.Act{Name: audit.ActPlacementOpen, Object: string(p)}
		if why != "" {
			a.Name, a.Detail = audit.ActPlacementShut, why
		}
		if err := s.did(a); err != nil && why == "" {
			why = err.Error()
		}
	}
	s.shut[p] = why
}

// doctorAgent registers the agent of the self-test on the first run. It is in
// no policy, so everything that it asks for must be denied.
func (s *Server) doctorAgent(ctx context.Context) (store.Agent, error) {
	agents, err := s.store.Agents(ctx)
	if err != nil {
		return store.Agent{}, err
	}
	for _, a := range agents {
		if a.Name == session.Doctor {
			return a, s.ensureAccount(ctx, a)
		}
	}
	s.applies.Lock()
	defer s.applies.Unlock()
	return s.register(ctx, apitype.CreateAgent{Name: session.Doctor, User: "bawn", Placement: ids.PlacementNetns})
}

// ensureAccount makes the account of a again where the host has lost it.
func (s *Server) ensureAccount(ctx context.Context, a store.Agent) error {
	netd, err := s.netd.client()
	if err != nil {
		return err
	}
	return netd.CreateAccount(ctx, a.Name, a.UID)
}

// finish counts, compares with the last run, tells what changed, and keeps the
// result.
func (s *Server) finish(ctx context.Context, d *apitype.Doctor) error {
	// The run may have taken all of its time: then what it shut is known no less.
	agents, err := s.store.Agents(context.WithoutCancel(ctx))
	matters := func(p ids.Placement) bool {
		return err != nil || p == "" || p == s.o.Config.Placement ||
			slices.ContainsFunc(agents, func(a store.Agent) bool { return a.Placement == p && a.Name != session.Doctor })
	}
	for _, l := range d.Lines {
		switch {
		case !matters(l.Placement):
		case l.State == string(doctor.Fail):
			d.Failed++
		case l.State == string(doctor.Warn):
			d.Warned++
		}
	}
	if every := s.o.Config.Doctor.Every; every > 0 {
		d.Next = d.At.Add(every)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range changes(s.doctored, d) {
		s.alarm(c)
	}
	s.doctored, s.tested, s.lacking = d, time.Now(), false
	for p, why := range s.shut {
		s.lacking = s.lacking || why != "" && matters(p)
	}
	return err
}

// newestTest says when the newest self-test ended, zero for never, and whether it
// shut a placement that agents are in.
func (s *Server) newestTest() (at time.Time, lacking bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tested, s.lacking
}

// changes lists the lines whose state is another than in the run before, and
// gives every line the time since which it is what it is.
func changes(before, now *apitype.Doctor) (list []apitype.DoctorLine) {
	for i := range now.Lines {
		l := &now.Lines[i]
		l.Since = now.At
		old := line(before, l)
		switch {
		case old == nil && l.State != string(doctor.Fail) && l.State != string(doctor.Warn):
		case old != nil && old.State == l.State:
			l.Since = old.Since
		default:
			list = append(list, *l)
		}
	}
	return list
}

// line finds the line of the same check and placement in d.
func line(d *apitype.Doctor, of *apitype.DoctorLine) *apitype.DoctorLine {
	if d == nil {
		return nil
	}
	i := slices.IndexFunc(d.Lines, func(l apitype.DoctorLine) bool { return l.Name == of.Name && l.Placement == of.Placement })
	if i < 0 {
		return nil
	}
	return &d.Lines[i]
}

// alarm tells a change in the log, once.
func (s *Server) alarm(l apitype.DoctorLine) {
	about := []any{"check", l.Name, "placement", l.Placement, "seen", l.Detail}
	switch doctor.State(l.State) {
	case doctor.Fail:
		s.o.Log.Error("doctor: a check has failed", append(about, "fix", l.Fix)...)
	case doctor.Warn:
		s.o.Log.Warn("doctor: a check warns", append(about, "fix", l.Fix)...)
	default:
		s.o.Log.Info("doctor: a check is well again", about...)
	}
}
