// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package hindsight_test

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"bawn/internal/audit"
	"bawn/internal/codes"
	"bawn/internal/ids"
	"bawn/internal/names"
	"bawn/internal/policy"
	"bawn/internal/verdict"
)

var now = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

func load(t testing.TB, src string, grants ...policy.Grant) *policy.Policy {
	t.Helper()
	p, err := policy.Load([]byte(src), policy.Known{AnyAgent: true, AnyCredential: true, Grants: grants})
	if err != nil {
		t.Fatalf("loading policy:\n%v\n%s", err, src)
	}
	return p
}

func rules(lines ...string) string {
	text := "version: 1\nagents:\n  dev:\n    rules:"
	if len(lines) == 0 {
		text += " []"
	}
	for _, l := range lines {
		text += "\n      - " + l
	}
	return text + "\n"
}

// A traffic is what an agent does, as records.
type traffic struct {
	entries []audit.Entry
	at      time.Time
}

// asks puts a question to a policy as the proxy does, and records it. "CONNECT
// host:port" is a connection, "dns A host" a look-up, "tcp host:port" one by
// redirection.
func (tr *traffic) asks(t testing.TB, p *policy.Policy, agent, what string) *audit.Entry {
	t.Helper()
	tr.at = tr.at.Add(time.Second)
	d := &audit.Decision{Time: tr.at, Identity: ids.Identity{Agent: agent}, Revision: 1}
	var got policy.Decision
	words := strings.Fields(what)
	switch {
	case words[0] == "dns":
		h := names.MustParse(words[2])
		d.Proto, d.Method, d.Host = "dns", words[1], h.String()
		got = p.Agent(agent).Host(h, tr.at)
		if c := got.Verdict.Why(); !got.Verdict.Allowed() && (c == "host_not_allowed" || c == "port_not_allowed") {
			got.Verdict.Code = "dns_name_not_allowed"
		}
	case words[0] == "CONNECT" || words[0] == "tcp":
		q, err := policy.ParseQuery("", words[1])
		if err != nil {
			t.Fatal(err)
		}
		d.Host, d.Port = q.Host.String(), q.Port
		if d.Proto = "tcp"; words[0] == "CONNECT" {
			d.Proto, d.Method = "http/1.1", "CONNECT"
		}
		got = p.Agent(agent).Name(q.Host, q.Port, tr.at)
		d.Inspect = got.Inspect.String()
	default:
		q, err := policy.ParseQuery(words[0], words[1])
		if err != nil {
			t.Fatal(err)
		}
		d.Proto, d.Method, d.Host, d.Port, d.Path = "http/1.1", q.Method, q.Host.String(), q.Port, q.Path
		if q.WebSocket {
			d.Proto = "websocket"
		}
		d.Scheme = map[bool]string{false: "https", true: "http"}[q.Plain]
		got = p.Agent(agent).Request(q, tr.at)
	}
	d.Verdict, d.Rule, d.Stage, d.Credential = got.Verdict.Effect, got.Verdict.Rule, got.Verdict.Stage, got.Credential
	e := audit.Entry{Decision: d}
	if d.Verdict == verdict.Allow {
		e.Outcome = &audit.Outcome{Upstream: "93.184.216.34:443", Status: 200}
	} else {
		d.Code = got.Verdict.Why()
	}
	tr.entries = append(tr.entries, e)
	return &tr.entries[len(tr.entries)-1]
}

func (tr *traffic) seq() iter.Seq2[audit.Entry, error] {
	return func(yield func(audit.Entry, error) bool) {
		for _, e := range tr.entries {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// A draw makes random policies and traffic over a few names, so that they meet.
type draw struct{ *rand.Rand }

func pick[T any](d draw, list ...T) T { return list[d.IntN(len(list))] }

var (
	hosts    = []string{"a.example.com", "b.example.com", "a.b.example.com", "example.com", "other.example.net"}
	patterns = append([]string{"*.example.com", "*.b.example.com"}, hosts...)
	paths    = []string{"/", "/v1/x", "/v1/y", "/v1/z/w", "/q%2F", "/a b"}
)

func (d draw) rule() string {
	keys := []string{fmt.Sprintf("host: %q", pick(d, patterns...))}
	if d.IntN(3) == 0 {
		keys = append(keys, pick(d, "ports: [443, 8443]", "ports: [80]", "ports: [8080/http, 443]"))
	}
	if d.IntN(2) == 0 {
		keys = append(keys, pick(d, "methods: [GET]", "methods: [GET, POST]", "methods: []"))
	}
	if d.IntN(2) == 0 {
		keys = append(keys, pick(d, `paths: ["/v1/**"]`, `paths: ["/v1/x", "/"]`, `paths: ["/*"]`))
	}
	switch {
	case d.IntN(5) == 0:
		return "deny: {" + strings.Join(keys, ", ") + "}"
	case len(keys) == 1 && d.IntN(3) == 0:
		keys = append(keys, pick(d, "inspect: sni", "inspect: none"))
	case d.IntN(4) == 0:
		keys = append(keys, "guard: json")
	}
	if !slices.ContainsFunc(keys, func(k string) bool { return strings.HasPrefix(k, "inspect") }) && d.IntN(4) == 0 {
		keys = append(keys, "websocket: true")
	}
	return "{" + strings.Join(keys, ", ") + "}"
}

// policy draws one that compiles.
func (d draw) policy(grants ...policy.Grant) (string, *policy.Policy) {
	for {
		var list []string
		for range d.IntN(6) {
			list = append(list, d.rule())
		}
		p, err := policy.Load([]byte(rules(list...)), policy.Known{AnyAgent: true, Grants: grants})
		if err == nil {
			return rules(list...), p
		}
	}
}

func (d draw) question() string {
	host := pick(d, append([]string{"new.example.org", "x.b.example.com"}, hosts...)...)
	switch d.IntN(8) {
	case 0:
		return "dns " + pick(d, "A", "AAAA", "TYPE16") + " " + host
	case 1:
		return "CONNECT " + host + pick(d, ":443", ":8443", ":22")
	case 2:
		return "tcp " + host + pick(d, ":443", ":5432")
	case 3:
		return "GET " + pick(d, "wss://", "ws://") + host + pick(d, paths[:4]...)
	}
	return pick(d, "GET", "POST", "PUT", "get") + " " + pick(d, "https://", "http://") + host + pick(d, "", ":8080", ":8443") + pick(d, paths[:5]...)
}

func verdictCode(s string) codes.Code { return codes.Code(s) }
