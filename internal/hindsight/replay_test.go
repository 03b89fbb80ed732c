// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package hindsight_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"bawn/internal/audit"
	"bawn/internal/hindsight"
	"bawn/internal/ids"
	"bawn/internal/policy"
	"bawn/internal/roottest"
	"bawn/internal/verdict"
)

var dev = map[string]bool{"dev": true}

func replay(t *testing.T, tr *traffic, old, candidate *policy.Policy) hindsight.Report {
	t.Helper()
	r, err := hindsight.Replay(t.Context(), hindsight.Candidate{
		Policy: candidate, InForce: old, Agents: dev, Now: now, Past: func(uint64) *policy.Policy { return old },
	}, tr.seq())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// say writes the rows of a list, one a line.
func say(list []hindsight.Row) string {
	var b strings.Builder
	for _, x := range list {
		fmt.Fprintf(&b, "%d %s: %s%s%s\n", x.Count, x.Sample, x.Code, x.Was, x.Why)
	}
	return b.String()
}

func TestReplaySaysWhatWouldBreak(t *testing.T) {
	old := load(t, rules(`{host: a.example.com}`, `{host: b.example.com, guard: json}`, `{host: c.example.com, inspect: sni}`, `{host: d.example.com}`, `{host: g.example.com, addresses: [10.0.0.0/8]}`))
	candidate := load(t, rules(`{host: a.example.com, methods: [GET]}`, `{host: b.example.com, guard: json}`, `{host: c.example.com}`, `{host: d.example.com, guard: json}`,
		`{host: e.example.com, methods: [GET], paths: ["/new"]}`, `{host: f.example.com, guard: json}`, `{host: g.example.com}`))
	tr := &traffic{at: now.Add(-1000)}
	for _, what := range []string{
		"GET https://a.example.com/", "POST https://a.example.com/x", "POST https://a.example.com/y", "dns A a.example.com",
		"POST https://b.example.com/", // passed the same guard
		"tcp c.example.com:443",       // would be inspected
		"GET https://d.example.com/",  // a guard would look
		"GET https://e.example.com/new", "GET https://e.example.com/other", "CONNECT e.example.com:443", "dns A e.example.com", "dns TYPE16 e.example.com",
		"GET https://f.example.com/",
		"GET https://never.example.com/",
	} {
		tr.asks(t, old, "dev", what)
	}
	tr.asks(t, old, "dev", "GET https://g.example.com/").Outcome.Upstream = "10.1.2.3:443"
	guarded := tr.asks(t, old, "dev", "POST https://b.example.com/")
	guarded.Decision.Verdict, guarded.Decision.Code, guarded.Decision.Stage, guarded.Outcome = verdict.Deny, "body_not_json", "body", nil
	tr.asks(t, old, "gone", "GET https://a.example.com/")
	tr.asks(t, old, "dev", "GET https://a.example.com/").Decision.Clipped = true
	state := tr.asks(t, old, "dev", "GET https://a.example.com/")
	state.Decision.Verdict, state.Decision.Code, state.Decision.Stage, state.Outcome = verdict.Deny, "lease_lapsed", "lease", nil
	form := tr.asks(t, old, "dev", "GET https://a.example.com/")
	form.Decision.Verdict, form.Decision.Code, form.Decision.Host, form.Outcome = verdict.Deny, "host_invalid", "", nil
	late := *tr.asks(t, old, "dev", "POST https://a.example.com/x")
	late.Late = true
	tr.entries[len(tr.entries)-1] = late
	tr.entries = append(tr.entries, audit.Entry{Summary: &audit.Summary{Identity: ids.Identity{Agent: "dev"}, Denials: 40}}, audit.Entry{Damage: &audit.Damage{}})

	r := replay(t, tr, old, candidate)
	if got, want := say(r.Denied), "2 POST https://a.example.com:443/x: method_not_allowed\n1 GET https://g.example.com:443/: address_not_public10.1.2.3 is Private-Use (10.0.0.0/8, RFC1918)\n"; got != want {
		t.Errorf("denied\n%swant\n%s", got, want)
	}
	if got, want := say(r.Allowed), "2 GET https://e.example.com:443/new: host_not_allowed\n1 dns A e.example.com: dns_name_not_allowed\n"; !sameLines(got, want) {
		t.Errorf("allowed\n%swant\n%s", got, want)
	}
	if got, want := say(r.Content), "1 POST https://b.example.com:443/: body_not_jsona guard refused it, by what is not on record\n"+
		"1 connection to c.example.com:443: would be inspected, and what was sent inside is not on record\n"+
		"1 GET https://d.example.com:443/: guard json would judge it, by what is not on record\n"+
		"1 GET https://f.example.com:443/: host_not_allowedrules would allow it, and guards would judge it by what is not on record\n"; !sameLines(got, want) {
		t.Errorf("content\n%swant\n%s", got, want)
	}
	if got := say(r.Unjudged); strings.Count(got, "\n") != 5 || !strings.Contains(got, "40 : a denial beyond") || !strings.Contains(got, "not registered") || !strings.Contains(got, "lease_lapsed") || !strings.Contains(got, "cut") {
		t.Errorf("unjudged\n%s", got)
	}
	// GET a, dns a, POST b; denied: /other, TYPE16, never, the malformed one.
	if r.StillAllowed != 3 || r.StillDenied != 4 || r.Records != 20+40+1 {
		t.Errorf("%d still allowed, %d still denied of %d", r.StillAllowed, r.StillDenied, r.Records)
	}
}

func sameLines(a, b string) bool {
	count := map[string]int{}
	for l := range strings.Lines(a) {
		count[l]++
	}
	for l := range strings.Lines(b) {
		count[l]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}

// TestReplaySaysWhatThePolicyInForceDeniesAnyway: not everything that a candidate
// denies is its doing.
func TestReplaySaysWhatThePolicyInForceDeniesAnyway(t *testing.T) {
	then, inForce := load(t, rules(`host: a.example.com`, `host: b.example.com`)), load(t, rules(`host: a.example.com`))
	tr := &traffic{at: now}
	tr.asks(t, then, "dev", "GET https://a.example.com/")
	tr.asks(t, then, "dev", "GET https://b.example.com/")
	r, err := hindsight.Replay(t.Context(), hindsight.Candidate{Policy: load(t, rules()), InForce: inForce, Agents: dev, Now: now}, tr.seq())
	if err != nil || len(r.Denied) != 2 || r.Denied[0].Anyway != 0 || r.Denied[1].Anyway != 1 {
		t.Errorf("%+v, %v", r.Denied, err)
	}
}

func TestReplayEndsWithTheFaultOfTheRecord(t *testing.T) {
	_, err := hindsight.Replay(t.Context(), hindsight.Candidate{Now: now}, func(yield func(audit.Entry, error) bool) { yield(audit.Entry{}, errors.New("torn")) })
	if err == nil || !strings.Contains(err.Error(), "torn") {
		t.Errorf("%v", err)
	}
}

// TestReplayAgreesWithTheEngine: random policies and traffic. What the engine
// lets through under the candidate and did not before is counted as allowed or as
// depending on content, and so on: every record has one place.
func TestReplayAgreesWithTheEngine(t *testing.T) {
	for seed := range roottest.Count(200, 5000) {
		d := draw{rand.New(rand.NewPCG(uint64(seed), 3))}
		textOld, old := d.policy()
		textNew, candidate := d.policy()
		tr := &traffic{at: now}
		var denied, allowed, still uint64
		for range 60 {
			what := d.question()
			e := tr.asks(t, old, "dev", what)
			again := (&traffic{at: now}).asks(t, candidate, "dev", what)
			was, is := e.Decision.Verdict == verdict.Allow, again.Decision.Verdict == verdict.Allow
			name := strings.HasPrefix(what, "dns") || strings.HasPrefix(what, "CONNECT") || strings.HasPrefix(what, "tcp")
			if !name { // the proxy judges the name as well, and reads nothing that passes unread
				q, _ := policy.ParseQuery(strings.Fields(what)[0], strings.Fields(what)[1])
				n := candidate.Agent("dev").Name(q.Host, q.Port, now)
				is = n.Verdict.Allowed() && (n.Inspect != policy.InspectFull && !q.Plain || is)
			}
			if strings.HasPrefix(what, "dns TYPE16") && !was {
				is = false
			}
			switch {
			case was && !is:
				denied++
			case !was && is:
				allowed++
			default:
				still++
			}
		}
		r := replay(t, tr, old, candidate)
		var content, more uint64
		for _, x := range r.Content {
			if content += x.Count; x.Was != "" {
				more += x.Count
			}
		}
		if sum(r.Denied) != denied || sum(r.Allowed)+more != allowed || r.StillAllowed+r.StillDenied+content-more != still || len(r.Unjudged) > 0 {
			t.Fatalf("seed %d: engine: %d denied, %d allowed, %d as before; replay: %+v\nA:\n%s\nB:\n%s", seed, denied, allowed, still, r, textOld, textNew)
		}
	}
}

func sum(list []hindsight.Row) (n uint64) {
	for _, x := range list {
		n += x.Count
	}
	return n
}
