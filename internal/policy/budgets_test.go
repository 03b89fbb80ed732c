// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"strings"
	"testing"
	"time"

	"bawn/internal/names"
	"bawn/internal/policy"
	"bawn/internal/quota"
)

const budgeted = `version: 1
profiles:
  coder:
    rules:
      - host: "*.example.com"
        id: wide
        budgets: {egress_bytes: 1MB/h}
      - host: api.example.com
        methods: [GET]
        id: api
        budgets: {requests: [10/s, 100/day]}
      - host: docs.example.org
    budgets: {egress_bytes: 500MB/day, requests: 600/min, connections: 64}
agents:
  dev:
    profile: coder
    rules: []
    budgets: {requests: [6000/min, 9000/day], egress_bytes: 100MB/day}
`

func texts(list []quota.Budget) string {
	var all []string
	for _, b := range list {
		all = append(all, b.String()+" of "+b.Origin)
	}
	return strings.Join(all, "; ")
}

// TestBudgetsOfProfileAgentAndRules: of the agent as a whole the tighter holds; of
// rules, those of every rule that allows.
func TestBudgetsOfProfileAgentAndRules(t *testing.T) {
	p := load(t, budgeted)
	a := p.Agent("dev")
	if got, want := texts(a.Budgets()), "egress_bytes 100MB/day of agent dev; requests 600/min of profile coder; "+
		"connections 64 of profile coder; requests 9000/day of agent dev"; got != want {
		t.Errorf("the agent has %s", got)
	}
	now := time.Now()
	for target, want := range map[string]string{
		"https://api.example.com/":  "requests 10/s of rule api; requests 100/day of rule api; egress_bytes 1MB/h of rule wide",
		"https://www.example.com/":  "egress_bytes 1MB/h of rule wide",
		"https://docs.example.org/": "",
	} {
		q, err := policy.ParseQuery("GET", target)
		if err != nil {
			t.Fatal(err)
		}
		if d := a.Request(q, now); !d.Verdict.Allowed() || texts(d.Budgets) != want {
			t.Errorf("%s: %s", target, texts(d.Budgets))
		}
	}
	if d := a.Name(names.MustParse("www.example.com"), 443, now); texts(d.Budgets) != "egress_bytes 1MB/h of rule wide" {
		t.Errorf("of a tunnel: %s", texts(d.Budgets))
	}
	if got := len(a.AllBudgets()); got != 7 {
		t.Errorf("%d budgets in all", got)
	}
	if p.Agent("nobody").Budgets() != nil || p.Agent("nobody").AllBudgets() != nil {
		t.Error("nobody has budgets")
	}
}

func TestBudgetsAreShownAndExplained(t *testing.T) {
	p := load(t, budgeted)
	effective := p.Effective()
	for _, want := range []string{
		"    budgets: {egress_bytes: 500MB/day, requests: 600/min, connections: 64} # line 13",
		"        budgets: {requests: [10/s, 100/day]} # line 11",
		"    budgets: {egress_bytes: 100MB/day, requests: [6000/min, 9000/day]} # line 18",
	} {
		if !strings.Contains(effective, want+"\n") {
			t.Errorf("the effective policy has no line %q:\n%s", want, effective)
		}
	}
	again := load(t, effective)
	if got := again.Agent("dev"); texts(got.AllBudgets()) != texts(p.Agent("dev").AllBudgets()) {
		t.Errorf("the effective policy has other budgets: %s", texts(got.AllBudgets()))
	}
	e, err := p.Explain("dev", "GET", "https://api.example.com/", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\n  budget requests 600/min (profile coder, line 13)\n", "\n  budget requests 10/s (rule api, line 11)\n"} {
		if !strings.Contains(e.String(), want) {
			t.Errorf("the explanation does not say %q:\n%s", want, e)
		}
	}
}

// TestGrantsHaveBudgets under ids of their own.
func TestGrantsHaveBudgets(t *testing.T) {
	known := policy.Known{AnyAgent: true, Grants: []policy.Grant{{
		ID: policy.GrantPrefix + "7", Agent: "dev", Rule: "{host: new.example.net, budgets: {requests: 5/h}}",
		Until: time.Now().Add(time.Hour), By: "alice",
	}}}
	p, err := policy.Load([]byte(budgeted), known)
	if err != nil {
		t.Fatal(err)
	}
	d := p.Agent("dev").Request(policy.Query{Host: names.MustParse("new.example.net"), Port: 443, Method: "GET", Path: "/"}, time.Now())
	if !d.Verdict.Allowed() || len(d.Budgets) != 1 || d.Budgets[0].Rule != policy.GrantPrefix+"7" || d.Budgets[0].Limit != 5 {
		t.Errorf("%+v", d)
	}
}
