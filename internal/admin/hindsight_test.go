// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"errors"
	"strings"
	"testing"
	"time"

	"bawn/internal/apitype"
	"bawn/internal/audit"
	"bawn/internal/ids"
	"bawn/internal/verdict"
)

// recorded writes what an agent did into the proxy's journal, as the proxy does.
func recorded(t *testing.T, s *Server, decisions ...audit.Decision) {
	t.Helper()
	j, err := audit.OpenJournal(s.o.Paths.Journal("proxy"), audit.Options{Plane: "proxy"})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	for i, d := range decisions {
		d.Request, d.Proto, d.Scheme, d.Port, d.Revision, d.Stage = "r-"+string(rune('a'+i)), "http/1.1", "https", 443, 1, "head"
		if err := j.Decide(&d); err != nil {
			t.Fatal(err)
		}
		if d.Verdict == verdict.Allow {
			if err := j.Outcome(&audit.Outcome{Request: d.Request, Identity: d.Identity, Status: 200, Upstream: "93.184.216.34:443"}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func of(agent string) ids.Identity { return ids.Identity{Agent: agent, User: "alice"} }

func TestReplayAndSuggestReadTheRecord(t *testing.T) {
	s, c := withPolicy(t)
	recorded(t, s,
		audit.Decision{Identity: of("dev"), Method: "GET", Host: "api.example.com", Path: "/a", Verdict: verdict.Allow, Rule: "reader.1"},
		audit.Decision{Identity: of("dev"), Method: "POST", Host: "api.example.com", Path: "/a", Verdict: verdict.Allow, Rule: "reader.1"},
		audit.Decision{Identity: of("dev"), Method: "GET", Host: "new.example.com", Path: "/x", Verdict: verdict.Deny, Code: "host_not_allowed"},
		audit.Decision{Identity: of("doctor"), Method: "GET", Host: "evil.example.com", Path: "/x", Verdict: verdict.Deny, Code: "host_not_allowed"},
		audit.Decision{Identity: of("ghost"), Method: "GET", Host: "api.example.com", Path: "/x", Verdict: verdict.Allow},
	)
	since := time.Now().Add(-time.Hour)
	candidate := strings.ReplaceAll(someYAML, "{host: api.example.com}", "{host: api.example.com, methods: [GET]}, {host: new.example.com}")
	r, err := c.ReplayPolicy(t.Context(), apitype.ReplayPolicy{YAML: candidate, Since: since})
	if err != nil {
		t.Fatal(err)
	}
	if r.Records != 4 || r.StillAllowed != 1 || len(r.Denied) != 1 || r.Denied[0].By != "reader.1" || r.Denied[0].Code != "method_not_allowed" ||
		len(r.Allowed) != 1 || r.Allowed[0].Rule != "reader.2" || len(r.Unjudged) != 1 || r.Unjudged[0].Agent != "ghost" {
		t.Errorf("replay: %+v", r)
	}
	out, err := c.SuggestPolicy(t.Context(), "dev", since)
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Rules) != 1 || out.Rules[0].YAML() != `{host: "new.example.com", ports: ["443"], methods: ["GET"], paths: ["/x"]}` {
		t.Errorf("suggested: %+v", out.Rules)
	}
	if _, err := c.CheckPolicy(t.Context(), apitype.CheckPolicy{YAML: out.YAML()}); err != nil {
		t.Errorf("policy check refuses what is suggested: %v", err)
	}
	for _, ask := range []apitype.ReplayPolicy{{YAML: "version: 2\n"}, {YAML: someYAML, Agent: "nobody"}, {}} {
		_, err := c.ReplayPolicy(t.Context(), ask)
		if e, ok := errors.AsType[*apitype.Error](err); !ok || e.Status == 500 {
			t.Errorf("%+v: %v", ask, err)
		}
	}
	if _, err := c.SuggestPolicy(t.Context(), "nobody", since); err == nil {
		t.Error("suggestions for an agent that there is not")
	}
}

// TestWhoLooksBackDoesSoAlone: a second reader of the whole record is told to
// wait, and holds nobody up.
func TestWhoLooksBackDoesSoAlone(t *testing.T) {
	s, c := withPolicy(t)
	s.lookingBack.Lock()
	_, err := c.SuggestPolicy(t.Context(), "", time.Now())
	if e, ok := errors.AsType[*apitype.Error](err); !ok || e.Status != 409 {
		t.Errorf("%v", err)
	}
	s.lookingBack.Unlock()
	if _, err := c.SuggestPolicy(t.Context(), "", time.Now()); err != nil {
		t.Error(err)
	}
}
