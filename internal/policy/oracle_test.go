// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"bawn/internal/names"
	"bawn/internal/policy"
	"bawn/internal/roottest"
)

// A plainRule is a rule as a second reader would take it down: strings only.
type plainRule struct {
	deny           bool
	host           string
	ports          []string // nil: not written
	methods, paths []string // nil: not written
	expired        bool
	inspect        string // "": not written
	websocket      bool
}

// yaml writes the rule.
func (r plainRule) yaml() string {
	var keys []string
	add := func(key string, list []string) {
		if list != nil {
			keys = append(keys, key+": ["+strings.Join(list, ", ")+"]")
		}
	}
	keys = append(keys, fmt.Sprintf("host: %q", r.host))
	add("ports", r.ports)
	add("methods", r.methods)
	add("paths", r.paths)
	if r.inspect != "" {
		keys = append(keys, "inspect: "+r.inspect)
	}
	if r.websocket {
		keys = append(keys, "websocket: true")
	}
	if r.expired {
		keys = append(keys, "expires: 2020-01-01T00:00:00Z")
	}
	text := "{" + strings.Join(keys, ", ") + "}"
	if r.deny {
		return "deny: " + text
	}
	return text
}

// matches decides by string operations, without an index and without globs.
func (r plainRule) matches(q policy.Query) bool {
	host := q.Host.String()
	if rest, wild := strings.CutPrefix(r.host, "*"); wild {
		if !strings.HasSuffix(host, rest) || host == rest[1:] {
			return false
		}
	} else if host != r.host {
		return false
	}
	ports := r.ports
	if ports == nil && !r.deny {
		ports = []string{"443"}
	}
	if ports != nil && !slices.ContainsFunc(ports, func(p string) bool {
		number, suffix, _ := strings.Cut(p, "/")
		return number == fmt.Sprint(q.Port) && (r.deny || (suffix == "http" || number == "80") == q.Plain)
	}) {
		return false
	}
	if r.methods != nil && !slices.Contains(r.methods, q.Method) || q.WebSocket && !r.websocket && !r.deny {
		return false
	}
	return r.paths == nil || slices.ContainsFunc(r.paths, func(p string) bool {
		if head, rest := strings.CutSuffix(p, "**"); rest {
			return strings.HasPrefix(q.Path, head)
		}
		return q.Path == p
	})
}

func pick[T any](rnd *rand.Rand, list ...T) T { return list[rnd.IntN(len(list))] }

// some returns nil half of the time, and otherwise a part of list.
func some(rnd *rand.Rand, list ...string) []string {
	if rnd.IntN(2) == 0 {
		return nil
	}
	part := []string{}
	for _, e := range list {
		if rnd.IntN(2) == 0 {
			part = append(part, e)
		}
	}
	return part
}

var (
	someHosts = []string{"a.example.com", "b.example.com", "a.b.example.com", "example.com", "notexample.com", "other.example.net"}
	patterns  = append([]string{"*.example.com", "*.b.example.com", "*.example.net"}, someHosts...)
)

func randomRule(rnd *rand.Rand) plainRule {
	r := plainRule{
		deny: rnd.IntN(4) == 0, host: pick(rnd, patterns...), expired: rnd.IntN(6) == 0,
		ports:   some(rnd, "443", "80", "8080/http", "8443"),
		methods: some(rnd, "GET", "PUT"), paths: some(rnd, "/", "/v1/**", "/v1/x"),
	}
	if r.websocket = !r.deny && rnd.IntN(4) == 0; r.websocket {
		return r
	}
	if !r.deny && r.methods == nil && r.paths == nil && !slices.Contains(r.ports, "80") && !slices.Contains(r.ports, "8080/http") {
		r.inspect = pick(rnd, "", "full", "sni", "none")
	}
	return r
}

// TestDecisionsAgreeWithASecondReader: random policies and every query near
// them, decided by the index and by going through the rules one by one.
func TestDecisionsAgreeWithASecondReader(t *testing.T) {
	rounds := roottest.Count(30, 5000)
	for seed := range rounds {
		rnd := rand.New(rand.NewPCG(uint64(seed), 7))
		var list []plainRule
		var lines []string
		for range 1 + rnd.IntN(8) {
			r := randomRule(rnd)
			list, lines = append(list, r), append(lines, r.yaml())
		}
		src := rules(lines...)
		a := load(t, src).Agent("dev")
		for _, host := range someHosts {
			for _, port := range []uint16{443, 80, 8080, 8443} {
				checkName(t, src, a, list, names.MustParse(host), port)
				for _, method := range []string{"GET", "PUT"} {
					for _, path := range []string{"/", "/v1", "/v1/", "/v1/x", "/v1/x/y", "/v2"} {
						for _, plain := range []bool{true, false} {
							q := policy.Query{Host: names.MustParse(host), Port: port, Plain: plain, Method: method, Path: path}
							checkRequest(t, src, a, list, q)
							q.WebSocket = true
							checkRequest(t, src, a, list, q)
						}
					}
				}
			}
		}
	}
}

func checkRequest(t *testing.T, src string, a *policy.Agent, list []plainRule, q policy.Query) {
	t.Helper()
	allowed, denied := false, false
	for _, r := range list {
		if !r.expired && r.matches(q) {
			allowed, denied = allowed || !r.deny, denied || r.deny
		}
	}
	d := a.Request(q, now)
	if d.Verdict.Allowed() != (allowed && !denied) {
		t.Fatalf("%s: decided %s, going through the rules gives allow %v, deny %v\n%s", q, said(d), allowed, denied, src)
	}
	// Whoever may send a request may open the connection for it.
	if n := a.Name(q.Host, q.Port, now); d.Verdict.Allowed() && !n.Verdict.Allowed() {
		t.Fatalf("%s is allowed and its name is not: %s\n%s", q, said(n), src)
	}
}

func checkName(t *testing.T, src string, a *policy.Agent, list []plainRule, host names.Host, port uint16) {
	t.Helper()
	n := a.Name(host, port, now)
	if !n.Verdict.Allowed() {
		return
	}
	for _, r := range list {
		// Any request that the rule is about, so that only host and port count.
		q := policy.Query{Host: host, Port: port, Plain: n.Plain, Method: "GET", Path: "/"}
		open := plainRule{deny: r.deny, host: r.host, ports: r.ports}
		switch {
		case r.expired || !open.matches(q):
		case r.deny && r.methods == nil && r.paths == nil:
			t.Fatalf("%s:%d is allowed, and %s denies all of it\n%s", host, port, r.yaml(), src)
		case r.deny && (r.methods == nil || len(r.methods) > 0) && (r.paths == nil || len(r.paths) > 0) && n.Inspect != policy.InspectFull:
			t.Fatalf("%s:%d is not inspected, and %s denies part of it\n%s", host, port, r.yaml(), src)
		case !r.deny && r.inspect == "sni" && n.Inspect == policy.InspectNone:
			t.Fatalf("%s:%d: inspect %s is weaker than %s\n%s", host, port, n.Inspect, r.yaml(), src)
		}
	}
}
