// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package index_test

import (
	"testing"
	"time"

	"bawn/internal/audit"
	"bawn/internal/codes"
	"bawn/internal/ids"
	"bawn/internal/index"
	"bawn/internal/verdict"
)

// asked is one request of a session; long is how long it takes, 0: it goes on.
func (w *world) asked(session string, slot int, at time.Time, long time.Duration, client, local string) {
	w.t.Helper()
	id := ids.Identity{Slot: slot, Gen: ids.Generation{Epoch: 1, Count: uint64(len(session))}, Session: session, Agent: "agent-" + session, User: "user-" + session}
	w.tick(at)
	d := &audit.Decision{Request: ids.NewRequest(), Identity: id, Client: client, Host: "a.example", Method: "GET", Verdict: verdict.Allow}
	must(w.t, w.j.Decide(d))
	must(w.t, w.j.Dial(&audit.Dial{Time: at, Request: d.Request, Identity: id, Local: local, Upstream: "192.0.2.1:443"}))
	if long == 0 {
		return
	}
	w.tick(at.Add(long))
	must(w.t, w.j.Outcome(&audit.Outcome{Request: d.Request, Identity: id, Local: local, Upstream: "192.0.2.1:443", Total: audit.Span(long)}))
}

// TestI8WhoIsUnambiguousThoughSlotsAreReused: one address in one slot belonged to
// two sessions one after the other, and in another slot to a third.
func TestI8WhoIsUnambiguousThoughSlotsAreReused(t *testing.T) {
	w := newWorld(t, 1)
	const client = "127.0.0.1:50000"
	at := start.Add(2 * time.Hour)
	w.asked("one", 3, at, 10*time.Second, client, "198.51.100.1:40000")
	w.asked("three", 4, at.Add(30*time.Second), 20*time.Second, client, "198.51.100.1:40001")
	w.asked("second", 3, at.Add(time.Minute), 10*time.Second, client, "198.51.100.1:40000")
	w.asked("second", 3, at.Add(3*time.Minute), 10*time.Second, client, "198.51.100.1:40000")
	w.asked("four", 5, at.Add(5*time.Minute), 0, "127.0.0.1:50001", "198.51.100.1:40004")
	w.asked("three", 4, at.Add(10*time.Minute), 5*time.Second, "127.0.0.1:50002", "198.51.100.1:40009")
	w.asked("second", 3, at.Add(10*time.Minute+time.Second), 5*time.Second, "127.0.0.1:50002", "198.51.100.1:40010")
	w.close()
	x := run(t, w.options())
	x.catchUp()
	for name, c := range map[string]struct {
		a       index.Asking
		session string
		how     index.Certainty
		side    string
		certain bool
		all     int
	}{
		"the first":             {index.Asking{Address: client, At: at.Add(5 * time.Second)}, "one", index.Carried, "client", true, 3},
		"the second in a slot":  {index.Asking{Address: client, At: at.Add(65 * time.Second)}, "second", index.Carried, "client", true, 3},
		"another slot":          {index.Asking{Address: client, At: at.Add(40 * time.Second)}, "three", index.Carried, "client", true, 3},
		"between two requests":  {index.Asking{Address: client, At: at.Add(2 * time.Minute)}, "second", index.Between, "client", false, 3},
		"after the last":        {index.Asking{Address: client, At: at.Add(20 * time.Minute)}, "second", index.Earlier, "client", false, 3},
		"before the first":      {index.Asking{Address: client, At: at.Add(-time.Minute)}, "one", index.Later, "client", false, 3},
		"an agent is named":     {index.Asking{Address: client, At: at.Add(65 * time.Second), Agent: "agent-three"}, "three", index.Earlier, "client", false, 1},
		"Bawn's end":            {index.Asking{Address: "198.51.100.1:40000", Upstream: true, At: at.Add(3*time.Minute + time.Second)}, "second", index.Carried, "local", true, 2},
		"Bawn's end before":     {index.Asking{Address: "198.51.100.1:40000", Upstream: true, At: at.Add(time.Second)}, "one", index.Carried, "local", true, 2},
		"what goes on":          {index.Asking{Address: "127.0.0.1:50001", At: at.Add(20 * time.Hour)}, "four", index.Carried, "client", true, 1},
		"what goes on, outside": {index.Asking{Address: "198.51.100.1:40004", Upstream: true, At: at.Add(time.Hour)}, "four", index.Carried, "local", true, 1},
		"the server's":          {index.Asking{Address: "192.0.2.1:443", Upstream: true, At: at.Add(5 * time.Second)}, "one", index.Carried, "server", true, 1},
		"two at once":           {index.Asking{Address: "127.0.0.1:50002", At: at.Add(10*time.Minute + 3*time.Second)}, "second", index.Carried, "client", false, 2},
		"a whole second":        {index.Asking{Address: client, At: at.Add(-500 * time.Millisecond), Within: time.Second}, "one", index.Carried, "client", true, 3},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := x.Who(t.Context(), c.a)
			must(t, err)
			if len(f.Suspects) != c.all {
				t.Fatalf("found %+v", f)
			}
			if s := f.Suspects[0]; s.Session != c.session || s.Certainty != c.how || f.Side != c.side || f.Certain() != c.certain {
				t.Errorf("found %s, %s, on side %s, certain %t; all: %+v", s.Session, s.Certainty, f.Side, f.Certain(), f)
			}
		})
	}
	f, err := x.Who(t.Context(), index.Asking{Address: "127.0.0.1:9", At: at})
	if must(t, err); len(f.Suspects) != 0 {
		t.Errorf("found %+v", f)
	}
}

// TestI8ManyRequestsHideNobody: a request that began before thousands of others to
// the same server is found where its agent is named, and nobody is named as the
// one who was behind the address where it is not.
func TestI8ManyRequestsHideNobody(t *testing.T) {
	w := newWorld(t, 1)
	at := start.Add(2 * time.Hour)
	w.asked("quiet", 3, at, 0, "127.0.0.1:50000", "198.51.100.1:40000")
	for i := range 2100 {
		w.asked("loud", 4, at.Add(time.Second+time.Duration(i)*time.Millisecond), time.Millisecond, "127.0.0.1:50001", "198.51.100.1:40001")
	}
	w.asked("loud", 4, at.Add(10*time.Second), 20*time.Second, "127.0.0.1:50001", "198.51.100.1:40001")
	w.close()
	x := run(t, w.options())
	x.catchUp()
	asking := index.Asking{Address: "192.0.2.1:443", Upstream: true, At: at.Add(15 * time.Second)}
	f, err := x.Who(t.Context(), asking)
	must(t, err)
	if f.Certain() || !f.More {
		t.Errorf("certain %t, more %t", f.Certain(), f.More)
	}
	asking.Agent = "agent-quiet"
	f, err = x.Who(t.Context(), asking)
	must(t, err)
	if len(f.Suspects) != 1 || f.Suspects[0].Session != "quiet" || f.Suspects[0].Certainty != index.Carried || f.More {
		t.Errorf("found %+v", f)
	}
}

// TestI8ParallelRequestsAreEntriesEach with a number of their own.
func TestI8ParallelRequestsAreEntriesEach(t *testing.T) {
	w := newWorld(t, 1)
	x := run(t, w.options())
	done := make(chan error)
	for range 12 {
		go func() {
			d := &audit.Decision{Request: ids.NewRequest(), Identity: ids.Identity{Agent: "dev"}, Code: codes.HostNotAllowed}
			done <- w.j.Decide(d)
		}()
	}
	for range 12 {
		must(t, <-done)
	}
	seen := map[uint64]bool{}
	for _, e := range x.read(audit.Filter{}) {
		seen[e.Decision.Seq] = true
	}
	if len(seen) != 12 {
		t.Errorf("%d entries with numbers of their own, want 12", len(seen))
	}
}
