// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"bawn/internal/apitype"
	"bawn/internal/audit"
	"bawn/internal/peercred"
)

// actsOf returns what is in admin's journal.
func actsOf(t *testing.T, s *Server) (list []audit.Entry) {
	t.Helper()
	for e, err := range audit.Scan(s.o.Paths.Journal("admin"), audit.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, e)
	}
	return list
}

// ask sends one request on admin.sock and returns its status and body.
func ask(t *testing.T, sock, method, path, body string) (status int, code string) {
	t.Helper()
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", sock)
	}}
	defer tr.CloseIdleConnections()
	q, err := http.NewRequestWithContext(t.Context(), method, "http://admin"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := tr.RoundTrip(q)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text := make([]byte, 1<<16)
	n, _ := resp.Body.Read(text)
	return resp.StatusCode, string(text[:n])
}

// harmless are routes that are no GET and change nothing: each is here because
// somebody looked at it.
var harmless = []string{"POST /policy/explain", "POST /policy/check", "POST /policy/replay", "POST /plane/lease", "POST /plane/report"}

// TestI7EveryChangingRouteIsAnAct walks the table: a route that is no GET has an
// act of the set, or is one of those that were looked at.
func TestI7EveryChangingRouteIsAnAct(t *testing.T) {
	for _, r := range routes {
		method, _ := cutPattern(r.pattern)
		switch {
		case method == http.MethodGet && r.act.name != "":
			t.Errorf("%s is a GET with an act: a client may repeat it at will", r.pattern)
		case method == http.MethodGet:
		case slices.Contains(harmless, r.pattern):
			if r.act.reads == "" || r.act.name != "" {
				t.Errorf("%s does not say why it changes nothing", r.pattern)
			}
		case !r.act.name.Known():
			t.Errorf("%s changes something and has no act of the set: %q", r.pattern, r.act.name)
		}
	}
}

// TestI7EveryActIsOnRecordBeforeItIsDone calls each route that has an act. What
// it is asked is nonsense, so that each refuses; the act is on record with that.
func TestI7EveryActIsOnRecordBeforeItIsDone(t *testing.T) {
	s, _, sock := newServer(t)
	for _, r := range routes {
		if !r.act.recorded() || r.pattern == "POST /doctor" { // waits for netd, which is not here
			continue
		}
		before := len(actsOf(t, s))
		ran := false
		inner := r.serve
		r.serve = func(s *Server, w http.ResponseWriter, q *http.Request, p peercred.Peer) error {
			ran = true
			if list := actsOf(t, s); len(list) != before+1 || list[before].Act.Name != r.act.name || list[before].Result != nil {
				t.Errorf("%s runs and its act is not on record: %+v", r.pattern, list[before:])
			}
			return inner(s, w, q, p)
		}
		method, path := cutPattern(r.pattern)
		q, _ := http.NewRequestWithContext(t.Context(), method, "http://admin"+path, strings.NewReader(`{"nonsense":1}`))
		err := s.perform(r, discard{}, q, peerOf(4711))
		list := actsOf(t, s)
		if !ran || len(list) != before+1 {
			t.Fatalf("%s: ran %v, %d acts", r.pattern, ran, len(list)-before)
		}
		e := list[before]
		if e.Act.UID != 4711 || e.Act.PID != 1 || e.Result == nil || e.Result.ID != e.Act.ID || (err == nil) != (e.Result.Result == audit.ActDone) {
			t.Errorf("%s: %v, on record %+v, %+v", r.pattern, err, e.Act, e.Result)
		}
	}
	if status, _ := ask(t, sock, "GET", "/v1/acts", ""); status != http.StatusOK {
		t.Errorf("GET /acts: %d", status)
	}
}

// TestI7WithoutARecordNothingIsDone closes the journal, as a full disk would.
func TestI7WithoutARecordNothingIsDone(t *testing.T) {
	s, c, sock := newServer(t)
	addAgent(t, s, "dev")
	if err := s.acts.Close(); err != nil {
		t.Fatal(err)
	}
	for _, r := range routes {
		if !r.act.recorded() {
			continue
		}
		r.serve = func(*Server, http.ResponseWriter, *http.Request, peercred.Peer) error {
			t.Errorf("%s was served without a record", r.pattern)
			return nil
		}
		method, path := cutPattern(r.pattern)
		q, _ := http.NewRequestWithContext(t.Context(), method, "http://admin"+path, strings.NewReader(`{}`))
		err := s.perform(r, discard{}, q, peerOf(0))
		if e, ok := errors.AsType[*apitype.Error](err); !ok || e.Status != 503 || e.Code != "journal_unavailable" {
			t.Errorf("%s: %v", r.pattern, err)
		}
	}
	if status, text := ask(t, sock, "POST", "/v1/policy", `{"yaml":"version: 1"}`); status != 503 || !strings.Contains(text, "journal_unavailable") {
		t.Errorf("policy apply: %d %s", status, text)
	}
	if _, err := c.Policy(t.Context(), 0); err == nil {
		t.Error("a policy is in force that is not on record")
	}
	s.open("netns", "")
	if why := s.closed("netns"); !strings.Contains(why, "record") {
		t.Errorf("a placement was opened without a record: %q", why)
	}
}

func TestWhatAnActSays(t *testing.T) {
	s, c, _ := newServer(t)
	addAgent(t, s, "dev")
	if _, err := c.ApplyPolicy(t.Context(), apitype.ApplyPolicy{YAML: someYAML, Why: "dev\x1b]52;c;YQ==\x07 reads"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ApplyPolicy(t.Context(), apitype.ApplyPolicy{YAML: "profiles: ["}); err == nil {
		t.Fatal("nonsense was applied")
	}
	if err := c.RemoveAgent(t.Context(), "nobody"); err == nil {
		t.Fatal("an agent that does not exist was removed")
	}
	list := actsOf(t, s)
	var names []string
	for _, e := range list {
		names = append(names, string(e.Act.Name))
	}
	if got := strings.Join(names, " "); got != "admin.start key.make ca.make policy.apply policy.apply agent.remove" {
		t.Fatalf("acts: %s", got)
	}
	apply, bad, remove := list[3], list[4], list[5]
	if a, r := apply.Act, apply.Result; a.Revision != 0 || r.Revision != 1 || a.Offered != hashOf(someYAML) || r.Policy != a.Offered ||
		r.Result != audit.ActDone || a.UID != uint32(os.Getuid()) || a.PID != int32(os.Getpid()) || !strings.Contains(a.Detail, "why=dev") {
		t.Errorf("apply: %+v, %+v", a, r)
	}
	if r := bad.Result; r.Result != audit.ActRefused || r.Code != "policy_invalid" || r.Revision != 1 || r.Error == "" {
		t.Errorf("a refused apply: %+v", r)
	}
	if a, r := remove.Act, remove.Result; a.Object != "nobody" || a.Agent != "nobody" || r.Result != audit.ActRefused {
		t.Errorf("remove: %+v, %+v", a, r)
	}
	raw, err := os.ReadFile(s.o.Paths.Journal("admin") + "/" + fileOf(t, s))
	if err != nil || strings.ContainsAny(string(raw), "\x1b\x07") {
		t.Errorf("the journal holds what acts on a terminal (%v)", err)
	}
}

func fileOf(t *testing.T, s *Server) string {
	t.Helper()
	names, err := os.ReadDir(s.o.Paths.Journal("admin"))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if strings.HasSuffix(n.Name(), ".jsonl") {
			return n.Name()
		}
	}
	t.Fatal("no journal")
	return ""
}

// TestAPanicIsOnRecord: what came of an act that fell over is not left open.
func TestAPanicIsOnRecord(t *testing.T) {
	s, _, _ := newServer(t)
	r := route{"POST /x", operator, does(audit.ActDoctorRun), func(*Server, http.ResponseWriter, *http.Request, peercred.Peer) error { panic("at the disco") }}
	q, _ := http.NewRequestWithContext(t.Context(), "POST", "http://admin/x", strings.NewReader(""))
	func() {
		defer func() { recover() }()
		s.perform(r, discard{}, q, peerOf(0))
	}()
	list := actsOf(t, s)
	if e := list[len(list)-1]; e.Act.Name != audit.ActDoctorRun || e.Result == nil || e.Result.Result != audit.ActFailed || !strings.Contains(e.Result.Error, "disco") {
		t.Errorf("%+v %+v", e.Act, e.Result)
	}
}
