// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package index_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"bawn/internal/audit"
	"bawn/internal/codes"
	"bawn/internal/ids"
	"bawn/internal/verdict"
)

var start = time.Date(2026, 3, 1, 21, 0, 0, 0, time.UTC)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A world writes what planes write, from a seed.
type world struct {
	t       testing.TB
	r       *rand.Rand
	dir     string // of the journals: proxy and admin below it
	now     time.Time
	clock   atomic.Int64  // the same, for the journals, which look at it at any time
	step    time.Duration // the most that the clock moves on between records
	open    []*audit.Decision
	j       *audit.Journal
	acts    *audit.Journal
	ops     []*audit.Act
	size    int64 // of a file
	denials int   // records of them that an identity gets in a second

	readSize int64 // of the journals that readAll is of
	readAll  []audit.Entry
}

func newWorld(t testing.TB, seed uint64) *world {
	w := &world{t: t, r: rand.New(rand.NewPCG(seed, 1)), dir: t.TempDir(), now: start, step: 20 * time.Second, size: 64 << 10, denials: -1}
	w.tick(start)
	for _, d := range w.dirs() {
		must(t, os.Mkdir(d, 0o755))
	}
	w.openJournals()
	t.Cleanup(w.close)
	return w
}

func (w *world) dirs() []string {
	return []string{filepath.Join(w.dir, "proxy"), filepath.Join(w.dir, "admin")}
}

// tick sets the clock.
func (w *world) tick(at time.Time) {
	w.now = at
	w.clock.Store(at.UnixNano())
}

func (w *world) openJournals() {
	var err error
	clock := func() time.Time { return time.Unix(0, w.clock.Load()).UTC() }
	w.j, err = audit.OpenJournal(w.dirs()[0], audit.Options{Plane: "proxy", Now: clock, FileBytes: w.size, Denials: w.denials, AgentFlow: -1})
	must(w.t, err)
	w.acts, err = audit.OpenJournal(w.dirs()[1], audit.Options{Plane: "admin", Now: clock, FileBytes: w.size})
	must(w.t, err)
}

// reopen ends the journals and begins new ones, as a start does.
func (w *world) reopen() {
	w.close()
	w.openJournals()
}

// flood denies more than gets records of its own.
func (w *world) flood(n int) {
	w.t.Helper()
	id := w.identity()
	for range n {
		must(w.t, w.j.Decide(&audit.Decision{Request: ids.NewRequest(), Identity: id, Host: "a.example", Code: pick(w.r, codes.HostNotAllowed, codes.PathNotAllowed)}))
	}
}

func (w *world) close() {
	w.j.Close()
	w.acts.Close()
}

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

func (w *world) identity() ids.Identity {
	n := w.r.IntN(6)
	return ids.Identity{
		Slot: n % 3, Gen: ids.Generation{Epoch: 4, Count: uint64(n)}, Session: fmt.Sprintf("s-%016x", n),
		Agent: pick(w.r, "dev", "ci", "doctor"), User: pick(w.r, "ann", "bob"),
	}
}

// write puts n records into the journals.
func (w *world) write(n int) {
	w.t.Helper()
	for range n {
		w.tick(w.now.Add(time.Duration(w.r.Int64N(int64(w.step)))))
		switch k := w.r.IntN(20); {
		case k < 9 || len(w.open) == 0:
			w.decide()
		case k < 16:
			w.end()
		case k < 18:
			w.dial()
		case k == 18:
			w.act()
		default:
			w.tick(w.now.Add(-time.Duration(w.r.Int64N(int64(time.Second))))) // a clock that is set
		}
	}
}

func (w *world) decide() {
	r := w.r
	d := &audit.Decision{
		Request: ids.NewRequest(), Identity: w.identity(), Revision: uint64(r.IntN(3)), Arrival: "explicit",
		Client: fmt.Sprintf("127.0.0.1:%d", 50000+r.IntN(8)), Proto: pick(r, "http/1.1", "h2", "dns"), Method: pick(r, "GET", "POST", "CONNECT"),
		Scheme: "https", Host: pick(r, "a.example", "b.example", "c.example"), Port: 443,
		Path: pick(r, "", "/v1", "/v1/things", "/v1/things/7", "/v2/é", "/v1~"), Query: audit.QueryHash("x"),
		Verdict: pick(r, verdict.Allow, verdict.Allow, verdict.Deny, verdict.Ask), Rule: pick(r, "", "r1", "r2"), Detail: "detail \x1b[31m",
	}
	if r.IntN(10) == 0 {
		d.Client = "[::1]:50001"
	}
	if r.IntN(20) == 0 {
		d.Request, d.Clipped = fmt.Sprintf("odd-%d", r.IntN(1000)), true
	}
	if d.Verdict == verdict.Deny {
		d.Code = pick(r, codes.HostNotAllowed, codes.PathNotAllowed)
	}
	if r.IntN(10) == 0 && len(w.open) > 0 {
		d.Request, d.Message = w.open[0].Request, int64(1+r.IntN(9))
	}
	must(w.t, w.j.Decide(d))
	if d.Verdict != verdict.Deny && d.Message == 0 {
		w.open = append(w.open, d)
	}
}

func (w *world) take() *audit.Decision {
	i := w.r.IntN(len(w.open))
	d := w.open[i]
	w.open = append(w.open[:i], w.open[i+1:]...)
	return d
}

func (w *world) end() {
	r, d := w.r, w.take()
	o := &audit.Outcome{
		Request: d.Request, Identity: d.Identity, Revision: d.Revision, Status: pick(r, 200, 200, 404, 502),
		BytesUp: r.Int64N(1000), BytesDown: r.Int64N(100000), Upstream: pick(r, "192.0.2.1:443", "192.0.2.2:443", "[2001:db8::1]:443"),
		Local: fmt.Sprintf("198.51.100.1:%d", 40000+r.IntN(9)), Reused: r.IntN(2) == 0, Total: audit.Span(w.now.Sub(d.Time).Truncate(time.Microsecond)),
		Certificate: "ab", TTFB: audit.Span(3 * time.Millisecond),
	}
	if r.IntN(8) == 0 {
		o.Code, o.Error = codes.UpstreamUnreachable, "it broke"
	}
	if r.IntN(30) == 0 {
		o.Revision++ // unlike what Bawn writes
	}
	must(w.t, w.j.Outcome(o))
}

func (w *world) dial() {
	d := w.open[w.r.IntN(len(w.open))]
	must(w.t, w.j.Dial(&audit.Dial{Request: d.Request, Identity: d.Identity, Local: "198.51.100.1:40001", Upstream: "192.0.2.1:443"}))
}

func (w *world) act() {
	if len(w.ops) > 0 && w.r.IntN(2) == 0 {
		a := *w.ops[0]
		w.ops = w.ops[1:]
		a.Time, a.Result, a.Code = time.Time{}, audit.ActRefused, codes.PolicyInvalid
		must(w.t, w.acts.Act(&a))
		return
	}
	a := &audit.Act{ID: fmt.Sprintf("a-%d", w.r.Uint64()), Name: audit.ActAgentCreate, UID: 1000, Agent: "dev", User: "ann"}
	must(w.t, w.acts.Act(a))
	w.ops = append(w.ops, a)
}
