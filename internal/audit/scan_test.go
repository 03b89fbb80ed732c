// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"bawn/internal/codes"
	"bawn/internal/verdict"

	"github.com/google/go-cmp/cmp"
)

// A ticker is a clock that moves a second at each reading.
func ticker(from time.Time) func() time.Time {
	return func() time.Time {
		from = from.Add(time.Second)
		return from
	}
}

var start = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// fill writes decisions 0 to n-1 a second apart, and outcomes for those that
// are allowed. Every third is denied, every other one is of another agent.
func fill(t *testing.T, j *Journal, n int) {
	t.Helper()
	for i := range n {
		d := testDecision(fmt.Sprintf("r-%d", i))
		d.Time = start.Add(time.Duration(i) * time.Second)
		if i%3 == 2 {
			d.Verdict, d.Code = verdict.Deny, codes.HostNotAllowed
		}
		if i%2 == 1 {
			d.Agent, d.User, d.Host = "other", "bob", "b.example.com"
		}
		decide(t, j, d)
		if d.Verdict == verdict.Allow {
			o := testOutcome(d.Request)
			o.Time, o.Identity = d.Time.Add(time.Millisecond), d.Identity
			if i == 4 {
				o.Code = codes.UpstreamUnreachable
			}
			j.Outcome(o)
		}
	}
}

func TestFilters(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, Options{Now: ticker(start), FileBytes: 2000})
	fill(t, j, 12)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	allow, deny := verdict.Allow, verdict.Deny
	cases := map[string]struct {
		f    Filter
		want []int
	}{
		"everything":         {Filter{}, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
		"agent":              {Filter{Agent: "other"}, []int{1, 3, 5, 7, 9, 11}},
		"user":               {Filter{User: "ann"}, []int{0, 2, 4, 6, 8, 10}},
		"host":               {Filter{Host: "b.example.com"}, []int{1, 3, 5, 7, 9, 11}},
		"allowed":            {Filter{Verdict: &allow}, []int{0, 1, 3, 4, 6, 7, 9, 10}},
		"denied":             {Filter{Verdict: &deny}, []int{2, 5, 8, 11}},
		"code of a decision": {Filter{Code: codes.HostNotAllowed}, []int{2, 5, 8, 11}},
		"code of an outcome": {Filter{Code: codes.UpstreamUnreachable}, []int{4}},
		"since":              {Filter{Since: start.Add(8 * time.Second)}, []int{8, 9, 10, 11}},
		"until":              {Filter{Until: start.Add(2 * time.Second)}, []int{0, 1}},
		"newest":             {Filter{Limit: 3}, []int{9, 10, 11}},
		"newest with a code": {Filter{Limit: 3, Code: codes.HostNotAllowed}, []int{5, 8, 11}},
		"all of it":          {Filter{Agent: "other", User: "bob", Host: "b.example.com", Verdict: &deny, Code: codes.HostNotAllowed, Since: start, Until: start.Add(time.Minute), Limit: 1}, []int{11}},
		"nobody":             {Filter{Agent: "none"}, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var want, got []string
			for _, i := range c.want {
				want = append(want, fmt.Sprintf("r-%d", i))
			}
			for _, e := range entries(t, dir, c.f) {
				got = append(got, e.Decision.Request)
				if (e.Decision.Verdict == verdict.Allow) != (e.Outcome != nil) || e.Late {
					t.Errorf("%+v", e)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSeriesAreMergedByTime(t *testing.T) {
	dir := t.TempDir()
	a := open(t, dir, Options{Plane: "egress", Now: ticker(start)})
	b := open(t, dir, Options{Plane: "resolver", Now: ticker(start.Add(500 * time.Millisecond))})
	for i := range 10 {
		d := testDecision(fmt.Sprintf("r-%d", i))
		d.Verdict, d.Time = verdict.Deny, start.Add(time.Duration(i)*time.Minute)
		if i%3 == 0 {
			decide(t, a, d)
		} else {
			decide(t, b, d)
		}
	}
	var got []string
	for _, e := range entries(t, dir, Filter{}) {
		got = append(got, e.Decision.Request)
	}
	if !slices.IsSorted(got) || len(got) != 10 {
		t.Errorf("got %v", got)
	}
}

func TestScanWindowHandsOutLongRequestsAgain(t *testing.T) {
	// What Scan does, with a small window.
	j := joiner{window: 3}
	var got []Entry
	yield := func(e Entry, _ error) bool { got = append(got, e); return true }
	for i := range 6 {
		j.add(item{Record: Record{Decision: testDecision(fmt.Sprintf("r-%d", i))}})
		if i > 0 {
			j.add(item{Record: Record{Outcome: testOutcome(fmt.Sprintf("r-%d", i))}})
		}
		j.drain(false, yield)
	}
	j.add(item{Record: Record{Outcome: testOutcome("r-0")}})
	j.drain(true, yield)
	var text []string
	for _, e := range got {
		text = append(text, fmt.Sprintf("%s outcome=%v late=%v", e.Decision.Request, e.Outcome != nil, e.Late))
	}
	want := []string{
		"r-0 outcome=false late=false", "r-1 outcome=true late=false", "r-2 outcome=true late=false",
		"r-3 outcome=true late=false", "r-4 outcome=true late=false", "r-5 outcome=true late=false",
		"r-0 outcome=true late=true",
	}
	if diff := cmp.Diff(want, text); diff != "" {
		t.Error(diff)
	}
}

// TestMessagesWaitForNoOutcome: a WebSocket's messages are under the request that
// opened it, whose outcome is the WebSocket's.
func TestMessagesWaitForNoOutcome(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, Options{})
	decide(t, j, testDecision("r-0"))
	m := testDecision("r-0")
	m.Message, m.Proto = 1, "websocket"
	decide(t, j, m)
	o := testOutcome("r-0")
	o.MessagesUp, o.MessagesDown, o.Close = 1, 2, 1000
	if err := j.Outcome(o); err != nil {
		t.Fatal(err)
	}
	j.Close()
	got := entries(t, dir, Filter{})
	if len(got) != 2 || got[0].Decision.Message != 0 || got[0].Outcome == nil || got[0].Outcome.MessagesUp != 1 || got[0].Outcome.MessagesDown != 2 || got[0].Outcome.Close != 1000 {
		t.Errorf("the request: %+v", got)
	}
	if len(got) == 2 && (got[1].Decision.Message != 1 || got[1].Outcome != nil || got[1].Late) {
		t.Errorf("the message: %+v", got[1])
	}
}

func TestDamagedLineIsShownAndTheRestIsRead(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, Options{})
	decide(t, j, testDecision("r-0"))
	path := filepath.Join(dir, j.w.name)
	appendTo(t, path, "noise\n")
	decide(t, j, testDecision("r-1"))
	got := entries(t, dir, Filter{})
	if len(got) != 3 || got[2].Damage == nil && got[1].Damage == nil && got[0].Damage == nil {
		t.Errorf("got %+v", got)
	}
	if report, err := Verify(dir); err != nil || report.OK() {
		t.Errorf("Verify found nothing: %+v, %v", report, err)
	}
}

func TestFollow(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, Options{FileBytes: 1000})
	decide(t, j, testDecision("r-old"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	// Since is in the future of what was there, whatever the clock's steps.
	time.Sleep(2 * time.Microsecond)
	seen := make(chan string)
	ended := make(chan error, 1)
	follow := Follow(ctx, dir, Filter{Agent: "dev"})
	go func() {
		defer close(ended)
		for e, err := range follow {
			if err != nil {
				ended <- err
				return
			}
			seen <- fmt.Sprintf("%s outcome=%v late=%v", e.Decision.Request, e.Outcome != nil, e.Late)
		}
	}()
	expect := func(want string) {
		t.Helper()
		select {
		case got := <-seen:
			if got != want {
				t.Fatalf("got %q, want %q", got, want)
			}
		case err := <-ended:
			t.Fatalf("ended: %v", err)
		}
	}
	for i := range 6 { // several files
		request := fmt.Sprintf("r-%d", i)
		other := testDecision(request)
		other.Agent = "other"
		decide(t, j, other)
		decide(t, j, testDecision(request+"-mine"))
		expect(request + "-mine outcome=false late=false")
		j.Outcome(testOutcome(request + "-mine"))
		expect(request + "-mine outcome=true late=true")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestFollowTakesNoHalfLine(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, Options{})
	decide(t, j, testDecision("r-0"))
	path := filepath.Join(dir, j.w.name)
	s := stream{dir: dir, plane: "egress"}
	defer s.close()
	drain := func() (n int) {
		for {
			it, err := s.next()
			if err != nil {
				return n
			}
			if it.damage != nil {
				t.Fatalf("damage: %+v", it.damage)
			}
			n++
		}
	}
	if n := drain(); n != 2 {
		t.Fatalf("got %d records", n)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	decide(t, j, testDecision("r-1"))
	longer, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := len(whole); n < len(longer); n += 50 {
		if err := os.WriteFile(path, longer[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if n := drain(); n != 0 {
			t.Fatalf("got %d records from a part of a line", n)
		}
	}
	if err := os.WriteFile(path, longer, 0o600); err != nil {
		t.Fatal(err)
	}
	if n := drain(); n != 1 {
		t.Errorf("got %d records, want the one that is whole now", n)
	}
}

func TestDenialsBeyondTheBudgetAreSummed(t *testing.T) {
	dir := t.TempDir()
	now := start
	j := open(t, dir, Options{Denials: 5, Now: func() time.Time { return now }})
	deny := func(agent string, code codes.Code) uint64 {
		d := testDecision("r-x")
		d.Agent, d.Verdict, d.Code = agent, verdict.Deny, code
		decide(t, j, d)
		return d.Seq
	}
	for i := range 20 {
		if seq := deny("dev", codes.HostNotAllowed); (seq != 0) != (i < 5) {
			t.Errorf("denial %d has number %d", i, seq)
		}
	}
	deny("dev", codes.PortNotAllowed)
	if deny("other", codes.HostNotAllowed) == 0 {
		t.Error("one agent spent another's budget")
	}
	decide(t, j, testDecision("r-allowed")) // never summed
	now = now.Add(time.Second)
	if deny("dev", codes.HostNotAllowed) == 0 {
		t.Error("no budget in the next second")
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	verified(t, dir)
	var summaries []Summary
	for _, e := range entries(t, dir, Filter{Agent: "dev", Code: codes.PortNotAllowed}) {
		if e.Summary != nil {
			e.Summary.Seq = 0
			summaries = append(summaries, *e.Summary)
		}
	}
	want := []Summary{{
		Time: now, Identity: testID, Plane: "egress", From: start, To: start, Denials: 16, Revision: 5,
		Codes: map[codes.Code]uint64{codes.HostNotAllowed: 15, codes.PortNotAllowed: 1},
	}}
	if diff := cmp.Diff(want, summaries); diff != "" {
		t.Error(diff)
	}
}

func TestSummariesComeWithoutFurtherTraffic(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, Options{Denials: 1})
	for range 3 {
		d := testDecision("r-x")
		d.Verdict = verdict.Deny
		decide(t, j, d)
	}
	for range 1200 {
		if got := lines(t, dir); got[len(got)-1].Summary != nil {
			return
		}
		time.Sleep(syncEvery / 20)
	}
	t.Error("no summary came")
}

func TestDayEndsAFile(t *testing.T) {
	dir := t.TempDir()
	now := time.Date(2026, 12, 31, 23, 59, 59, 0, time.UTC)
	j := open(t, dir, Options{Now: func() time.Time { return now }})
	decide(t, j, testDecision("r-0"))
	now = now.Add(2 * time.Second)
	decide(t, j, testDecision("r-1"))
	decide(t, j, testDecision("r-2"))
	if report := verified(t, dir); report.Files != 2 {
		t.Errorf("got %d files", report.Files)
	}
	for _, name := range []string{"egress-000000001-20261231.jsonl", "egress-000000002-20270101.jsonl"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}

func TestLongFieldsAreClippedAndSaySo(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, Options{})
	d := testDecision("r-0")
	long := make([]byte, 100<<10)
	d.Path, d.Detail = string(long), "é"+string(long) // control characters: six bytes each
	decide(t, j, d)
	got := entries(t, dir, Filter{})
	if len(got) != 1 || !got[0].Decision.Clipped || len(got[0].Decision.Path) != maxPath {
		t.Errorf("got %+v", got)
	}
}

// TestNewestReadsOnlyTheEnds asks for the newest entries of series that are
// longer than what is read first, and compares with a scan of everything.
func TestNewestReadsOnlyTheEnds(t *testing.T) {
	dir := t.TempDir()
	now := start
	clock := func() time.Time { return now }
	busy := open(t, dir, Options{Plane: "egress", FileBytes: 30 << 10, Now: clock})
	quiet := open(t, dir, Options{Plane: "resolver", Now: clock})
	for i := range 500 {
		now = start.Add(time.Duration(i) * time.Second)
		d := testDecision(fmt.Sprintf("r-%d", i))
		if i%50 == 0 {
			d.Agent, d.Code = "rare", codes.PathNotAllowed
		}
		if i%10 == 0 {
			d.Verdict = verdict.Deny
			decide(t, quiet, d)
			continue
		}
		decide(t, busy, d)
		busy.Outcome(testOutcome(d.Request))
	}
	if err := errors.Join(busy.Close(), quiet.Close()); err != nil {
		t.Fatal(err)
	}
	filters := map[string]Filter{
		"any":            {},
		"rare agent":     {Agent: "rare"},
		"code":           {Code: codes.PathNotAllowed},
		"until long ago": {Until: start.Add(time.Minute)},
		"since long ago": {Since: start.Add(time.Minute)},
	}
	for name, f := range filters {
		all := entries(t, dir, f)
		for _, limit := range []int{1, 7, 40, 200, 1000} {
			f.Limit = limit
			var got []Entry
			newest(dir, f, 4<<10, func(e Entry, err error) bool {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, e)
				return true
			})
			if diff := cmp.Diff(all[max(0, len(all)-limit):], got); diff != "" {
				t.Errorf("%s, newest %d: %d entries, want %d", name, limit, len(got), min(limit, len(all)))
			}
		}
	}
}

// TestNoAgentFillsTheDisk: what an agent asks for beyond its share is refused,
// allowed or not, and costs the others nothing.
func TestNoAgentFillsTheDisk(t *testing.T) {
	dir := t.TempDir()
	now := start
	j := open(t, dir, Options{AgentBytes: 20_000, AgentFlow: 1000, Now: func() time.Time { return now }})
	ask := func(agent string, v verdict.Effect) (*Decision, error) {
		d := testDecision("r-x")
		d.Agent, d.Time, d.Verdict, d.Path = agent, now, v, "/"+strings.Repeat("x", 1000)
		return d, j.Decide(d)
	}
	asked := 0
	for ; ; asked++ {
		if _, err := ask("dev", verdict.Allow); err != nil {
			if !errors.Is(err, ErrQuota) || CodeOf(err) != codes.AuditQuota {
				t.Fatal(err)
			}
			break
		}
	}
	if asked < 10 || asked > 20 {
		t.Errorf("%d records of more than 1000 bytes fit into 20000", asked)
	}
	if d, err := ask("dev", verdict.Deny); err != nil || d.Seq != 0 {
		t.Errorf("a denial beyond the share: number %d, %v", d.Seq, err)
	}
	o := testOutcome("r-x")
	if err := j.Outcome(o); err != nil {
		t.Errorf("an outcome: %v", err)
	}
	for _, v := range []verdict.Effect{verdict.Allow, verdict.Deny} {
		if d, err := ask("other", v); err != nil || d.Seq == 0 {
			t.Errorf("another agent, %v: number %d, %v", v, d.Seq, err)
		}
	}
	for range 3000 { // in steps that are less than a byte each
		now = now.Add(time.Millisecond / 2)
		j.mu.Lock()
		j.budget.open("dev", now)
		j.mu.Unlock()
	}
	for i := range 2 {
		if _, err := ask("dev", verdict.Allow); (err != nil) != (i > 0) {
			t.Errorf("request %d after a while: %v", i, err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	verified(t, dir)
}
