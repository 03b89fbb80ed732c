// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package index_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"bawn/internal/audit"
	"bawn/internal/codes"
	"bawn/internal/index"
	"bawn/internal/verdict"
)

// A running is an index that reads the journals of a world.
type running struct {
	*index.Index
	t    testing.TB
	stop func()
}

func (w *world) options() index.Options {
	return index.Options{
		Path: filepath.Join(w.dir, "index.db"), Journals: w.dirs(), Every: 5 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(w.t.Output(), nil)),
	}
}

func run(t testing.TB, o index.Options) *running {
	t.Helper()
	x := index.Open(t.Context(), o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { x.Run(ctx); close(done) }()
	r := &running{Index: x, t: t}
	r.stop = func() {
		cancel()
		<-done
		must(t, x.Close())
	}
	t.Cleanup(r.stop)
	return r
}

// read waits for all that is written, and returns what f chooses.
func (r *running) read(f audit.Filter) []audit.Entry {
	r.t.Helper()
	r.catchUp()
	return list(r.t, r.Entries(r.t.Context(), f))
}

func (r *running) catchUp() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 20*time.Second)
	defer cancel()
	if !r.CatchUp(ctx) {
		r.t.Fatalf("the index does not catch up: %+v", r.Health())
	}
}

func list(t testing.TB, seq func(func(audit.Entry, error) bool)) []audit.Entry {
	t.Helper()
	var all []audit.Entry
	for e, err := range seq {
		must(t, err)
		all = append(all, e)
	}
	return all
}

// oracle reads the journals themselves, and chooses entry by entry.
func (w *world) oracle(f audit.Filter) []audit.Entry {
	w.t.Helper()
	var all []audit.Entry
	limit := f.Limit
	f.Limit = 0
	for _, e := range w.everything() {
		if f.Chooses(&e) {
			all = append(all, e)
		}
	}
	if limit > 0 {
		all = all[max(0, len(all)-limit):]
	}
	return all
}

// everything is all that is in the journals, read once for each state of theirs.
func (w *world) everything() []audit.Entry {
	w.t.Helper()
	var size int64
	for _, dir := range w.dirs() {
		n, err := audit.Behind(dir, filepath.Base(dir), audit.Position{})
		must(w.t, err)
		size += n
	}
	if size == w.readSize {
		return w.readAll
	}
	w.readSize, w.readAll = size, nil
	for _, dir := range w.dirs() {
		for e, err := range audit.Scan(dir, audit.Filter{}) {
			must(w.t, err)
			e.Late = false
			w.readAll = append(w.readAll, e)
		}
	}
	slices.SortStableFunc(w.readAll, compare)
	return w.readAll
}

func timeOf(e audit.Entry) (time.Time, uint64) {
	switch {
	case e.Decision != nil:
		return e.Decision.Time, e.Decision.Seq
	case e.Act != nil:
		return e.Act.Time, e.Act.Seq
	case e.Outcome != nil:
		return e.Outcome.Time, e.Outcome.Seq
	case e.Summary != nil:
		return e.Summary.Time, e.Summary.Seq
	case e.Gap != nil:
		return e.Gap.Time, e.Gap.Seq
	}
	return time.Time{}, 0
}

func compare(a, b audit.Entry) int {
	at, as := timeOf(a)
	bt, bs := timeOf(b)
	if c := at.Compare(bt); c != 0 {
		return c
	}
	return int(int64(as) - int64(bs))
}

func same(t testing.TB, what string, want, got []audit.Entry) {
	t.Helper()
	if len(want) == len(got) && reflect.DeepEqual(want, got) {
		return
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		if len(diff) > 3000 {
			diff = diff[:3000]
		}
		t.Errorf("%s: %d entries, want %d\n-journal +index\n%s", what, len(got), len(want), diff)
	}
}

// filters are one of each kind, and some together.
func filters(w *world) map[string]audit.Filter {
	deny, allow := verdict.Deny, verdict.Allow
	all := w.oracle(audit.Filter{})
	request := ""
	for _, e := range all {
		if e.Decision != nil && e.Decision.Message != 0 {
			request = e.Decision.Request
		}
	}
	m := map[string]audit.Filter{
		"all": {}, "agent": {Agent: "dev"}, "except": {Except: "doctor"}, "user": {User: "bob"}, "session": {Session: "s-0000000000000003"},
		"host": {Host: "b.example"}, "no such host": {Host: "z.example"}, "deny": {Verdict: &deny}, "allow": {Verdict: &allow},
		"code": {Code: codes.PathNotAllowed}, "code of an outcome": {Code: codes.UpstreamUnreachable}, "code of an act": {Code: codes.PolicyInvalid},
		"plane": {Plane: "admin"}, "rule": {Rule: "r2"}, "method": {Method: "POST"}, "path": {Path: "/v1/things"}, "path of one": {Path: "/v2/"},
		"request": {Request: request}, "odd request": {Request: "odd-7"}, "client": {Client: "127.0.0.1:50003"}, "client's address": {Client: "127.0.0.1"},
		"client of IPv6": {Client: "[::1]:50001"}, "client's address of IPv6": {Client: "::1"}, "no such client": {Client: "127.0.0.9:1"},
		"status": {Status: 404}, "upstream": {Upstream: "192.0.2.2:443"}, "upstream's address": {Upstream: "2001:db8::1"},
		"since": {Since: start.Add(2 * time.Hour)}, "until": {Until: start.Add(4 * time.Hour)},
		"between":  {Since: start.Add(time.Hour), Until: start.Add(5 * time.Hour), Agent: "ci"},
		"together": {Agent: "dev", Host: "a.example", Path: "/v1", Status: 200, Upstream: "192.0.2.1", Rule: "r1"},
	}
	for name, f := range m {
		f.Limit = 7
		m[name+", newest"] = f
	}
	return m
}

func (w *world) compare(x *running) {
	w.t.Helper()
	x.catchUp()
	for name, f := range filters(w) {
		same(w.t, name, w.oracle(f), x.read(f))
	}
}

func TestEveryFilterAgreesWithTheJournals(t *testing.T) {
	seeds := uint64(3)
	if testing.Short() { // under the race detector SQLite takes its time
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t, seed)
			x := run(t, w.options())
			for range 4 {
				w.write(500)
				w.j.SyncNow()
				time.Sleep(10 * time.Millisecond)
			}
			w.close()
			w.compare(x)
			paged(t, w, x)
			x.SetPageTime(1)
			paged(t, w, x)
			if f := (audit.Filter{Status: 404, Limit: 5}); seed == 0 {
				same(t, "newest", w.oracle(f), x.read(f))
			}
			if h := x.Health(); h.Damages != 0 || h.Alarm != "" || h.Behind != 0 {
				t.Errorf("health %+v", h)
			}
		})
	}
}

// TestManyShapesAreWidened: agents that make up hosts and methods do not make the
// index slow, and every filter still tells the truth.
func TestManyShapesAreWidened(t *testing.T) {
	w := newWorld(t, 7)
	o := w.options()
	o.Shapes = 30
	x := run(t, o)
	w.write(1200)
	w.close()
	w.compare(x)
	for _, f := range []audit.Filter{{}, {Host: "a.example"}, {Method: "POST", Agent: "ci"}} {
		got, err := x.Totals(t.Context(), f, index.ByAgent)
		must(t, err)
		want := w.added(f, index.ByAgent)
		slices.SortFunc(got, byGroup)
		slices.SortFunc(want, byGroup)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%+v\n-journal +index\n%s", f, diff)
		}
	}
}

// paged goes back page by page and wants to meet everything once.
func paged(t *testing.T, w *world, x *running) {
	t.Helper()
	var got []audit.Entry
	var at index.Cursor
	for {
		page, more, err := x.Page(t.Context(), audit.Filter{Agent: "dev", Limit: 13}, at)
		must(t, err)
		got = append(page, got...)
		if more == (index.Cursor{}) {
			break
		}
		if at, err = index.ParseCursor(more.String()); err != nil {
			t.Fatal(err)
		}
	}
	same(t, "pages", w.oracle(audit.Filter{Agent: "dev"}), got)
}
