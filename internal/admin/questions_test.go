// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"bawn/internal/apitype"
	"bawn/internal/store"
)

// TestQuestionsThatAreNone: an answer to a misspelt question would be taken for
// the truth.
func TestQuestionsThatAreNone(t *testing.T) {
	s, c, _ := newServer(t)
	addAgent(t, s, "dev")
	if _, err := c.ApplyPolicy(t.Context(), apitype.ApplyPolicy{YAML: someYAML}); err != nil {
		t.Fatal(err)
	}
	for _, q := range []struct {
		apitype.ExplainPolicy
		status int // 0: it is a question
		want   string
	}{
		{apitype.ExplainPolicy{Agent: "dev", Method: "GET", URL: "https://api.example.com/"}, 0, "GET https://api.example.com:443/: allow"},
		{apitype.ExplainPolicy{Agent: "dev", Method: "CONNECT", URL: "api.example.com"}, 0, "https://api.example.com:443: allow"},
		{apitype.ExplainPolicy{Agent: "dve", Method: "GET", URL: "https://api.example.com/"}, 404, `there is no agent "dve"`},
		{apitype.ExplainPolicy{Agent: "doctor", Method: "GET", URL: "https://api.example.com/"}, 404, `there is no agent "doctor"`},
		{apitype.ExplainPolicy{Agent: "dev", Method: "GET", URL: "api.example.com"}, 400, "begins with none of https://, http://, wss:// and ws://"},
	} {
		got, err := c.ExplainPolicy(t.Context(), q.ExplainPolicy)
		if e, ok := errors.AsType[*apitype.Error](err); q.status != 0 && (!ok || e.Status != q.status || !strings.Contains(e.Message, q.want)) {
			t.Errorf("%+v: %v", q.ExplainPolicy, err)
		}
		if q.status == 0 && !strings.HasPrefix(got.Text, q.want) {
			t.Errorf("%+v: %q, %v", q.ExplainPolicy, got.Text, err)
		}
	}
	for query, want := range map[string]string{"code=host_not_alowed": "no code", "verdict=maybe": "verdict", "since=yesterday": "since", "limit=-1": "limit", "colour=red": "colour"} {
		values, _ := url.ParseQuery(query)
		body, err := c.Log(t.Context(), values)
		if e, ok := errors.AsType[*apitype.Error](err); !ok || e.Status != 400 || !strings.Contains(e.Message, want) {
			t.Errorf("log of %s: %v", query, err)
		}
		if body != nil {
			body.Close()
		}
	}
}

func TestAnAgentWhoseProfileIsMissingIsWarnedOf(t *testing.T) {
	s, c, _ := newServer(t)
	addAgent(t, s, "dev")
	if got := s.warningsOf(t.Context(), "dev"); got != nil {
		t.Errorf("without a policy: %q", got)
	}
	if _, err := c.ApplyPolicy(t.Context(), apitype.ApplyPolicy{YAML: someYAML}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.store.CreateAgent(t.Context(), store.Agent{Name: "other", User: "alice", Profile: "raeder", Placement: "netns", Created: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if got := s.warningsOf(t.Context(), "other"); len(got) != 1 || !strings.Contains(got[0], `"raeder"`) {
		t.Errorf("other: %q", got)
	}
	if got := s.warningsOf(t.Context(), "dev"); got != nil {
		t.Errorf("dev: %q", got)
	}
}

// TestADeadPlaneIsShownUntilItIsReplaced: the process that was killed must not
// look like a fault of the one that serves.
func TestADeadPlaneIsShownUntilItIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlanes(time.Now)
		p.set(snap("x", 1))
		pids := func() (list []int32) {
			for _, seen := range p.list() {
				list = append(list, seen.PID)
			}
			return list
		}
		p.asked("proxy", 10, "x")
		time.Sleep(apitype.LeaseTTL)
		if got := pids(); len(got) != 1 || got[0] != 10 {
			t.Errorf("alone and lapsed: %v", got)
		}
		p.asked("proxy", 11, "x")
		if got := pids(); len(got) != 1 || got[0] != 11 {
			t.Errorf("replaced: %v", got)
		}
		time.Sleep(time.Second)
		p.asked("proxy", 12, "x")
		if got := pids(); len(got) != 2 {
			t.Errorf("two that hold a lease: %v", got)
		}
	})
}
