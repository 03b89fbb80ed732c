// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"bawn/internal/policy"
)

// TestTheApexIsNeverImplied: a wildcard is one or more labels in front, and
// explain says so where somebody expects something else.
func TestTheApexIsNeverImplied(t *testing.T) {
	p := load(t, rules(`{host: "*.example.com", id: below}`, `{host: "*", accept_risk: a test, id: all, methods: [PUT]}`))
	for url, want := range map[string]string{
		"GET https://example.com/":         "deny; below: another host: *.example.com is every name in front of example.com, and not example.com itself; all: not for method \"GET\"",
		"GET https://a.example.com/":       "allow; below: matches, as every name in front of example.com does; all: not for method \"GET\"",
		"GET https://a.b.c.example.com/":   "allow; below: matches, as every name in front of example.com does; all: not for method \"GET\"",
		"GET https://notexample.com/":      "deny; below: another host; all: not for method \"GET\"",
		"PUT https://example.com.evil.net": "allow; below: another host; all: matches, as every name does",
	} {
		method, target, _ := strings.Cut(url, " ")
		e, err := p.Explain("dev", method, target, now)
		if err != nil {
			t.Fatal(err)
		}
		got := e.Verdict
		for _, r := range e.Rules {
			got += "; " + r.Rule + ": " + r.Why
		}
		if got != want {
			t.Errorf("%s: %s\nwant %s", url, got, want)
		}
	}
}

// TestEveryEffectiveLineHasItsOrigin: what is shown as enforced is all that is
// enforced, and each line of it says where it comes from: a line of the file that
// has it, a default, a registration or a grant. No rule comes from anywhere else.
func TestEveryEffectiveLineHasItsOrigin(t *testing.T) {
	line := regexp.MustCompile(` # (?:([a-z0-9.]+), )?(?:line ([0-9]+)|default|from the agent's registration|registered; no line of the policy|grant by alice until \S+)$`)
	for seed := range 40 {
		rnd := rand.New(rand.NewPCG(uint64(seed), 11))
		var list []string
		for range 1 + rnd.IntN(6) {
			list = append(list, randomRule(rnd).yaml())
		}
		src := rules(list...)
		known := policy.Known{AnyAgent: true, Agents: map[string]bool{"late": true}, Profiles: map[string]string{"late": "p"},
			Grants: []policy.Grant{{ID: "grant.g1", Agent: "late", Rule: `{host: granted.example, methods: [GET]}`, Until: now, By: "alice"}}}
		p, err := policy.Load([]byte(src), known)
		if err != nil {
			continue // a port that is TLS and not
		}
		source := strings.Split(src, "\n")
		shown := map[string]bool{}
		for text := range strings.Lines(p.Effective()) {
			text = strings.TrimSuffix(text, "\n")
			key := strings.Trim(strings.TrimSpace(strings.SplitN(text, ":", 2)[0]), "- ")
			if !strings.Contains(text, " # ") {
				if !slices.Contains([]string{"version", "profiles", "agents", "rules"}, key) {
					t.Fatalf("no origin: %s\n%s", text, p.Effective())
				}
				continue
			}
			m := line.FindStringSubmatch(text)
			if m == nil {
				t.Fatalf("an origin that is none: %s", text)
			}
			if m[1] != "" {
				shown[m[1]] = true
			}
			n, _ := strconv.Atoi(m[2])
			if n > 0 && (n > len(source) || !strings.Contains(source[n-1], key)) {
				t.Fatalf("%q is not on line %d of\n%s", text, n, src)
			}
		}
		for _, agent := range p.Agents() {
			for _, r := range p.Agent(agent).Rules() {
				if !shown[r.ID] {
					t.Errorf("rule %s is enforced and not shown:\n%s", r.ID, p.Effective())
				}
			}
		}
		if len(shown) != len(list)+1 {
			t.Errorf("%d rules are shown, and %s", len(shown), fmt.Sprint(len(list)+1))
		}
	}
}
