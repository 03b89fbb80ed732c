// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"strings"
	"testing"

	"bawn/internal/policy"
)

// TestEveryBlockOfTheReferenceLoads: what stands there as YAML is a policy, or rules
// of one, that this build takes without a warning.
func TestEveryBlockOfTheReferenceLoads(t *testing.T) {
	blocks := strings.Split(string(policy.Reference()), "```yaml\n")[1:]
	if len(blocks) < 11 {
		t.Errorf("only %d blocks", len(blocks))
	}
	all := ""
	for _, b := range blocks {
		text, _, ended := strings.Cut(b, "```")
		if !ended {
			t.Fatalf("a block without end: %s", b)
		}
		src := text
		if !strings.HasPrefix(text, "version:") {
			src, all = recipe(text), all+text
		}
		p, err := policy.Load([]byte(src), policy.Known{AnyAgent: true})
		if err != nil {
			t.Errorf("%v\nin\n%s", err, text)
		} else if w := p.Warnings(now); len(w) > 0 {
			t.Errorf("%v\nin\n%s", w, text)
		}
	}
	p, err := policy.Load([]byte(recipe(all)), policy.Known{AnyAgent: true})
	if err != nil {
		t.Fatal(err) // together they make one
	}
	for ask, want := range map[string]string{
		"GET https://api.example.com/v1/items?page=2":                  "allow",
		"POST https://api.example.com/v1/items":                        "allow",
		"POST https://api.example.com/v1/users":                        "deny",
		"POST https://grpc.example.com/pkg.Service/Call":               "allow",
		"POST https://grpc.example.com/pkg.Admin/Call":                 "deny",
		"GET wss://live.example.com/socket":                            "allow",
		"GET https://events.example.com/stream":                        "allow",
		"GET https://git.example.com/acme/app.git/info/refs?service=x": "allow",
		"POST https://git.example.com/acme/app.git/git-upload-pack":    "allow",
		"POST https://git.example.com/acme/app.git/git-receive-pack":   "deny",
		"CONNECT git.example.com:22":                                   "allow",
		"CONNECT db.example.com:5432":                                  "allow",
		"CONNECT cache.example.com:6379":                               "allow",
		"GET https://models.corp.example/v1/models":                    "allow",
		"GET http://metrics.corp.example:9090/metrics":                 "allow",
		"GET https://a.docs.example.org/x":                             "allow",
		"GET https://docs.example.org/x":                               "allow",
	} {
		method, target, _ := strings.Cut(ask, " ")
		x, err := p.Explain("dev", method, target, now)
		if err != nil || !strings.HasPrefix(strings.SplitN(x.String(), ": ", 2)[1], want) {
			t.Errorf("%s: %v, %s", ask, err, x)
		}
	}
}

func recipe(rules string) string {
	return "version: 1\nprofiles:\n  p:\n    rules:\n      " + strings.ReplaceAll(strings.TrimSpace(rules), "\n", "\n      ") + "\nagents:\n  dev: {profile: p}\n"
}

// TestExplanationsAreAboutTheName: of a connection that is not looked into, in its
// own words, and without the rules that say nothing of it.
func TestExplanationsAreAboutTheName(t *testing.T) {
	p := load(t, rules(`{host: db.example, ports: [5432/tcp], inspect: none}`, `host: b.example`, `host: "*.c.example.com"`, `host: d.example`))
	for target, want := range map[string]string{
		"db.example:5432": "tcp://db.example:5432: allow by rule p.1, inspect none\n* allow p.1 (profile p, line 5) db.example ports [5432]: matches\n  rules for other hosts: 3 (-v shows them)\n",
		"b.example":       "https://b.example:443: allow by rule p.2, inspect full\n* allow p.2 (profile p, line 6) b.example ports [443]: matches\n  rules for other hosts: 3 (-v shows them)\n",
		"no.example":      "https://no.example:443: deny host_not_allowed (no rule is about the name)\n  rules for other hosts: 4 (-v shows them)\n",
	} {
		x, err := p.Explain("dev", "CONNECT", target, now)
		if err != nil || x.About().String() != want {
			t.Errorf("%v, %s", err, x.About())
		}
		if len(x.Rules) != 4 || strings.Contains(x.String(), "-v shows") {
			t.Errorf("all of it: %s", x)
		}
	}
	x, _ := p.Explain("dev", "GET", "https://c.example.com/", now)
	if !strings.Contains(x.About().String(), "and not c.example.com itself") {
		t.Errorf("a near miss is left out: %s", x.About())
	}
}
