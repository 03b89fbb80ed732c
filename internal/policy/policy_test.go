// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"bawn/internal/codes"
	"bawn/internal/names"
	"bawn/internal/policy"
	"bawn/internal/verdict"
)

var now = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// load compiles a policy for agents that need no registration.
func load(t *testing.T, src string) *policy.Policy {
	t.Helper()
	p, err := policy.Load([]byte(src), policy.Known{AnyAgent: true})
	if err != nil {
		t.Fatalf("loading policy:\n%v\n%s", err, src)
	}
	return p
}

// rules wraps rules, one a line in flow style, in a whole policy for agent dev.
func rules(lines ...string) string {
	return "version: 1\nprofiles:\n  p:\n    rules:\n      - " + strings.Join(lines, "\n      - ") +
		"\nagents:\n  dev: {profile: p}\n"
}

// query reads a query and fails the test if it is none. "GET http://x/" is a
// request, "x:22" a name and port.
func query(t *testing.T, s string) policy.Query {
	t.Helper()
	method, target, ok := strings.Cut(s, " ")
	if !ok {
		method, target = "", s
	}
	q, err := policy.ParseQuery(method, target)
	if err != nil {
		t.Fatalf("ParseQuery(%q): %v", s, err)
	}
	return q
}

// ask decides on a query as a proxy would: name first, then the request.
func ask(a *policy.Agent, q policy.Query) policy.Decision {
	d := a.Name(q.Host, q.Port, now)
	if q.Method == "" || !d.Verdict.Allowed() {
		return d
	}
	return a.Request(q, now)
}

// said gives a decision as the tables write it.
func said(d policy.Decision) string {
	if d.Verdict.Allowed() {
		return "allow " + d.Verdict.Rule
	}
	return strings.TrimSpace(d.Verdict.Effect.String() + " " + string(d.Verdict.Why()) + " " + d.Verdict.Rule)
}

func TestDecisions(t *testing.T) {
	for name, tc := range map[string]struct {
		policy string
		want   map[string]string // query -> decision
	}{
		"an exact name is that name and no other": {
			rules(`host: api.example.com`),
			map[string]string{
				"GET https://api.example.com/":     "allow p.1",
				"GET https://API.Example.COM./":    "allow p.1",
				"GET https://x.api.example.com/":   "deny host_not_allowed",
				"GET https://example.com/":         "deny host_not_allowed",
				"GET https://notapi.example.com/":  "deny host_not_allowed",
				"api.example.com.evil.example:443": "deny host_not_allowed",
			},
		},
		"a wildcard is one or more labels and never the apex": {
			rules(`host: "*.example.com"`),
			map[string]string{
				"a.example.com":    "allow p.1",
				"a.b.example.com":  "allow p.1",
				"example.com":      "deny host_not_allowed",
				"notexample.com":   "deny host_not_allowed",
				"a.notexample.com": "deny host_not_allowed",
			},
		},
		"the port defaults to 443, and 80 has to be written": {
			rules(`host: a.example`, `{host: b.example, ports: [80, 8080/http, 8443/tcp]}`),
			map[string]string{
				"a.example:443":                  "allow p.1",
				"a.example:80":                   "deny port_not_allowed",
				"a.example:22":                   "deny port_not_allowed",
				"GET http://a.example/":          "deny port_not_allowed",
				"GET http://a.example:443/":      "deny plain_http_denied",
				"GET http://b.example/":          "allow p.2",
				"GET http://b.example:8080/":     "allow p.2",
				"GET https://b.example:8080/":    "deny plain_http_denied",
				"GET http://b.example:8443/":     "deny plain_http_denied",
				"GET https://b.example:8443/":    "allow p.2",
				"GET https://b.example/":         "deny port_not_allowed",
				"OPTIONS https://b.example:80/x": "deny plain_http_denied",
			},
		},
		"methods and paths have to match in one rule": {
			rules(`{host: a.example, methods: [GET], paths: ["/r/**"]}`, `{host: a.example, methods: [PUT, POST], paths: ["/w/*/x"]}`),
			map[string]string{
				"GET https://a.example/r/1":     "allow p.1",
				"GET https://a.example/r/":      "allow p.1",
				"GET https://a.example/r":       "deny path_not_allowed",
				"GET https://a.example/w/1/x":   "deny path_not_allowed",
				"POST https://a.example/w/1/x":  "allow p.2",
				"POST https://a.example/w//x":   "",
				"POST https://a.example/w/1/x/": "deny path_not_allowed",
				"POST https://a.example/r/1":    "deny path_not_allowed",
				"HEAD https://a.example/r/1":    "deny method_not_allowed",
				"get https://a.example/r/1":     "deny method_not_allowed",
			},
		},
		"an empty list matches nothing": {
			rules(`{host: a.example, methods: []}`, `{host: b.example, paths: []}`, `{host: c.example, ports: []}`, `deny: {host: d.example, methods: []}`, `host: d.example`),
			map[string]string{
				"GET https://a.example/": "deny method_not_allowed",
				"a.example":              "deny method_not_allowed",
				"b.example":              "deny path_not_allowed",
				"c.example":              "deny port_not_allowed",
				"GET https://d.example/": "allow p.5",
			},
		},
		"any deny wins": {
			rules(`host: "*.example.com"`, `deny: {host: files.example.com}`, `deny: {host: "*.admin.example.com", reason: no}`,
				`{deny: {host: api.example.com, methods: [DELETE]}, id: keep}`, `deny: {host: api.example.com, paths: ["/secret/**"]}`, `deny: {host: old.example.com, ports: [8443]}`,
				`{host: old.example.com, ports: [443, 8443]}`),
			map[string]string{
				"files.example.com":                        "deny policy_denied p.2",
				"files.example.com:22":                     "deny policy_denied p.2",
				"x.admin.example.com":                      "deny policy_denied p.3",
				"admin.example.com":                        "allow p.1",
				"DELETE https://api.example.com/":          "deny policy_denied keep",
				"GET https://api.example.com/secret/x":     "deny policy_denied p.5",
				"GET https://api.example.com/%73ecret/x":   "deny policy_denied p.5",
				"GET https://api.example.com/public":       "allow p.1",
				"old.example.com":                          "allow p.1",
				"old.example.com:8443":                     "deny policy_denied p.6",
				"GET http://old.example.com:8443/anything": "deny policy_denied p.6",
			},
		},
		"a rule past its end counts only as a reason": {
			rules(`{host: a.example, expires: 2026-12-01T12:00:00Z}`, `{host: b.example, expires: 2026-12-01T12:00:01Z}`,
				`{host: c.example, expires: 2020-01-01T00:00:00+01:00, methods: [GET]}`, `{host: c.example, methods: [HEAD]}`, `deny: {host: d.example, expires: 2020-01-01T00:00:00Z}`, `host: d.example`),
			map[string]string{
				"a.example":               "deny rule_expired p.1",
				"b.example":               "allow p.2",
				"GET https://c.example/":  "deny rule_expired p.3",
				"HEAD https://c.example/": "allow p.4",
				"PUT https://c.example/":  "deny method_not_allowed",
				"d.example":               "allow p.6",
			},
		},
		"every name, when the risk is accepted": {
			rules(`{host: "*", accept_risk: a crawler, methods: [GET]}`),
			map[string]string{
				"GET https://anything.example/":  "allow p.1",
				"POST https://anything.example/": "deny method_not_allowed",
			},
		},
		"a tunnel inside a tunnel is no method that a rule allows": {
			rules(`host: a.example`),
			map[string]string{"CONNECT https://a.example/": "deny method_not_allowed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := load(t, tc.policy).Agent("dev")
			for q, want := range tc.want {
				method, target, _ := strings.Cut(q, " ")
				if _, err := policy.ParseQuery(method, target); want == "" {
					if err == nil {
						t.Errorf("%s: can be asked about", q)
					}
					continue
				}
				if got := said(ask(a, query(t, q))); got != want {
					t.Errorf("%s: %s, want %s", q, got, want)
				}
			}
		})
	}
}

// TestI12NothingMeansDeny: whatever is not there denies.
func TestI12NothingMeansDeny(t *testing.T) {
	h := names.MustParse("a.example")
	var noPolicy *policy.Policy
	for name, a := range map[string]*policy.Agent{
		"no policy":        noPolicy.Agent("dev"),
		"unknown agent":    load(t, rules("host: a.example")).Agent("other"),
		"agent, no rules":  load(t, "version: 1\nagents: {dev: {}}").Agent("dev"),
		"empty rules":      load(t, "version: 1\nprofiles: {p: {rules: []}}\nagents: {dev: {profile: p, rules: []}}").Agent("dev"),
		"the zero of Name": nil,
	} {
		for stage, d := range map[string]policy.Decision{
			"host":    a.Host(h, now),
			"name":    a.Name(h, 443, now),
			"request": a.Request(policy.Query{Host: h, Port: 443, Method: "GET", Path: "/"}, now),
		} {
			if got := said(d); got != "deny host_not_allowed" {
				t.Errorf("%s, %s: %s", name, stage, got)
			}
		}
	}
	if (policy.Decision{}).Verdict.Allowed() || (policy.Decision{}).Inspect != policy.InspectFull {
		t.Error("the zero Decision does not deny")
	}
	a := load(t, rules("host: a.example")).Agent("dev")
	if d := a.Request(policy.Query{}, now); d.Verdict.Allowed() {
		t.Error("the zero Query is allowed")
	}
	if d := a.Name(names.Host{}, 443, now); d.Verdict.Allowed() {
		t.Error("the zero Host is allowed")
	}
}

func TestOrderNeverMatters(t *testing.T) {
	list := []string{
		`{host: "*.example.com", id: wide}`, `{host: a.example.com, methods: [GET], paths: ["/x/**"], id: narrow}`,
		`{deny: {host: a.example.com, methods: [PUT], id: no-put}}`, `{deny: {host: b.example.com, id: no-b}}`, `{host: b.example.com, guard: read-only, id: b}`,
		`{host: c.example.com, expires: 2020-01-01T00:00:00Z, id: old}`, `{host: d.example.net, inspect: sni, id: d}`, `{host: "*.example.net", id: n}`,
	}
	queries := []string{"GET https://a.example.com/x/1", "PUT https://a.example.com/x/1", "b.example.com", "GET https://b.example.com/", "GET https://c.example.com/", "d.example.net", "e.example.net", "example.com"}
	want := map[string]policy.Decision{}
	rnd := rand.New(rand.NewPCG(1, 2))
	for round := range 50 {
		a := load(t, rules(list...)).Agent("dev")
		for _, s := range queries {
			d := ask(a, query(t, s))
			d.Verdict.Rule, d.Verdict.Detail = "", "" // of several rules the first in the file is named
			if round == 0 {
				want[s] = d
			} else if w := want[s]; w.Verdict != d.Verdict || w.Inspect != d.Inspect || len(w.Guards) != len(d.Guards) {
				t.Fatalf("%s: %+v in one order, %+v in another:\n%s", s, w, d, strings.Join(list, "\n"))
			}
		}
		rnd.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	}
}

func TestOverlapTakesTheStrictest(t *testing.T) {
	a := load(t, rules(
		`{host: "*.example.com", inspect: none, ports: [443, 5432], addresses: [10.0.0.0/8]}`,
		`{host: sni.example.com, inspect: sni, sensitive: true}`,
		`{host: full.example.com, guard: read-only, paths: ["/x"], addresses: [192.168.0.0/16]}`,
		`deny: {host: part.example.com, methods: [DELETE]}`,
		`{host: plain.example.org, ports: [80]}`,
	)).Agent("dev")
	for s, want := range map[string]policy.Inspect{
		"any.example.com": policy.InspectNone, "sni.example.com": policy.InspectSNI, "full.example.com": policy.InspectFull,
		"part.example.com": policy.InspectFull, "part.example.com:5432": policy.InspectFull, "plain.example.org:80": policy.InspectFull,
	} {
		if d := ask(a, query(t, s)); !d.Verdict.Allowed() || d.Inspect != want {
			t.Errorf("%s: %s, inspect %s, want %s", s, said(d), d.Inspect, want)
		}
	}
	d := ask(a, query(t, "GET https://full.example.com/x"))
	if len(d.Guards) != 1 || len(d.Addresses) != 2 {
		t.Errorf("both rules match, decision has guards %v and addresses %v", d.Guards, d.Addresses)
	}
	if d := ask(a, query(t, "GET https://full.example.com/y")); len(d.Guards) != 0 || len(d.Addresses) != 1 {
		t.Errorf("only the wide rule matches, decision has guards %v and addresses %v", d.Guards, d.Addresses)
	}
	if d := ask(a, query(t, "sni.example.com")); !d.Sensitive {
		t.Error("sensitive is lost")
	}
	if d := ask(a, query(t, "plain.example.org:80")); !d.Plain {
		t.Error("port 80 is not plain")
	}
}

// TestWebSocketsNeedARuleThatSaysSo: and a rule that says so lets plain requests
// through as well.
func TestWebSocketsNeedARuleThatSaysSo(t *testing.T) {
	p := load(t, rules(
		`{host: a.example, websocket: true, guard: json, paths: ["/ws"]}`,
		`{host: "*.example", guard: read-only, accept_risk: "a test"}`,
		`{deny: {host: b.example, paths: ["/ws"]}}`, `{host: b.example, websocket: true, ports: [443, 80]}`,
		`{host: c.example, websocket: true, methods: [POST]}`, `{host: d.example, websocket: true, guard: read-only}`,
		`{host: e.example, websocket: true}`, `{host: e.example}`,
	))
	a := p.Agent("dev")
	for s, want := range map[string]string{
		"GET wss://a.example/ws": "allow p.1", "GET https://a.example/ws": "allow p.1", "GET wss://a.example/": "deny path_not_allowed",
		"GET wss://z.example/": "deny websocket_not_allowed", "GET https://z.example/": "allow p.2",
		"GET wss://b.example/ws": "deny policy_denied p.3", "GET wss://b.example/x": "allow p.4", "GET ws://b.example/x": "allow p.4",
		"GET wss://c.example/": "deny method_not_allowed", "GET wss://d.example/": "allow p.6",
	} {
		if got := said(ask(a, query(t, s))); got != want {
			t.Errorf("%s: %s, want %s", s, got, want)
		}
	}
	if d := ask(a, query(t, "GET wss://a.example/ws")); len(d.Guards) != 1 || d.Guards[0].Name != "json" {
		t.Errorf("guards of a rule that does not match a WebSocket: %v", d.Guards)
	}
	if d := ask(a, query(t, "GET https://a.example/ws")); len(d.Guards) != 2 {
		t.Errorf("guards of a plain request: %v", d.Guards)
	}
	w := p.Warnings(now).Error()
	for _, want := range []string{"p.5 websocket: a WebSocket is opened by GET", "p.6 websocket: guard read-only refuses every WebSocket", "p.8: makes no difference: rule p.7"} {
		if !strings.Contains(w, want) {
			t.Errorf("no warning %q in\n%s", want, w)
		}
	}
	if strings.Contains(w, "p.7:") {
		t.Errorf("a rule that allows WebSockets is covered by none that does not:\n%s", w)
	}
	x, err := p.Explain("dev", "GET", "wss://z.example/", now)
	if err != nil || !strings.Contains(x.String(), "GET wss://z.example:443/: deny websocket_not_allowed") || !strings.Contains(x.String(), "no WebSocket") {
		t.Errorf("%v, %s", err, x.String())
	}
	if _, err := policy.ParseQuery("POST", "wss://a.example/"); err == nil {
		t.Error("a WebSocket by POST")
	}
}

func TestAgentHasProfileAndOwnRules(t *testing.T) {
	src := "version: 1\nprofiles:\n  p: {rules: [{host: a.example}]}\n  q: {rules: [{host: q.example}]}\n" +
		"agents:\n  dev: {profile: p, rules: [{host: b.example}, {deny: {host: a.example, methods: [PUT]}}]}\n  bare: {rules: [{host: c.example}]}\n"
	known := policy.Known{
		Agents:   map[string]bool{"dev": true, "bare": true, "late": true, "lost": true},
		Profiles: map[string]string{"dev": "q", "bare": "q", "late": "p", "lost": "gone"},
	}
	p, err := policy.Load([]byte(src), known)
	if err != nil {
		t.Fatal(err)
	}
	for s, want := range map[string]string{
		"dev GET https://a.example/": "allow p.1", "dev PUT https://a.example/": "deny policy_denied agent.dev.2", "dev b.example": "allow agent.dev.1",
		"dev q.example": "deny host_not_allowed", "bare c.example": "allow agent.bare.1", "bare q.example": "allow q.1",
		"late a.example": "allow p.1", "lost a.example": "deny host_not_allowed", "nobody a.example": "deny host_not_allowed",
	} {
		agent, q, _ := strings.Cut(s, " ")
		if got := said(ask(p.Agent(agent), query(t, q))); got != want {
			t.Errorf("%s: %s, want %s", s, got, want)
		}
	}
	if w := p.Warnings(now).Error(); !strings.Contains(w, `agent lost: is registered with profile "gone"`) {
		t.Errorf("warnings: %s", w)
	}
}

func TestHostIsTheUnionOfPorts(t *testing.T) {
	a := load(t, rules(`{host: a.example, ports: [5432], inspect: none}`, `{deny: {host: b.example, ports: [443]}}`, `{host: b.example, ports: [443, 80]}`,
		`{deny: {host: c.example}}`, `host: c.example`, `{host: d.example, ports: []}`, `{deny: {host: e.example, ports: [443]}}`, `host: e.example`)).Agent("dev")
	for host, want := range map[string]string{
		"a.example": "allow p.1", "b.example": "allow p.3", "c.example": "deny policy_denied p.4",
		"d.example": "deny host_not_allowed", "e.example": "deny policy_denied p.7", "f.example": "deny host_not_allowed",
	} {
		if got := said(a.Host(names.MustParse(host), now)); got != want {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
}

// TestUnderIsTheNarrowestWildcard: who counts names that an agent makes up has
// to know which part of one is the operator's.
func TestUnderIsTheNarrowestWildcard(t *testing.T) {
	p := load(t, rules(
		`{host: "*.example.com", ports: [443, 8443]}`,
		`{host: "*.a.example.com", methods: [GET]}`,
		`{host: "*", accept_risk: everything, ports: [9443]}`,
		`{host: named.example.com}`,
		`{host: old.example.com, expires: 2020-01-01T00:00:00Z}`,
		`{deny: {host: "*.b.a.example.com"}}`,
	))
	for host, want := range map[string]string{
		"x.example.com:443":      "*.example.com",
		"x.a.example.com:443":    "*.a.example.com",
		"y.x.a.example.com:443":  "*.a.example.com",
		"x.a.example.com:8443":   "*.example.com",
		"x.a.example.com:9443":   "*",
		"named.example.com:443":  "",
		"named.example.com:8443": "*.example.com",
		"old.example.com:443":    "*.example.com",
		"x.b.a.example.com:443":  "", // denied
	} {
		d := p.Agent("dev").Name(query(t, host).Host, query(t, host).Port, now)
		if d.Under.String() != want {
			t.Errorf("%s: under %q, want %q", host, d.Under, want)
		}
	}
	for host, want := range map[string]string{"x.a.example.com": "*.a.example.com", "named.example.com": "", "x.example.net": "*"} {
		if d := p.Agent("dev").Host(names.MustParse(host), now); d.Under.String() != want || !d.Verdict.Allowed() {
			t.Errorf("%s on any port: under %q, want %q (%+v)", host, d.Under, want, d.Verdict)
		}
	}
	if d := p.Agent("dev").Request(query(t, "POST https://x.a.example.com/"), now); d.Under.String() != "*.example.com" {
		t.Errorf("a request that the narrower rule does not allow: under %q", d.Under)
	}
}

func TestAllowPathDoesNotAllocate(t *testing.T) {
	a := load(t, rules(`{host: a.example, methods: [GET], paths: ["/v1/**"], guard: read-only}`, `host: "*.b.example"`)).Agent("dev")
	q := query(t, "GET https://a.example/v1/things")
	deep := names.MustParse("x.y.z.b.example")
	if n := testing.AllocsPerRun(100, func() {
		if !a.Request(q, now).Verdict.Allowed() || !a.Name(deep, 443, now).Verdict.Allowed() {
			t.Fatal("denied")
		}
	}); n != 0 {
		t.Errorf("a decision allocates %v times", n)
	}
}

func BenchmarkRequest(b *testing.B) {
	p, err := policy.Load([]byte(rules(`{host: a.example, methods: [GET], paths: ["/v1/**"]}`)), policy.Known{AnyAgent: true})
	if err != nil {
		b.Fatal(err)
	}
	a := p.Agent("dev")
	q := policy.Query{Host: names.MustParse("a.example"), Port: 443, Method: "GET", Path: "/v1/things"}
	for b.Loop() {
		if a.Request(q, now).Verdict.Effect != verdict.Allow {
			b.Fatal("denied")
		}
	}
}

func TestAddressesAreRefused(t *testing.T) {
	a := load(t, rules("host: a.example")).Agent("dev")
	if d := a.Address(names.Authority{}.Addr, 443, now); d.Verdict.Why() != codes.IPLiteralDenied {
		t.Errorf("address: %s", said(d))
	}
}

func TestProblemsCanBeTakenApart(t *testing.T) {
	_, err := policy.Parse([]byte("version: 2\nprofile: {}\n"))
	problems, ok := errors.AsType[policy.Problems](err)
	if !ok || len(problems) != 2 || problems[0].Line != 1 || problems[1].Line != 2 {
		t.Fatalf("problems: %#v", err)
	}
	if one, ok := errors.AsType[*policy.Problem](err); !ok || one.Line != 1 {
		t.Errorf("a single problem: %v", one)
	}
	if problems[1].Hint != "did you mean profiles?" {
		t.Errorf("hint: %q", problems[1].Hint)
	}
}
