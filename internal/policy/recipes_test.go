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
