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
	"bawn/internal/client"
	"bawn/internal/lease"
	"bawn/internal/store"
)

// withPolicy is a server with an agent and someYAML in force.
func withPolicy(t *testing.T) (*Server, *client.Client) {
	t.Helper()
	s, c, _ := newServer(t)
	addAgent(t, s, "dev")
	if _, err := c.ApplyPolicy(t.Context(), apitype.ApplyPolicy{YAML: someYAML}); err != nil {
		t.Fatal(err)
	}
	return s, c
}

// explained asks what the policy in force says.
func explained(t *testing.T, c *client.Client, method, url string) string {
	t.Helper()
	e, err := c.ExplainPolicy(t.Context(), apitype.ExplainPolicy{Agent: "dev", Method: method, URL: url})
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(e.Effect + " " + e.Code + " " + e.Rule)
}

func TestAGrantIsInForceUntilItIsRevoked(t *testing.T) {
	s, c := withPolicy(t)
	const url = "https://new.example.com/v1/items"
	if got := explained(t, c, "GET", url); got != "deny host_not_allowed" {
		t.Fatalf("before: %s", got)
	}
	g, err := c.AddGrant(t.Context(), apitype.AddGrant{Agent: "dev", Rule: "GET " + url, Seconds: 600, Reason: "a look"})
	if err != nil {
		t.Fatal(err)
	}
	if !g.InForce || g.ID != "g1" || g.Until.Sub(g.At) != 10*time.Minute {
		t.Errorf("given: %+v", g)
	}
	if got := explained(t, c, "GET", url); got != "allow  grant.g1" {
		t.Errorf("with it: %s", got)
	}
	if got := explained(t, c, "POST", url); got != "deny method_not_allowed" {
		t.Errorf("with it, a POST: %s", got)
	}
	if told := s.planes.snapshot().Grants; len(told) != 1 || told[0].ID != "grant.g1" || told[0].Ended {
		t.Errorf("planes are told %+v", told)
	}
	text, err := c.EffectivePolicy(t.Context())
	if err != nil || !strings.Contains(text.Text, "grant.g1, grant by ") {
		t.Errorf("effective: %v\n%s", err, text.Text)
	}
	if list, err := c.Grants(t.Context(), false); err != nil || len(list) != 1 || list[0].Reason != "a look" {
		t.Errorf("listed: %+v, %v", list, err)
	}
	if err := c.RevokeGrant(t.Context(), "grant.g1"); err != nil {
		t.Fatal(err)
	}
	if got := explained(t, c, "GET", url); got != "deny rule_expired grant.g1" {
		t.Errorf("revoked: %s", got)
	}
	if list, _ := c.Grants(t.Context(), false); len(list) != 0 {
		t.Errorf("in force: %+v", list)
	}
	if list, _ := c.Grants(t.Context(), true); len(list) != 1 || list[0].InForce || !strings.HasPrefix(list[0].Why, "revoked by ") {
		t.Errorf("all: %+v", list)
	}
	err = c.RevokeGrant(t.Context(), "g1")
	if e, ok := errors.AsType[*apitype.Error](err); !ok || e.Status != 404 {
		t.Errorf("revoked twice: %v", err)
	}
}

func TestGrantsThatAreRefused(t *testing.T) {
	s, c, _ := newServer(t)
	addAgent(t, s, "dev")
	add := func(agent, rule string, seconds int64) error {
		_, err := c.AddGrant(t.Context(), apitype.AddGrant{Agent: agent, Rule: rule, Seconds: seconds})
		return err
	}
	if err := add("dev", "a.example", 60); err == nil || !strings.Contains(err.Error(), "no policy was applied yet") {
		t.Errorf("without a policy: %v", err)
	}
	if _, err := c.ApplyPolicy(t.Context(), apitype.ApplyPolicy{YAML: someYAML}); err != nil {
		t.Fatal(err)
	}
	for _, r := range []struct {
		agent, rule string
		seconds     int64
		want        string
	}{
		{"ghost", "a.example", 60, `no agent "ghost"`},
		{"doctor", "a.example", 60, `no agent "doctor"`},
		{"dev", "a.example", 0, "a time from 1s to 24h is needed"},
		{"dev", "a.example", 24*3600 + 1, "a time from 1s to 24h is needed"},
		{"dev", "*.com", 60, "too wide"},
		{"dev", "GET", 60, "wants a rule"},
		{"dev", "{deny: {host: a.example}}", 60, "only allows"},
		{"dev", "{host: a.example, credential: none-such}", 60, "no client certificate"},
		{"dev", "{host: api.example.com, ports: [443/http]}", 60, "port 443"},
	} {
		if err := add(r.agent, r.rule, r.seconds); err == nil || !strings.Contains(err.Error(), r.want) {
			t.Errorf("%s %s for %ds: %v, want %q", r.agent, r.rule, r.seconds, err, r.want)
		}
	}
	dev, err := s.agent(t.Context(), "dev")
	if err != nil {
		t.Fatal(err)
	}
	for range maxGrants {
		if _, err := s.store.AddGrant(t.Context(), store.Grant{Agent: "dev", AgentID: dev.ID, Rule: "{host: a.example}", At: time.Now(), Until: time.Now().Add(time.Hour)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := add("dev", "a.example", 60); err == nil || !strings.Contains(err.Error(), "the most that it may have") {
		t.Errorf("one more: %v", err)
	}
}

// TestAPolicyThatAGrantDoesNotFitIsRefused, and names the grant: which of the two
// is to go is for a person.
func TestAPolicyThatAGrantDoesNotFitIsRefused(t *testing.T) {
	_, c := withPolicy(t)
	g, err := c.AddGrant(t.Context(), apitype.AddGrant{Agent: "dev", Rule: "{host: b.example, ports: [8080/http]}", Seconds: 60})
	if err != nil {
		t.Fatal(err)
	}
	other := strings.ReplaceAll(someYAML, "rules: []", "rules: [{host: b.example, ports: [8080]}]")
	if _, err := c.ApplyPolicy(t.Context(), apitype.ApplyPolicy{YAML: other}); err == nil || !strings.Contains(err.Error(), g.Rule) {
		t.Errorf("applied: %v", err)
	}
	if err := c.RevokeGrant(t.Context(), g.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ApplyPolicy(t.Context(), apitype.ApplyPolicy{YAML: other}); err != nil {
		t.Errorf("without it: %v", err)
	}
}

// TestAGrantSaysThatADenyWins: an operator who sees no effect would look for it.
func TestAGrantSaysThatADenyWins(t *testing.T) {
	_, c := withPolicy(t)
	denying := strings.ReplaceAll(someYAML, "rules: []", "rules: [{deny: {host: b.example}}]")
	if _, err := c.ApplyPolicy(t.Context(), apitype.ApplyPolicy{YAML: denying}); err != nil {
		t.Fatal(err)
	}
	g, err := c.AddGrant(t.Context(), apitype.AddGrant{Agent: "dev", Rule: "b.example", Seconds: 60})
	if err != nil || len(g.Warnings) != 1 || !strings.Contains(g.Warnings[0], "denies b.example") {
		t.Errorf("given: %+v, %v", g, err)
	}
}

// TestGrantsGoWithTheirAgent: the next agent of that name has none of them.
func TestGrantsGoWithTheirAgent(t *testing.T) {
	s, c, _ := newServer(t)
	addAgent(t, s, "dev")
	if _, err := c.ApplyPolicy(t.Context(), apitype.ApplyPolicy{YAML: "version: 1\n"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.AddGrant(t.Context(), apitype.AddGrant{Agent: "dev", Rule: "a.example", Seconds: 60}); err != nil {
		t.Fatal(err)
	}
	if err := s.store.RemoveAgent(t.Context(), "dev"); err != nil {
		t.Fatal(err)
	}
	addAgent(t, s, "dev")
	snap, err := s.snapshot(t.Context())
	if err != nil || len(snap.Grants) != 0 {
		t.Errorf("planes are told %+v, %v", snap.Grants, err)
	}
	if got := explained(t, c, "GET", "https://a.example/"); got != "deny host_not_allowed" {
		t.Errorf("the next dev: %s", got)
	}
}

// TestI7AGrantsEndIsOnRecord: whoever gave it, and that its time was over.
func TestI7AGrantsEndIsOnRecord(t *testing.T) {
	s, c := withPolicy(t)
	if _, err := c.AddGrant(t.Context(), apitype.AddGrant{Agent: "dev", Rule: "a.example", Seconds: 1, Reason: "a look"}); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		list := actsOf(t, s)
		last := list[len(list)-1]
		if last.Act.Name == audit.ActGrantEnd && last.Result != nil {
			if last.Act.Object != "g1" || last.Act.Agent != "dev" || last.Act.Detail != grantOver {
				t.Errorf("its end: %+v", last.Act)
			}
			added := list[len(list)-2]
			if added.Act.Name != audit.ActGrantAdd || added.Result == nil || added.Result.Object != "g1" || added.Act.Agent != "dev" || !strings.Contains(added.Result.Detail, `{host: "a.example"} until `) {
				t.Errorf("its beginning: %+v, %+v", added.Act, added.Result)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("its end is not on record: %+v", last)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if list, _ := c.Grants(t.Context(), true); len(list) != 1 || list[0].Why != grantOver {
		t.Errorf("listed: %+v", list)
	}
}

// TestI2AGrantThatFitsNoMoreIsLeftOut: it only allows, and must not take the
// whole policy with it.
func TestI2AGrantThatFitsNoMoreIsLeftOut(t *testing.T) {
	snap := apitype.Snapshot{YAML: someYAML, Agents: []apitype.SnapshotAgent{{Name: "dev"}}, Grants: []apitype.SnapshotGrant{
		{ID: "grant.g1", Agent: "dev", Rule: "{preset: gone}", Until: time.Now().Add(time.Hour)},
		{ID: "grant.g2", Agent: "dev", Rule: "{host: a.example}", Until: time.Now().Add(time.Hour)},
		{ID: "grant.g3", Agent: "ghost", Rule: "{host: a.example}", Until: time.Now().Add(time.Hour)},
	}}
	p, err := lease.Compile(snap)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, r := range p.Agent("dev").Rules() {
		ids = append(ids, r.ID)
	}
	if strings.Join(ids, " ") != "reader.1 grant.g2" {
		t.Errorf("in force are %v", ids)
	}
	if _, err := lease.Check(snap, nil); err == nil {
		t.Error("a candidate that a grant does not fit was taken")
	}
}

func TestANewAgentThatThePolicyDoesNotNameIsWarnedOf(t *testing.T) {
	s, _ := withPolicy(t)
	if got := s.warningsOf(t.Context(), "other"); len(got) != 1 || !strings.Contains(got[0], "does not name agent other") {
		t.Errorf("%q", got)
	}
	if got := s.warningsOf(t.Context(), "dev"); len(got) != 0 {
		t.Errorf("%q", got)
	}
}

func TestATimeIsWrittenShort(t *testing.T) {
	for d, want := range map[time.Duration]string{24 * time.Hour: "24h", 90 * time.Minute: "1h30m", time.Minute: "1m", 10 * time.Second: "10s", time.Hour + 10*time.Minute: "1h10m"} {
		if got := short(d); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestWrongFiltersSayWhatToDo(t *testing.T) {
	_, err := filterHost("*.example.com")
	if e, ok := errors.AsType[*apitype.Error](err); !ok || !strings.Contains(e.Hint, "--by host") {
		t.Errorf("%v", err)
	}
	_, err = filterCode("a,b")
	if e, ok := errors.AsType[*apitype.Error](err); !ok || !strings.Contains(e.Hint, "bawn codes") {
		t.Errorf("%v", err)
	}
}
