// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"strings"
	"testing"
	"time"

	"bawn/internal/names"
	"bawn/internal/policy"
)

// granted is a policy with one grant for agent dev, and what it is loaded with.
func granted(rule string, until time.Time) policy.Known {
	return policy.Known{AnyAgent: true, Grants: []policy.Grant{{ID: "grant.g1", Agent: "dev", Rule: rule, Until: until, By: "alice", Reason: "a test"}}}
}

func TestGrantsAllowForATime(t *testing.T) {
	src := rules(`{host: a.example, methods: [GET]}`, `deny: {host: a.example, paths: ["/secret"]}`)
	p, err := policy.Load([]byte(src), granted(`{host: a.example, methods: [POST]}`, now.Add(time.Minute)))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		query string
		at    time.Duration
		want  string
	}{
		{"GET https://a.example/", 0, "allow p.1"},
		{"POST https://a.example/", 0, "allow grant.g1"},
		{"POST https://a.example/", time.Minute - 1, "allow grant.g1"},
		{"POST https://a.example/", time.Minute, "deny rule_expired grant.g1"},
		{"POST https://a.example/secret", 0, "deny policy_denied p.2"},
		{"PUT https://a.example/", 0, "deny method_not_allowed"},
	} {
		if got := said(p.Agent("dev").Request(query(t, c.query), now.Add(c.at))); got != c.want {
			t.Errorf("%s after %s: %s, want %s", c.query, c.at, got, c.want)
		}
	}
	if got := said(p.Agent("other").Request(query(t, "POST https://a.example/"), now)); got != "deny host_not_allowed" {
		t.Errorf("another agent: %s", got)
	}
}

// TestI2AGrantThatWasEndedMatchesNothing whatever the clock says.
func TestI2AGrantThatWasEndedMatchesNothing(t *testing.T) {
	known := granted(`host: a.example`, now.Add(time.Hour))
	known.Grants[0].Rule, known.Grants[0].Ended = `{host: a.example}`, true
	p, err := policy.Load([]byte("version: 1\n"), known)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []time.Duration{-100 * 365 * 24 * time.Hour / 2, 0, time.Hour} {
		d := p.Agent("dev").Name(names.MustParse("a.example"), 443, now.Add(at))
		if got := said(d); got != "deny rule_expired grant.g1" {
			t.Errorf("at %s: %s", at, got)
		}
	}
	if text := p.Effective(); strings.Contains(text, "a.example") {
		t.Errorf("it is shown as in force:\n%s", text)
	}
}

func TestGrantsAreJudgedLikeRules(t *testing.T) {
	known := granted("", now.Add(time.Hour))
	known.Owned = []policy.Owned{{Preset: "openai", Hosts: []names.Pattern{names.MustPattern("api.openai.com")}}}
	for rule, want := range map[string]string{
		`{host: "*.com"}`:                                          "too wide",
		`{host: a.example, hots: b.example}`:                       "unknown key",
		`{host: api.openai.com}`:                                   "belongs to the preset openai",
		`{deny: {host: a.example}}`:                                "a grant only allows",
		`{host: a.example, expires: 2030-01-01T00:00:00Z}`:         "a grant ends when --for says",
		`{host: a.example, id: mine}`:                              "an id of its own",
		`{host: a.example, ports: [443/http]}`:                     "port 443 is HTTP without TLS here and TLS in rule p.1",
		`{cidr: 203.0.113.0/24}`:                                   "not yet supported",
		`{host: a.example, inspect: sni, methods: [GET]}`:          "cannot be enforced with inspect: sni",
		`{host: a.example, credential: nothing}`:                   "no client certificate",
		`[]`:                                                       "wants a mapping",
		``:                                                         "the policy is empty",
		"{host: a.example, reason: \"\u202e\"}":                    "shows as nothing",
		"{host: a.example} # \x1b[31m":                             "shows as nothing",
		"{host: a.example}\n---\n{host: b.example}":                "more than one YAML document",
		`{host: &x a.example, reason: *x}`:                         "an anchor",
		`{host: a.example, addresses: [127.0.0.0/8]}`:              "loopback",
		`{host: a.example, paths: ["/%2e%2e/x"]}`:                  "path",
		`{host: a.example, methods: [CONNECT]}`:                    "CONNECT is no method",
		`{host: a.example, allow_fields: [metadata], ask: true}`:   "not yet supported",
		`{host: a.example, ports: [443, 443/tcp], methods: [GET]}`: "a second time",
	} {
		known.Grants[0].Rule = rule
		_, err := policy.Load([]byte(rules(`host: a.example`)), known)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "line 0") {
			t.Errorf("%s: %v, want %q", rule, err, want)
		}
	}
	known = granted(`{host: a.example}`, now.Add(time.Hour))
	known.AnyAgent = false
	if _, err := policy.Load([]byte("version: 1\n"), known); err == nil || !strings.Contains(err.Error(), `no agent "dev"`) {
		t.Errorf("a grant for nobody: %v", err)
	}
}

func TestEffectiveAndExplainSayWhoseGrantItIs(t *testing.T) {
	p, err := policy.Load([]byte(rules(`{host: a.example, methods: [GET]}`)), granted(`{host: b.example, methods: [POST]}`, now.Add(time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	text := p.Effective("dev")
	for _, want := range []string{
		"      - host: b.example # grant.g1, grant by alice until 2026-12-01T13:00:00Z\n",
		"        ports: [443] # default\n",
		"        methods: [POST] # grant by alice until 2026-12-01T13:00:00Z\n",
		"        expires: 2026-12-01T13:00:00Z # grant by alice",
		"        reason: \"a test\" # grant by alice",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no line %q in\n%s", want, text)
		}
	}
	again := load(t, text)
	for _, q := range []string{"GET https://a.example/", "POST https://b.example/", "GET https://b.example/"} {
		one, two := p.Agent("dev").Request(query(t, q), now), again.Agent("dev").Request(query(t, q), now)
		if one.Verdict.Allowed() != two.Verdict.Allowed() {
			t.Errorf("%s: %s, and by its own text %s", q, said(one), said(two))
		}
	}
	e, err := p.Explain("dev", "POST", "https://b.example/", now)
	if err != nil || e.Rule != "grant.g1" || !strings.Contains(e.String(), "* allow grant.g1 (grant by alice until 2026-12-01T13:00:00Z) b.example") {
		t.Errorf("explained: %v\n%s", err, e)
	}
}

func TestShortFormsOfRules(t *testing.T) {
	for text, want := range map[string]string{
		"GET https://api.example.com/v1/items":          `{host: "api.example.com", ports: ["443"], methods: ["GET"], paths: ["/v1/items"]}`,
		"GET,HEAD  https://API.example.com.:8443/v1/**": `{host: "api.example.com", ports: ["8443"], methods: ["GET", "HEAD"], paths: ["/v1/**"]}`,
		"GET http://api.example.com":                    `{host: "api.example.com", ports: ["80"], methods: ["GET"], paths: ["/"]}`,
		"POST http://api.example.com:8080/x":            `{host: "api.example.com", ports: ["8080/http"], methods: ["POST"], paths: ["/x"]}`,
		"wss://api.example.com/feed":                    `{host: "api.example.com", ports: ["443"], methods: ["GET"], paths: ["/feed"], websocket: true}`,
		"api.example.com":                               `{host: "api.example.com"}`,
		"*.example.com:8443":                            `{host: "*.example.com", ports: ["8443"]}`,
		"db.example.com:5432/tcp":                       `{host: "db.example.com", ports: ["5432/tcp"], inspect: none}`,
		" {host: a.example} ":                           `{host: a.example}`,
	} {
		got, err := policy.ParseRule(text)
		if err != nil || got != want {
			t.Errorf("%q: %s, %v, want %s", text, got, err, want)
			continue
		}
		if _, err := policy.Load([]byte("version: 1\n"), granted(got, now.Add(time.Hour))); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{
		"", "GET", "GET api.example.com/x", "https://api.example.com/x", "GET https://192.0.2.1/", "GET https://api.example.com/?q=1",
		"GET https://api.example.com/../x", "GET ftp://api.example.com/", "GET https://u@api.example.com/", "api.example.com/x",
		"db.example.com/tcp", "GET https://api.example.com:80/", "a b c", "{host: a}\n{", "wss://a.example/#x", `a"b.example`, "10.0.0.1:22/tcp",
	} {
		if got, err := policy.ParseRule(text); err == nil {
			t.Errorf("%q was read as %s", text, got)
		}
	}
}

// FuzzParseRule: what a short form gives is one rule in braces, which allows what
// the words say and is read without a problem, or with one of its meaning.
func FuzzParseRule(f *testing.F) {
	for _, s := range []string{"GET https://a.example/x", "wss://a.example/", "*.a.example:80", "a.example:22/tcp", "{host: a.example}", `x" , methods: [` + "\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		rule, err := policy.ParseRule(text)
		if err != nil {
			return
		}
		if !strings.HasPrefix(rule, "{") || strings.ContainsAny(rule, "\r\n") {
			t.Fatalf("%q became %q", text, rule)
		}
		p, err := policy.Load([]byte("version: 1\n"), granted(rule, now.Add(time.Hour)))
		if err != nil || strings.HasPrefix(strings.TrimSpace(text), "{") {
			return
		}
		list := p.Agent("dev").Rules()
		if len(list) != 1 || list[0].Deny || list[0].AcceptRisk != "" || list[0].Addresses != nil || list[0].Credential != "" || list[0].Guard != "" {
			t.Fatalf("%q gave %+v", text, list)
		}
		host := strings.ToLower(text)
		if !strings.Contains(host, list[0].Host.Host().String()) {
			t.Fatalf("%q is about %s", text, list[0].Host)
		}
	})
}
