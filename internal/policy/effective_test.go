// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"bawn/internal/names"
	"bawn/internal/policy"
)

const everything = `version: 1
profiles:
  coder:
    rules:
      - host: API.example.com.
        methods: [GET, HEAD]
        paths: ["/v1/**", "/a/*/b"]
        reason: >
          release notes
          are "there" \ here
        id: notes
      - {host: "*.example.org", ports: [443/tcp, 8443], inspect: sni, sensitive: true}
      - {host: db.example.net, ports: [5432/tcp], inspect: none, expires: 2027-01-31T00:00:00.5+02:00}
      - host: models.corp.example
        addresses: [10.20.0.0/16, "fd00::/16"]
        guard: read-only
        websocket: false
      - {host: "*.github.io", accept_risk: docs live there, ports: [80, 8080/http], methods: []}
      - deny: {host: files.example.com, ports: [443], methods: [PUT], paths: ["/x"], reason: "no: not that"}
        id: "no-files"
  empty: {}
agents:
  dev: {profile: coder, rules: [{host: own.example}]}
  idle: {}
`

func TestEffectiveShowsTheOriginOfEachLine(t *testing.T) {
	known := policy.Known{AnyAgent: true, Agents: map[string]bool{"late": true}, Profiles: map[string]string{"late": "coder", "idle": "empty"}}
	p, err := policy.Load([]byte(everything), known)
	if err != nil {
		t.Fatal(err)
	}
	want := `version: 1
profiles:
  coder: # line 3
    rules:
      - host: api.example.com # notes, line 5
        ports: [443] # default
        methods: [GET, HEAD] # line 6
        paths: ["/v1/**", "/a/*/b"] # line 7
        inspect: full # default
        websocket: false # default
        reason: "release notes are \"there\" \\ here" # line 8
        id: notes # line 11
      - host: "*.example.org" # coder.2, line 12
        ports: [443, 8443] # line 12
        inspect: sni # line 12
        websocket: false # default
        sensitive: true # line 12
      - host: db.example.net # coder.3, line 13
        ports: [5432] # line 13
        inspect: none # line 13
        websocket: false # default
        expires: 2027-01-31T00:00:00.5+02:00 # line 13
      - host: models.corp.example # coder.4, line 14
        ports: [443] # default
        inspect: full # default
        websocket: false # line 17
        addresses: ["10.20.0.0/16", "fd00::/16"] # line 15
        guard: read-only # line 16
      - host: "*.github.io" # coder.5, line 18
        ports: [80, 8080/http] # line 18
        methods: [] # line 18
        inspect: full # default
        websocket: false # default
        accept_risk: "docs live there" # line 18
      - deny: # no-files, line 19
          host: files.example.com # line 19
          ports: [443] # line 19
          methods: [PUT] # line 19
          paths: ["/x"] # line 19
          reason: "no: not that" # line 19
          id: no-files # line 20
  empty: # line 21
    rules: []
agents:
  dev: # line 23
    profile: coder # line 23
    rules:
      - host: own.example # agent.dev.1, line 23
        ports: [443] # default
        inspect: full # default
        websocket: false # default
  idle: # line 24
    profile: empty # from the agent's registration
    rules: []
  late: # registered; no line of the policy
    profile: coder # from the agent's registration
    rules: []
`
	if diff := cmp.Diff(want, p.Effective()); diff != "" {
		t.Errorf("effective (-want +got):\n%s", diff)
	}
	one := p.Effective("idle")
	if strings.Contains(one, "coder") || !strings.Contains(one, "empty: #") {
		t.Errorf("effective of idle alone:\n%s", one)
	}
	var none *policy.Policy
	if got := none.Effective(); got != "version: 1\n" {
		t.Errorf("effective of no policy: %q", got)
	}
}

// universe lists queries near to the hosts that a policy names.
func universe(src []byte) []policy.Query {
	hosts := map[string]bool{"a.example": true, "a.b.example.com": true}
	for _, m := range regexp.MustCompile(`[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+`).FindAllString(string(src), 40) {
		hosts[m] = true
		hosts["sub."+m] = true
	}
	paths := []string{"/"}
	for _, m := range regexp.MustCompile(`/[A-Za-z0-9._~*/-]*`).FindAllString(string(src), 20) {
		paths = append(paths, strings.ReplaceAll(m, "*", "x"))
	}
	var list []policy.Query
	for h := range hosts {
		host, err := names.Parse(h)
		if err != nil {
			continue
		}
		for _, port := range []uint16{443, 80, 8080} {
			for _, method := range []string{"GET", "PUT"} {
				for _, path := range paths {
					list = append(list, policy.Query{Host: host, Port: port, Method: method, Path: path, Plain: port == 80})
				}
			}
		}
	}
	return list
}

// sameDecisions reports how two policies differ, or "".
func sameDecisions(a, b *policy.Policy, queries []policy.Query) string {
	if !slices.Equal(a.Agents(), b.Agents()) {
		return fmt.Sprintf("agents %v and %v", a.Agents(), b.Agents())
	}
	for _, agent := range a.Agents() {
		for _, q := range queries {
			x, y := a.Agent(agent).Request(q, now), b.Agent(agent).Request(q, now)
			if diff := cmp.Diff(fmt.Sprintf("%+v", x), fmt.Sprintf("%+v", y)); diff != "" {
				return agent + " " + q.String() + ":\n" + diff
			}
			x, y = a.Agent(agent).Name(q.Host, q.Port, now), b.Agent(agent).Name(q.Host, q.Port, now)
			if diff := cmp.Diff(fmt.Sprintf("%+v", x), fmt.Sprintf("%+v", y)); diff != "" {
				return agent + " " + q.Host.String() + ":\n" + diff
			}
		}
	}
	return ""
}

func TestEffectiveDecidesTheSame(t *testing.T) {
	p := load(t, everything)
	again := load(t, p.Effective())
	if diff := sameDecisions(p, again, universe([]byte(everything))); diff != "" {
		t.Error(diff)
	}
	if first, second := strip(p.Effective()), strip(again.Effective()); first != second {
		t.Errorf("the effective policy of the effective policy differs:\n%s", cmp.Diff(first, second))
	}
}

var comment = regexp.MustCompile(`(?m) # [^"\n]*$`)

// strip removes the origins.
func strip(text string) string { return comment.ReplaceAllString(text, "") }

func TestExplainIsTheEnforcement(t *testing.T) {
	a := load(t, everything).Agent("dev")
	for _, q := range universe([]byte(everything)) {
		e := a.Explain(q, now)
		if want := ask(a, q); fmt.Sprintf("%+v", want) != fmt.Sprintf("%+v", e.Decision) {
			t.Fatalf("%s: explained as %+v, enforced as %+v", q, e.Decision, want)
		}
		if len(e.Rules) != 7 {
			t.Fatalf("%s: %d of 7 rules explained", q, len(e.Rules))
		}
		for _, r := range e.Rules {
			if r.Rule == e.Rule && !r.Matched && e.Code != "rule_expired" {
				t.Fatalf("%s: decided by %s, which is said not to match: %s", q, r.Rule, r.Why)
			}
			if r.Matched && e.Rule == "" && r.Effect == "allow" {
				t.Fatalf("%s: rule %s is said to allow, the decision is %s", q, r.Rule, e.Code)
			}
		}
	}
	text := a.Explain(query(t, "PUT https://files.example.com/x"), now).String()
	for _, want := range []string{"deny host_not_allowed (no rule is about the name)", "* deny  no-files (profile coder, line 19)", "allow agent.dev.1 (agent dev, line 23) own.example ports [443]: another host"} {
		if !strings.Contains(text, want) {
			t.Errorf("explanation lacks %q:\n%s", want, text)
		}
	}
	p := load(t, everything)
	if e, err := p.Explain("dev", "PUT", "https://files.example.com/x", now); err != nil || e.String() != text {
		t.Errorf("by URL: %v\n%s", err, e)
	}
	if _, err := p.Explain("dev", "GET", "https://files.example.com/../x", now); err == nil {
		t.Error("a malformed URL is explained")
	}
	if e, err := p.Explain("stranger", "GET", "https://a.example/", now); err != nil || e.Agent != "stranger" || e.Code != "host_not_allowed" {
		t.Errorf("a stranger: %+v, %v", e, err)
	}
	var nobody *policy.Agent
	if e := nobody.Explain(query(t, "GET https://a.example/"), now); e.Verdict != "deny" || !strings.Contains(e.String(), "no rules") {
		t.Errorf("nobody: %s", e)
	}
}

func TestParseQuery(t *testing.T) {
	for in, want := range map[string]string{
		"GET https://a.example":           "GET https://a.example:443/",
		"GET https://a.example?x":         "GET https://a.example:443/",
		"GET HTTPS://a.example/":          "",
		"PUT http://A.example.:8080/%7Ex": "PUT http://a.example:8080/~x",
		" a.example:22":                   "https://a.example:22",
		" a.example":                      "https://a.example:443",
		" https://a.example/":             "GET https://a.example:443/",
		"GET a.example/x":                 "",
		"GET https://u@a.example/":        "",
		"GET https://1.2.3.4/":            "",
		"GET https://[::1]/":              "",
		"GET https://a.example/../x":      "",
		"GET https://a.example/#x":        "",
		"GET ftp://a.example/":            "",
		"GET https://a.example:0/":        "",
		"GET ":                            "",
	} {
		method, target, _ := strings.Cut(in, " ")
		q, err := policy.ParseQuery(method, target)
		if got := q.String(); err == nil && got != want || err != nil && want != "" {
			t.Errorf("ParseQuery(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
}

func TestSchemaTakesWhatParseTakes(t *testing.T) {
	var s map[string]any
	if err := json.Unmarshal(policy.Schema(), &s); err != nil {
		t.Fatal(err)
	}
	for _, src := range []string{everything, "version: 1\n", load(t, everything).Effective(),
		"version: 1\nprofiles: {p: {budgets: {requests: [600/min, 9000/day], egress_bytes: 500MB/day, names: 10/h, connections: 256}, rules: [{host: a.example, id: a, budgets: {messages: 1/s}}, {preset: openai, account: acct_123}, {cidr: 203.0.113.0/24, ports: [8443/tcp]}]}}\n"} {
		if why := validate(s, value(t, src), ""); why != "" {
			t.Errorf("the schema refuses: %s\n%s", why, src)
		}
	}
	for _, src := range []string{"version: 2\n", "agents: {}\n", "version: 1\nx: 1\n", "version: 1\nprofiles: {P: {}}\n",
		rules("methods: [GET]"), rules("{host: a.example, deny: {host: b.example}}"), rules("{host: a.example, inspect: off}"),
		rules("{host: a.example, ports: [0]}"), rules("{host: a.example, ports: [443/udp]}"), rules("host: http://x"), rules("{host: a.example, budgets: {connections: 1}}"), rules("{host: a.example, budgets: {requests: [1]}}"), rules("{host: a.example, methods: [get]}")} {
		if validate(s, value(t, src), "") == "" {
			t.Errorf("the schema takes:\n%s", src)
		}
	}
}

func value(t *testing.T, src string) any {
	t.Helper()
	var v any
	if err := yaml.Unmarshal([]byte(src), &v); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// validate is as much of JSON Schema as the published schema uses; it says what
// is wrong, or "".
func validate(s map[string]any, v any, where string) string {
	for word, arg := range s {
		if why := keyword(word, arg, s, v, where); why != "" {
			return where + ": " + why
		}
	}
	return ""
}

func keyword(word string, arg any, s map[string]any, v any, where string) string {
	object, _ := v.(map[string]any)
	text, _ := v.(string)
	switch word {
	case "$schema", "title", "description", "format", "properties", "minimum", "maximum", "minLength", "maxLength":
		if word == "minimum" && fmt.Sprint(v) == "0" {
			return "below the minimum"
		}
	case "type":
		is := map[string]bool{"object": object != nil, "string": fmt.Sprintf("%T", v) == "string", "array": fmt.Sprintf("%T", v) == "[]interface {}",
			"boolean": fmt.Sprintf("%T", v) == "bool", "integer": fmt.Sprintf("%T", v) == "json.Number"}
		if known, ok := is[arg.(string)]; !ok || !known {
			return fmt.Sprintf("%v is not %v", v, arg)
		}
	case "const":
		if fmt.Sprint(v) != fmt.Sprint(arg) {
			return fmt.Sprintf("%v is not %v", v, arg)
		}
	case "enum":
		if !slices.Contains(arg.([]any), v) {
			return fmt.Sprintf("%v is none of %v", v, arg)
		}
	case "pattern":
		if !regexp.MustCompile(arg.(string)).MatchString(text) {
			return fmt.Sprintf("%q does not match %v", text, arg)
		}
	case "required":
		for _, name := range arg.([]any) {
			if _, ok := object[name.(string)]; !ok {
				return fmt.Sprintf("%v is missing", name)
			}
		}
	case "items":
		list, _ := v.([]any)
		for i, e := range list {
			if why := validate(arg.(map[string]any), e, fmt.Sprintf("%s[%d]", where, i)); why != "" {
				return why
			}
		}
	case "propertyNames":
		for name := range object {
			if why := validate(arg.(map[string]any), name, where); why != "" {
				return why
			}
		}
	case "additionalProperties":
		return members(arg, s, object, where)
	case "anyOf", "oneOf":
		fits := 0
		for _, one := range arg.([]any) {
			if validate(one.(map[string]any), v, where) == "" {
				fits++
			}
		}
		if fits == 0 || word == "oneOf" && fits > 1 {
			return fmt.Sprintf("%d of %s", fits, word)
		}
	default:
		return "the test does not know the keyword " + word
	}
	return ""
}

func members(additional any, s map[string]any, object map[string]any, where string) string {
	properties, _ := s["properties"].(map[string]any)
	for name, v := range object {
		sub, known := properties[name].(map[string]any)
		if !known {
			if sub, known = additional.(map[string]any); !known {
				return "unknown key " + name
			}
		}
		if why := validate(sub, v, where+"."+name); why != "" {
			return why
		}
	}
	return ""
}

// FuzzLoad: whatever is accepted has an effective form that is accepted too and
// decides the same, has the form that the schema describes, and is explained
// as it is enforced. Whatever is refused is refused with lines that exist.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(everything))
	f.Add([]byte(rules("host: a.example", "deny: {host: a.example, paths: [\"/x/**\"]}", "{host: \"*.b.example\", inspect: none, ports: [1]}")))
	f.Add([]byte(rules(`{host: "*", accept_risk: "a\u00e9 # b", guard: read-only}`, "cidr: 10.0.0.0/8")))
	f.Add([]byte("version: 1\nprofiles: {\"p\": {rules: [{host: a.example, reason: 'x'}]}}\nagents: {a: {profile: p}}\n"))
	f.Add([]byte("version: 1\nagents: &a {dev: *a}\n---\n"))
	var schema map[string]any
	if err := json.Unmarshal(policy.Schema(), &schema); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		p, err := policy.Load(src, policy.Known{AnyAgent: true})
		if err != nil {
			for _, problem := range err.(policy.Problems) {
				if lines := bytes.Count(src, []byte("\n")) + 1; problem.Line < 0 || problem.Line > lines {
					t.Fatalf("line %d of %d: %v", problem.Line, lines, problem)
				}
			}
			return
		}
		if why := validate(schema, value(t, string(src)), ""); why != "" {
			t.Fatalf("accepted, and refused by the schema: %s", why)
		}
		again, err := policy.Load([]byte(p.Effective()), policy.Known{AnyAgent: true})
		if err != nil {
			t.Fatalf("the effective policy is refused: %v\n%s", err, p.Effective())
		}
		queries := universe(src)
		if diff := sameDecisions(p, again, queries[:min(len(queries), 200)]); diff != "" {
			t.Fatalf("the effective policy decides otherwise: %s\n%s", diff, p.Effective())
		}
		p.Warnings(now)
	})
}
