// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"bawn/internal/apitype"
	"bawn/internal/audit"
	"bawn/internal/client"
	"bawn/internal/codes"
	"bawn/internal/config"
	"bawn/internal/ids"
	"bawn/internal/verdict"
)

// A plane writes what the proxy would.
type fakePlane struct {
	t *testing.T
	j *audit.Journal
}

func newPlane(t *testing.T, p config.Paths) *fakePlane {
	t.Helper()
	j, err := audit.OpenJournal(p.Journal("proxy"), audit.Options{Plane: "proxy"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return &fakePlane{t, j}
}

func (p *fakePlane) request(agent, host string, at time.Time, code codes.Code) *audit.Decision {
	p.t.Helper()
	d := &audit.Decision{
		Time: at, Request: ids.NewRequest(), Identity: ids.Identity{Session: "s-" + agent, Agent: agent, User: "ann"},
		Host: host, Method: "GET", Path: "/x", Client: "127.0.0.1:5000", Verdict: verdict.Allow, Code: code,
	}
	if code != "" {
		d.Verdict = verdict.Deny
	}
	if err := p.j.Decide(d); err != nil {
		p.t.Fatal(err)
	}
	if code == "" {
		p.j.Outcome(&audit.Outcome{Time: at.Add(time.Second), Request: d.Request, Identity: d.Identity, Status: 200, BytesUp: 10, BytesDown: 20, Local: "192.0.2.7:4000", Upstream: "192.0.2.1:443"})
		p.j.Close()
		p.j = newPlane(p.t, config.Paths{Root: os.Getenv("ADMIN_TEST_ROOT")}).j
	}
	return d
}

// read returns the requests that a log shows, and what is said beside it.
func read(t *testing.T, c *client.Client, query string) (requests []string, more, note string) {
	t.Helper()
	q, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.Log(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for lines := bufio.NewScanner(s); lines.Scan(); {
		var e audit.Entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		if e.Decision != nil {
			requests = append(requests, e.Decision.Request)
		}
	}
	return requests, s.More, s.Note
}

func TestTheLogIsAnsweredWithWhatHasJustBeenWritten(t *testing.T) {
	s, c, _ := newServer(t)
	t.Setenv("ADMIN_TEST_ROOT", s.o.Paths.Root)
	p := newPlane(t, s.o.Paths)
	now := time.Now().UTC().Truncate(time.Microsecond)
	var all []string
	for i := range 5 {
		all = append(all, p.request("dev", "a.example", now.Add(-time.Duration(10-i)*time.Minute), "").Request)
		if got, _, note := read(t, c, "agent=dev"); !reflect.DeepEqual(got, all) || note != "" {
			t.Fatalf("after %d requests: %v, note %q", i+1, got, note)
		}
	}
	p.request("doctor", "a.example", now, codes.HostNotAllowed)
	got, more, _ := read(t, c, "limit=2")
	if !reflect.DeepEqual(got, all[3:]) || more == "" {
		t.Fatalf("newest page %v, more %q", got, more)
	}
	got, more, _ = read(t, c, "limit=3&before="+more)
	if !reflect.DeepEqual(got, all[:3]) {
		t.Fatalf("page before %v, more %q", got, more)
	}
	// The index is lost, and cannot be made anew: the journal itself answers.
	path := s.o.Paths.Index()
	for _, side := range []string{"", "-wal", "-shm"} {
		os.Remove(path + side)
	}
	if err := os.MkdirAll(path+"/in the way", 0o700); err != nil {
		t.Fatal(err)
	}
	if got, _, note := read(t, c, "agent=dev"); !reflect.DeepEqual(got, all) || !strings.Contains(note, "from the journal itself") {
		t.Fatalf("without an index: %v, note %q", got, note)
	}
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); ; {
		if _, caughtUp := s.note(t.Context()); caughtUp {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the index does not come back: %+v", s.index.Health())
		}
	}
	if got, _, note := read(t, c, "agent=dev"); !reflect.DeepEqual(got, all) || note != "" {
		t.Fatalf("made anew: %v, note %q", got, note)
	}
}

func TestWhoUsageAndReport(t *testing.T) {
	s, c, _ := newServer(t)
	t.Setenv("ADMIN_TEST_ROOT", s.o.Paths.Root)
	p := newPlane(t, s.o.Paths)
	now := time.Now().UTC().Truncate(time.Microsecond)
	p.request("dev", "old.example", now.Add(-10*24*time.Hour), "")
	d := p.request("dev", "new.example", now.Add(-time.Hour), "")
	p.request("dev", "evil.example", now.Add(-time.Minute), codes.HostNotAllowed)
	p.request("ci", "old.example", now.Add(-time.Minute), "")
	p.request("doctor", "evil.example", now.Add(-time.Minute), codes.HostNotAllowed)

	ask := func(address, more string) url.Values {
		q, _ := url.ParseQuery("address=" + url.QueryEscape(address) + "&at=" + d.Time.Add(time.Millisecond).Format(time.RFC3339Nano) + more)
		return q
	}
	for _, q := range []url.Values{ask("127.0.0.1:5000", ""), ask("192.0.2.7:4000", "&upstream=true"), ask("192.0.2.1:443", "&upstream=true")} {
		w, err := c.Who(t.Context(), q)
		if err != nil || !w.Certain || len(w.Found) == 0 || w.Found[0].Request != d.Request || w.Found[0].Agent != "dev" {
			t.Errorf("who %v: %+v, %v", q, w, err)
		}
	}
	u, err := c.Usage(t.Context(), url.Values{"agent": {"dev"}})
	if err != nil || len(u.Totals) != 3 || u.Totals[0].Up+u.Totals[1].Up+u.Totals[2].Up != 20 {
		t.Errorf("usage %+v, %v", u, err)
	}
	r, err := c.Report(t.Context(), url.Values{"since": {now.Add(-7 * 24 * time.Hour).Format(time.RFC3339)}})
	if err != nil || len(r.Agents) != 2 || r.Own == nil || r.Own.Denied != 1 {
		t.Fatalf("report %+v, %v", r, err)
	}
	ci, dev := r.Agents[0], r.Agents[1]
	if !ci.New || dev.New || !reflect.DeepEqual(dev.Fresh, []string{"new.example"}) || len(dev.Codes) != 1 || !dev.Codes[0].New || dev.Codes[0].Guidance == "" || dev.Total.Denied != 1 {
		t.Errorf("ci %+v, dev %+v", ci, dev)
	}
	for _, q := range []string{"address=1.2.3.4", "address=1.2.3.4:5&at=now", "address=1.2.3.4:5&at=2026-01-01T00:00:00Z&within=3h", "colour=red"} {
		values, _ := url.ParseQuery(q)
		if _, err := c.Who(t.Context(), values); err == nil {
			t.Errorf("who %s is answered", q)
		}
	}
}

// TestSumsAgree: a refused message, a refused question and a request that is let
// through are in the usage, in the sums by code and in the report alike.
func TestSumsAgree(t *testing.T) {
	s, c, _ := newServer(t)
	t.Setenv("ADMIN_TEST_ROOT", s.o.Paths.Root)
	p := newPlane(t, s.o.Paths)
	now := time.Now().UTC().Add(-time.Minute)
	d := *p.request("dev", "api.example", now, "")
	d.Message, d.Verdict, d.Code = 2, verdict.Deny, codes.BodyNotJSON
	q := d
	q.Message, q.Proto, q.Method, q.Request, q.Code = 0, "dns", "A", ids.NewRequest(), codes.HostNotAllowed
	for _, d := range []*audit.Decision{&d, &q} {
		if err := p.j.Decide(d); err != nil {
			t.Fatal(err)
		}
	}
	p.j.Close()
	want := apitype.Total{Requests: 1, Denied: 2, DNS: 1, Messages: 1, Up: 10, Down: 20}
	u, err := c.Usage(t.Context(), url.Values{})
	if err != nil || len(u.Totals) != 1 {
		t.Fatalf("%+v, %v", u, err)
	}
	got := u.Totals[0]
	if got.Agent, got.Host = "", ""; got != want {
		t.Errorf("usage: %+v", got)
	}
	by, err := c.LogTotals(t.Context(), url.Values{"by": {"code"}})
	if err != nil {
		t.Fatal(err)
	}
	denied := map[string]int64{}
	for _, x := range by.Totals {
		denied[x.Code] = x.Denied
	}
	if denied["body_not_json"] != 1 || denied["host_not_allowed"] != 1 {
		t.Errorf("by code: %+v", by.Totals)
	}
	want.Agent = "dev"
	r, err := c.Report(t.Context(), url.Values{"since": {now.Add(-time.Hour).Format(time.RFC3339)}})
	if err != nil || len(r.Agents) != 1 || r.Agents[0].Total != want || len(r.Agents[0].Codes) != 2 {
		t.Errorf("report: %+v, %v", r, err)
	}
}

// FuzzFilter: what is taken says again what it was read from.
func FuzzFilter(f *testing.F) {
	for _, q := range []string{
		"agent=dev&verdict=deny&code=host_not_allowed&status=404&limit=3", "client=127.0.0.1:1&upstream=[::ffff:1.2.3.4]:443",
		"since=2026-01-02T03:04:05.000006Z&until=2026-01-02T03:04:05%2B01:00&path=/%1b&follow=true", "host=A.example.", "request=r-1&session=s-1&rule=a.1&plane=proxy&method=GET&user=x",
	} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, query string) {
		q, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		got, follow, err := parseFilter(q)
		if err != nil {
			return
		}
		again, follow2, err := parseFilter(encodeFilter(got, follow))
		if err != nil || follow != follow2 || !reflect.DeepEqual(got, again) {
			t.Errorf("%q is read as %+v, and that as %+v, %v", query, got, again, err)
		}
	})
}

func encodeFilter(f audit.Filter, follow bool) url.Values {
	q := url.Values{}
	set := func(k, v string) {
		if v != "" {
			q.Set(k, v)
		}
	}
	for k, v := range map[string]string{
		"agent": f.Agent, "user": f.User, "session": f.Session, "host": f.Host, "code": string(f.Code), "plane": f.Plane, "rule": f.Rule,
		"method": f.Method, "path": f.Path, "request": f.Request, "client": f.Client, "upstream": f.Upstream,
	} {
		set(k, v)
	}
	if f.Verdict != nil {
		set("verdict", f.Verdict.String())
	}
	for k, n := range map[string]int{"status": f.Status, "limit": f.Limit} {
		if n != 0 {
			set(k, strconv.Itoa(n))
		}
	}
	for k, at := range map[string]time.Time{"since": f.Since, "until": f.Until} {
		if !at.IsZero() {
			set(k, at.Format(time.RFC3339Nano))
		}
	}
	if follow {
		set("follow", fmt.Sprint(follow))
	}
	return q
}
