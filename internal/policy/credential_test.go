// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"bawn/internal/names"
	"bawn/internal/policy"
	"bawn/internal/roottest"
)

// keyring is what the tests' policies may name.
var keyring = policy.Known{AnyAgent: true, Credentials: map[string]policy.Credential{
	"cert-a": {Kind: policy.TLSClient, Hosts: []names.Host{names.MustParse("a.example.com"), names.MustParse("b.example.com")}},
	"cert-b": {Kind: policy.TLSClient, Hosts: []names.Host{names.MustParse("a.example.com")}},
	"token":  {Kind: "bearer", Hosts: []names.Host{names.MustParse("a.example.com")}},
}}

func TestCredentialsThatCannotBeUsedAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ rules, want string }{
		"unknown":          {rules("{host: a.example.com, credential: cert-c}"), `line 5: p.1 credential: "cert-c" is no client certificate of the configuration, and other credentials are not yet supported by this build (did you mean cert-a?)`},
		"another kind":     {rules("{host: a.example.com, credential: token}"), `credentials of kind "bearer" are not yet supported by this build`},
		"another host":     {rules("{host: c.example.com, credential: cert-a}"), "credential \"cert-a\" is not for c.example.com (the configuration says what it is for: a.example.com, b.example.com)"},
		"many hosts":       {rules(`{host: "*.example.com", credential: cert-a}`), "a credential is for one host"},
		"without TLS":      {rules("{host: a.example.com, ports: [443, 8080/http], credential: cert-a}"), "port 8080/http is HTTP without TLS"},
		"not inspected":    {rules("{host: a.example.com, inspect: sni, credential: cert-a}"), "cannot be enforced with inspect: sni"},
		"in a deny":        {rules("deny: {host: a.example.com, credential: cert-a}"), `unknown key "credential"`},
		"two, same rule":   {rules("{host: a.example.com, credential: cert-a}", "{host: a.example.com, credential: cert-b}"), "rule p.2 (line 6) has credential \"cert-b\", and some requests match both"},
		"two, one path":    {rules(`{host: a.example.com, paths: ["/v1/*/x"], credential: cert-a}`, `{host: a.example.com, paths: ["/v1/**"], credential: cert-b}`), "some requests match both"},
		"profile and own":  {"version: 1\nprofiles: {p: {rules: [{host: a.example.com, credential: cert-a}]}}\nagents: {dev: {profile: p, rules: [{host: a.example.com, methods: [GET], credential: cert-b}]}}\n", "some requests match both"},
		"one with expires": {rules("{host: a.example.com, expires: 2099-01-01T00:00:00Z, credential: cert-a}", "{host: a.example.com, credential: cert-b}"), "some requests match both"},
	} {
		_, err := policy.Load([]byte(c.rules), keyring)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got\n%v\nwant something with\n%s", name, err, c.want)
		}
	}
}

// TestACredentialIsPartOfTheDecision of a request, and of all that shows it.
func TestACredentialIsPartOfTheDecision(t *testing.T) {
	src := rules(
		"{host: a.example.com}",
		`{host: a.example.com, methods: [GET], paths: ["/v1/**"], credential: cert-a}`,
		`{host: a.example.com, methods: [GET], paths: ["/v2/**"], credential: cert-b}`,
	)
	p, err := policy.Load([]byte(src), keyring)
	if err != nil {
		t.Fatal(err)
	}
	a := p.Agent("dev")
	for path, want := range map[string]string{"/v1/x": "cert-a", "/v2/x": "cert-b", "/v3": ""} {
		d := a.Request(policy.Query{Host: names.MustParse("a.example.com"), Port: 443, Method: "GET", Path: path}, now)
		if !d.Verdict.Allowed() || d.Credential != want || d.Sensitive != (want != "") {
			t.Errorf("%s: %+v, want credential %q", path, d, want)
		}
	}
	e, err := p.Explain("dev", "GET", "https://a.example.com/v1/x", now)
	if err != nil || e.Credential != "cert-a" || !strings.Contains(e.String(), ", credential cert-a\n") || !strings.Contains(e.String(), "paths [/v1/**] credential cert-a: matches") {
		t.Errorf("explained: %v, %v", e, err)
	}
	text := p.Effective()
	if strings.Count(text, "        credential: cert-a # line 6") != 1 {
		t.Errorf("effective:\n%s", text)
	}
	if _, err := policy.Load([]byte(text), keyring); err != nil {
		t.Errorf("the effective policy is refused: %v", err)
	}
	for _, w := range p.Warnings(now) {
		if strings.Contains(w.Error(), "makes no difference") {
			t.Errorf("a rule with a credential is no copy of one without: %v", w)
		}
	}
}

// TestAPlaneTakesEveryCredential: one that has gone refuses the requests that
// need it, not the policy.
func TestAPlaneTakesEveryCredential(t *testing.T) {
	known := policy.Known{AnyAgent: true, AnyCredential: true}
	if _, err := policy.Load([]byte(rules("{host: a.example.com, credential: gone}")), known); err != nil {
		t.Error(err)
	}
	both := rules("{host: a.example.com, credential: gone}", "{host: a.example.com, credential: lost}")
	if _, err := policy.Load([]byte(both), known); err == nil {
		t.Error("two credentials for one request are accepted")
	}
}

// TestTwoCredentialsMeetExactlyWhereARequestDoes: random pairs of rules are
// refused if and only if some request matches both, by trying them all.
func TestTwoCredentialsMeetExactlyWhereARequestDoes(t *testing.T) {
	paths := []string{"/", "/a", "/a/", "/a/b", "/b", "/a/b/", "/a/c", "/a/b/c", "/a/c/c", "/x/b", "/x", "/a/b/c/d", "/x/", "/x/b/c"}
	globs := []string{"/", "/a", "/a/", "/a/b", "/*", "/*/", "/*/b", "/a/*", "/a/**", "/**", "/a/*/c", "/*/b/**", "/a/b/", "/a/b/**"}
	single := policy.Known{AnyAgent: true, AnyCredential: true}
	refused := 0
pairs:
	for seed := range roottest.Count(300, 20000) {
		rnd := rand.New(rand.NewPCG(uint64(seed), 3))
		var text [2]string
		var rule [2]*policy.Agent
		for i := range text {
			some := plainRule{host: "a.example.com", ports: []string{pick(rnd, "443", "8443")}, methods: some(rnd, "GET", "PUT")}
			if rnd.IntN(4) > 0 {
				for range rnd.IntN(3) {
					some.paths = append(some.paths, globs[rnd.IntN(len(globs))])
				}
			}
			text[i] = strings.TrimSuffix(some.yaml(), "}") + fmt.Sprintf(", credential: c%d}", i)
			p, err := policy.Load([]byte(rules(text[i])), single)
			if err != nil {
				continue pairs // a path twice
			}
			rule[i] = p.Agent("dev")
		}
		meet := false
		for _, port := range []uint16{443, 8443} {
			for _, method := range []string{"GET", "PUT"} {
				for _, path := range paths {
					q := policy.Query{Host: names.MustParse("a.example.com"), Port: port, Method: method, Path: path}
					meet = meet || rule[0].Request(q, now).Verdict.Allowed() && rule[1].Request(q, now).Verdict.Allowed()
				}
			}
		}
		_, err := policy.Load([]byte(rules(text[:]...)), single)
		if (err != nil) != meet {
			t.Fatalf("a request matches both: %v; refused: %v\n%s\n%s", meet, err, text[0], text[1])
		}
		if meet {
			refused++
		}
	}
	if refused == 0 {
		t.Error("no pair met")
	}
}
