// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"bawn/internal/apitype"
	"bawn/internal/config"
	"bawn/internal/doctor"
	"bawn/internal/store"
)

// breaks are the checks that admin makes itself, each with a state in which it
// fails.
var breaks = map[doctor.Name]func(t *testing.T, s *Server) doctor.Finding{
	doctor.SelfTest: func(t *testing.T, s *Server) doctor.Finding {
		lines := s.examine(t.Context(), store.Agent{Name: "doctor"}, "netns") // there is no netd
		return doctor.Finding{Name: doctor.Name(lines[0].Name), Placement: lines[0].Placement, State: doctor.State(lines[0].State), Seen: lines[0].Detail}
	},
	doctor.Lease: func(_ *testing.T, s *Server) doctor.Finding { return s.leaseFinding() },
	doctor.Parent: func(t *testing.T, s *Server) doctor.Finding {
		s.o.Config.ParentProxy.Address = "proxy.example:3128"
		return s.parentFinding(t.Context())
	},
	doctor.Resolvers: func(t *testing.T, s *Server) doctor.Finding { return s.resolverFinding(t.Context()) },
}

func bare() *Server {
	s := &Server{planes: newPlanes(time.Now), o: Options{Config: config.Default(), Now: time.Now, Log: slog.New(slog.DiscardHandler)}}
	s.netd, s.testing = newNetdLink("/nowhere", s.o.Log), make(chan struct{}, 1)
	return s
}

func TestI12WhatAdminCannotShowHasFailed(t *testing.T) {
	for name, do := range breaks {
		synctest.Test(t, func(t *testing.T) {
			f := do(t, bare())
			l := f.Line()
			if f.Name != name || l.State != string(doctor.Fail) || l.Detail == "" || l.Fix == "" {
				t.Errorf("%s: %+v", name, l)
			}
		})
	}
}

func TestTheLeaseIsThatOfARevision(t *testing.T) {
	s := bare()
	s.planes.set(apitype.Snapshot{Tag: "b", Revision: 2})
	s.planes.asked("proxy", 7, "a")
	if f := s.leaseFinding(); f.State != doctor.Fail || f.Seen != "the proxy enforces revision 0, not 2" {
		t.Errorf("%+v", f)
	}
	s.planes.asked("proxy", 7, "b")
	if f := s.leaseFinding(); f.State != doctor.OK || f.Seen != "revision 2" {
		t.Errorf("%+v", f)
	}
}

// TestResolversAreAskedAnew for each run: what was said before it does not count.
func TestResolversAreAskedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := bare()
		s.planes.resolversReported(apitype.ResolverReport{Check: 1, Asked: 1}) // nobody has asked yet
		go func() {
			time.Sleep(time.Second)
			n := s.planes.checkAsked()
			s.planes.resolversReported(apitype.ResolverReport{Check: n - 1, Asked: 1})
			time.Sleep(time.Second)
			s.planes.resolversReported(apitype.ResolverReport{Check: n, Asked: 1, Failed: []string{"192.0.2.1:53: timeout"}})
		}()
		if f := s.resolverFinding(t.Context()); f.State != doctor.Fail || f.Seen != "192.0.2.1:53: timeout" {
			t.Errorf("%+v", f)
		}
	})
}

// lines makes a result of "name state" words.
func lines(at time.Time, words ...string) *apitype.Doctor {
	d := &apitype.Doctor{At: at}
	for _, w := range words {
		name, state, _ := strings.Cut(w, " ")
		d.Lines = append(d.Lines, apitype.DoctorLine{Name: name, State: state})
	}
	return d
}

// TestAChangeIsToldOnce, at its beginning and at its end, and each line keeps the
// time of its beginning.
func TestAChangeIsToldOnce(t *testing.T) {
	noon := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	var log bytes.Buffer
	s := &Server{o: Options{Log: slog.New(slog.NewTextHandler(&log, nil))}}
	var before *apitype.Doctor
	for i, step := range []struct {
		words []string
		told  []string
		since []int // the run in which each line came to be so
	}{
		{[]string{"tcp ok", "dmesg warn"}, []string{"WARN"}, []int{0, 0}},
		{[]string{"tcp ok", "dmesg warn"}, nil, []int{0, 0}},
		{[]string{"tcp fail", "dmesg warn"}, []string{"ERROR"}, []int{2, 0}},
		{[]string{"tcp fail", "dmesg ok"}, []string{"INFO"}, []int{2, 3}},
		{[]string{"tcp ok", "dmesg ok"}, []string{"INFO"}, []int{4, 3}},
		{[]string{"dmesg ok", "new fail"}, []string{"ERROR"}, []int{3, 5}},
	} {
		log.Reset()
		now := lines(noon.Add(time.Duration(i)*time.Hour), step.words...)
		for _, c := range changes(before, now) {
			s.alarm(c)
		}
		for j, l := range now.Lines {
			if want := noon.Add(time.Duration(step.since[j]) * time.Hour); !l.Since.Equal(want) {
				t.Errorf("run %d, %s: since %s, want %s", i, l.Name, l.Since, want)
			}
		}
		said := strings.Count(log.String(), "\n")
		if said != len(step.told) {
			t.Errorf("run %d: told\n%s", i, &log)
		}
		for _, level := range step.told {
			if !strings.Contains(log.String(), "level="+level) {
				t.Errorf("run %d: no %s in\n%s", i, level, &log)
			}
		}
		before = now
	}
}

// TestWhenTheSelfTestRunsByItself.
func TestWhenTheSelfTestRunsByItself(t *testing.T) {
	noon := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) time.Time { return noon.Add(d) }
	type run struct {
		at time.Time
		ok bool
	}
	ran := func(d time.Duration, ok bool) *run { return &run{at(d), ok} }
	fresh := func() *watch {
		return &watch{every: time.Hour, jitter: func() float64 { return 0 }, began: noon}
	}
	type ask struct {
		now      time.Duration
		standing bool
		newest   *run // nil: there was none
		want     string
	}
	for name, c := range map[string]struct {
		prepare func(w *watch)
		asks    []ask
	}{
		"not before there is all that it needs": {nil, []ask{{time.Hour, false, nil, ""}, {time.Hour, true, nil, causeStart}}},
		"a start that nobody follows up":        {nil, []ask{{time.Second, true, nil, ""}, {settleTime, true, nil, causeStart}}},
		"a start that somebody follows up":      {nil, []ask{{settleTime, true, ran(time.Second, true), ""}}},
		"a first run that could not be": {func(w *watch) { w.ran("", at(10*time.Second)) }, []ask{
			{11 * time.Second, true, nil, ""}, {10*time.Second + settleTime, true, nil, causeStart},
		}},
		"on the timer":        {nil, []ask{{59 * time.Minute, true, ran(0, true), ""}, {time.Hour, true, ran(0, true), causeTimer}}},
		"after somebody's":    {nil, []ask{{time.Hour, true, ran(30*time.Minute, true), ""}, {90 * time.Minute, true, ran(30*time.Minute, true), causeTimer}}},
		"up to a tenth early": {func(w *watch) { w.jitter = func() float64 { return 1 } }, []ask{{53 * time.Minute, true, ran(0, true), ""}, {54 * time.Minute, true, ran(0, true), causeTimer}}},
		"no timer":            {func(w *watch) { w.every = 0 }, []ask{{1000 * time.Hour, true, ran(0, true), ""}}},
		"while it is shut":    {func(w *watch) { w.every = 0 }, []ask{{time.Second, true, ran(0, false), ""}, {mendedFirst, true, ran(0, false), causeFailed}}},
		"after a change": {func(w *watch) { w.changed(causePolicy, at(10*time.Minute)) }, []ask{
			{10*time.Minute + time.Second, true, ran(0, true), ""}, {10*time.Minute + settleTime, true, ran(0, true), causePolicy},
		}},
		"a change soon after a run": {func(w *watch) { w.changed(causePolicy, at(time.Minute)) }, []ask{
			{2 * time.Minute, true, ran(0, true), ""}, {quietTime, true, ran(0, true), causePolicy},
		}},
		"a change that somebody's run has seen": {func(w *watch) { w.changed(causePolicy, at(10*time.Minute)) }, []ask{
			{30 * time.Minute, true, ran(11*time.Minute, true), ""}, {40 * time.Minute, true, ran(11*time.Minute, true), ""},
		}},
	} {
		w := fresh()
		if c.prepare != nil {
			c.prepare(w)
		}
		for i, a := range c.asks {
			newest := run{ok: true}
			if a.newest != nil {
				newest = *a.newest
			}
			if got := w.due(at(a.now), a.standing, newest.at, !newest.ok); got != a.want {
				t.Errorf("%s, %d: %q, want %q", name, i, got, a.want)
			}
		}
	}
	w := fresh()
	for i, c := range []struct {
		n    int
		want bool
	}{{3, false}, {3, false}, {4, true}, {4, false}, {0, false}, {1, true}} { // netd was started anew: it counts from 0
		if got := w.lost(c.n); got != c.want {
			t.Errorf("loss %d: %v", i, got)
		}
	}
}

// TestOneSelfTestRunsAtATime, whoever asks.
func TestOneSelfTestRunsAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := bare()
		ended := make(chan time.Time, 2)
		for range 2 {
			go func() {
				s.selfTest(context.Background(), causeTimer) // waits for netd in vain
				ended <- time.Now()
			}()
		}
		first, second := <-ended, <-ended
		if d := second.Sub(first); d < netdWait {
			t.Errorf("the second ended %s after the first", d)
		}
	})
}
