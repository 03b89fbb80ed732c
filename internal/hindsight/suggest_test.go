// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package hindsight_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"bawn/internal/audit"
	"bawn/internal/hindsight"
	"bawn/internal/ids"
	"bawn/internal/names"
	"bawn/internal/policy"
	"bawn/internal/roottest"
	"bawn/internal/verdict"
)

// wish asks for suggestions beside the policy src.
func wish(src string, owned ...policy.Owned) hindsight.Wish {
	return hindsight.Wish{Since: now.Add(-time.Hour), Now: now, Agents: dev, With: func(extra []policy.Grant) (*policy.Policy, error) {
		return policy.Load([]byte(src), policy.Known{AnyAgent: true, AnyCredential: true, Owned: owned, Grants: extra})
	}}
}

func suggest(t testing.TB, w hindsight.Wish, tr *traffic) hindsight.Suggestions {
	t.Helper()
	s, err := hindsight.Suggest(t.Context(), w, tr.seq())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// taken lists the rules that stand in the YAML, without comments.
func taken(s hindsight.Suggestions) string {
	var b strings.Builder
	for _, r := range s.Rules {
		if !r.Offered {
			b.WriteString(r.YAML() + "\n")
		}
	}
	return b.String()
}

func TestSuggestTheSmallestRules(t *testing.T) {
	const src = "version: 1\nagents: {dev: {rules: [{host: api.example.com, methods: [GET], paths: [/], guard: json}, {deny: {host: no.example.com}}]}}\n"
	p := load(t, src)
	tr := &traffic{at: now}
	for _, what := range []string{
		"GET https://api.example.com/v1/items", "POST https://api.example.com/v1/items", "GET https://api.example.com/v1/items", "GET https://api.example.com/v1/users",
		"GET wss://api.example.com/feed",
		"GET http://plain.example.com/x",
		"CONNECT tunnel.example.org:443", "dns A tunnel.example.org", "tcp db.example.org:5432",
		"dns A only.example.org", "dns TYPE16 only.example.org",
		"GET https://no.example.com/", "GET https://api.example.com/a*b",
		"GET https://api.example.com/",
	} {
		tr.asks(t, p, "dev", what)
	}
	s := suggest(t, wish(src), tr)
	want := `{host: "api.example.com", ports: ["443"], methods: ["GET"], paths: ["/v1/items", "/v1/users"], guard: json}
{host: "api.example.com", ports: ["443"], methods: ["POST"], paths: ["/v1/items"], guard: json}
{host: "api.example.com", ports: ["443"], methods: ["GET"], paths: ["/feed"], websocket: true, guard: json}
{host: "plain.example.com", ports: ["80"], methods: ["GET"], paths: ["/x"]}
{host: "db.example.org", ports: ["5432"], methods: ["HEAD"], paths: ["/"], guard: read-only}
{host: "only.example.org", ports: ["443"], methods: ["HEAD"], paths: ["/"], guard: read-only}
{host: "tunnel.example.org", ports: ["443"], methods: ["HEAD"], paths: ["/"], guard: read-only}
`
	if got := taken(s); got != want {
		t.Errorf("rules\n%swant\n%s", got, want)
	}
	for host, port := range map[string]string{"db.example.org": "5432", "only.example.org": "22", "tunnel.example.org": ""} {
		// As it stands in the comment: what is pasted has to load.
		rule, said := `{host: "`+host+`", ports: ["`+port+`/tcp"], inspect: none}`, s.YAML()
		if port == "" {
			if strings.Contains(said, `"`+host+`", ports: ["443/tcp"]`) {
				t.Errorf("a rule for plain TCP on 443:\n%s", said)
			}
			continue
		}
		if !strings.Contains(said, "      # - "+rule+"\n") {
			t.Errorf("no %s in\n%s", rule, said)
		}
		load(t, "version: 1\nagents: {dev: {rules: ["+rule+"]}}\n")
	}
	var apart []string
	for _, a := range s.Apart {
		apart = append(apart, fmt.Sprint(a.Code, " ", a.Count, " ", a.Sample))
	}
	slices.Sort(apart)
	if got := strings.Join(apart, "; "); got != "dns_name_not_allowed 1 dns TYPE16 only.example.org; path_not_allowed 1 GET https://api.example.com:443/a*b; policy_denied 1 GET https://no.example.com:443/" {
		t.Errorf("apart: %s", got)
	}
}

func TestSuggestMarksNames(t *testing.T) {
	p := load(t, rules(`host: "*.known.example.net"`))
	tr := &traffic{at: now}
	tr.asks(t, p, "other", "GET https://x.known.example.net/") // denied: the policy is dev's
	tr.asks(t, p, "dev", "GET https://c2vjcmv0ic0gaxqnc.d4f9a1b2c3e4f5061728394a5b6c7d8e.example.org/")
	for i := range 12 {
		tr.asks(t, p, "dev", fmt.Sprintf("GET https://n%d.many.example.com/", i))
	}
	tr.asks(t, p, "dev", "POST http://reached.example.net/")
	reached := tr.asks(t, p, "dev", "GET https://reached.example.net/")
	reached.Decision.Verdict, reached.Decision.Code, reached.Outcome = verdict.Allow, "", &audit.Outcome{Upstream: "93.184.216.34:443"}
	s := suggest(t, wish(rules()), tr)
	offered := 0
	for _, r := range s.Rules {
		never := slices.ContainsFunc(r.Marks, func(m string) bool { return strings.HasPrefix(m, "never resolved") })
		if never == (r.Host == "reached.example.net") {
			t.Errorf("%s: marked %q", r.Host, r.Marks)
		}
		if r.Offered {
			offered++
		} else if r.Host != "reached.example.net" {
			t.Errorf("%s: taken, marked %q", r.Host, r.Marks)
		}
	}
	if offered != 13 {
		t.Errorf("%d rules are only offered, want 13", offered)
	}
	if text := s.YAML(); strings.Contains(text, "\n      - {host: \"n1.") || !strings.Contains(text, "# not taken: - {host: \"n1.many.example.com\"") {
		t.Errorf("text:\n%s", text)
	}
}

func TestSuggestOffersPatternsAndTakesNone(t *testing.T) {
	tr := &traffic{at: now}
	p := load(t, rules())
	for i := range 7 {
		tr.asks(t, p, "dev", fmt.Sprintf("GET https://api.example.com/items/%d/parts", i))
	}
	s := suggest(t, wish(rules()), tr)
	if len(s.Rules) != 1 || !slices.Equal(s.Rules[0].Wider, []string{"/items/*/parts"}) || len(s.Rules[0].Paths) != 7 {
		t.Fatalf("%+v", s.Rules)
	}
	if text := s.YAML(); strings.Contains(text, "*") && !strings.Contains(text, `# wider than what was seen, and so not taken: paths: ["/items/*/parts"]`) {
		t.Errorf("text:\n%s", text)
	}
}

// TestOneAgentDoesNotCrowdOutAnother: how much is looked at is bounded for each.
func TestOneAgentDoesNotCrowdOutAnother(t *testing.T) {
	p, tr := load(t, rules()), &traffic{at: now}
	for i := range 1100 {
		tr.asks(t, p, "loud", fmt.Sprintf("GET https://h%d.example.com/", i))
	}
	tr.asks(t, p, "dev", "GET https://a.example.com/")
	w := wish(rules())
	w.Agents = map[string]bool{"dev": true, "loud": true}
	s := suggest(t, w, tr)
	if s.Beyond != 100 || len(s.Rules) != 1001 || s.Rules[0].Agent != "dev" {
		t.Errorf("%d rules, %d beyond", len(s.Rules), s.Beyond)
	}
}

// TestSuggestPointsAtPresets: a rule on a host that a preset owns would be
// refused.
func TestSuggestPointsAtPresets(t *testing.T) {
	tr := &traffic{at: now}
	tr.asks(t, load(t, rules()), "dev", "POST https://api.openai.com/v1/responses")
	s := suggest(t, wish(rules(), policy.Owned{Preset: "openai", Hosts: []names.Pattern{names.MustPattern("api.openai.com")}}), tr)
	if len(s.Rules) != 0 || len(s.Apart) != 1 || !strings.Contains(s.Apart[0].Why, "write preset: openai instead") {
		t.Errorf("%+v", s)
	}
}

// TestSuggestListsApartWhatNoRuleAllows with what the catalogue says.
func TestSuggestListsApartWhatNoRuleAllows(t *testing.T) {
	tr := &traffic{at: now}
	for _, code := range []string{"ip_literal_denied", "header_invalid", "rate_limited", "budget_exceeded", "dns_label_budget", "address_not_public", "sni_mismatch"} {
		e := tr.asks(t, load(t, rules()), "dev", "GET https://a.example.com/")
		e.Decision.Code = verdictCode(code)
	}
	tr.entries = append(tr.entries, audit.Entry{Summary: &audit.Summary{Identity: ids.Identity{Agent: "dev"}, Denials: 9}})
	s := suggest(t, wish(rules()), tr)
	if len(s.Rules) != 0 || len(s.Apart) != 8 {
		t.Fatalf("%+v", s)
	}
	for _, a := range s.Apart {
		if a.Why == "" || a.Code == "audit_quota" && a.Count != 9 {
			t.Errorf("%+v", a)
		}
	}
}

// TestWhatASuggestionAllowsIsWhatItClaims: random policies and traffic. The text
// is a policy by itself; with it each claim is allowed, and nothing is that was
// not seen, but for the one request that lets a connection open.
func TestWhatASuggestionAllowsIsWhatItClaims(t *testing.T) {
	claims, rounds := 0, roottest.Count(25, 4000)
	for seed := range rounds {
		d := draw{rand.New(rand.NewPCG(uint64(seed), 5))}
		text, p := d.policy()
		tr := &traffic{at: now}
		for range 40 {
			tr.asks(t, p, "dev", d.question())
		}
		s := suggest(t, wish(text), tr)
		context := fmt.Sprintf("seed %d\n%s\nsuggested\n%s", seed, text, s.YAML())
		alone, err := policy.Load([]byte(s.YAML()), policy.Known{AnyAgent: true})
		if err != nil {
			t.Fatalf("%v\n%s", err, context)
		}
		var grants []policy.Grant
		seen, tunnel := map[string]bool{}, map[string]bool{}
		for i, r := range s.Rules {
			if r.Offered {
				continue
			}
			grants = append(grants, policy.Grant{ID: fmt.Sprint("grant.g", i+1), Agent: "dev", Rule: r.YAML(), Until: now.Add(time.Hour)})
			for _, c := range r.Claims {
				seen[c.Asked] = true
				seen[strings.Replace(c.Asked, " ws", " http", 1)] = true // a rule for a WebSocket is one for a GET
			}
			tunnel[fmt.Sprint(r.Host, r.Ports)] = r.Tunnel
		}
		both, err := policy.Load([]byte(text), policy.Known{AnyAgent: true, Grants: grants})
		if err != nil {
			t.Fatalf("beside the policy: %v\n%s", err, context)
		}
		for _, r := range s.Rules {
			for _, c := range r.Claims {
				if claims++; !r.Offered && !allows(t, both, c.Asked) {
					t.Fatalf("%s is claimed and not allowed\n%s", c.Asked, context)
				}
			}
		}
		for range 200 {
			what := d.question()
			asked := strings.Fields(what)
			q, err := policy.ParseQuery(asked[0], asked[len(asked)-1])
			if err != nil || asked[0] == "dns" || asked[0] == "CONNECT" || asked[0] == "tcp" {
				continue
			}
			least := tunnel[fmt.Sprint(q.Host, []string{policy.Port{Number: q.Port, Plain: q.Plain}.String()})] && q.Method == "HEAD" && q.Path == "/"
			if alone.Agent("dev").Request(q, now).Verdict.Allowed() && !seen[q.String()] && !least {
				t.Fatalf("%s was not seen and is allowed\n%s", q, context)
			}
		}
	}
	if claims < 10*rounds {
		t.Errorf("only %d claims: the draw is too tame", claims)
	}
}

// allows asks about what a report calls a thing.
func allows(t *testing.T, p *policy.Policy, asked string) bool {
	t.Helper()
	words := strings.Fields(asked)
	switch words[0] {
	case "dns":
		return p.Agent("dev").Host(names.MustParse(words[2]), now).Verdict.Allowed()
	case "connection":
		q, err := policy.ParseQuery("", words[2])
		if err != nil {
			t.Fatal(err)
		}
		return p.Agent("dev").Name(q.Host, q.Port, now).Verdict.Allowed()
	}
	q, err := policy.ParseQuery(words[0], words[1])
	if err != nil {
		t.Fatalf("%s: %v", asked, err)
	}
	n := p.Agent("dev").Name(q.Host, q.Port, now)
	return n.Verdict.Allowed() && (n.Inspect != policy.InspectFull && !q.Plain || p.Agent("dev").Request(q, now).Verdict.Allowed())
}

// TestI14SuggestionsCannotBeBrokenOutOf: whatever stands in a record, the text is
// one policy that allows nothing but what was seen, in printable ASCII.
func TestI14SuggestionsCannotBeBrokenOutOf(t *testing.T) {
	hostile := []string{
		"\nagents: {dev: {rules: [{host: evil.example.com}]}}", "\r\n      - {host: evil.example.com}", `"]}` + "\n- {host: evil.example.com}",
		"\x1b]52;c;eA==\x07", "\u202e", "\u2028- {host: evil.example.com}", "\u0085- {host: evil.example.com}", "%0A- x", `\x0a- {host: evil}`, "'", "#", "{{", "*", "/**", "`", "\x00", "\xff",
		`", "/**`, "/v1\\", "&a", "!!str x", "---\n", "? x", "| x\n y",
	}
	for _, h := range hostile {
		for _, where := range []string{"path", "method", "host", "code", "agent", "asked"} {
			d := &audit.Decision{Time: now, Identity: ids.Identity{Agent: "dev"}, Proto: "http/1.1", Method: "GET", Scheme: "https", Host: "a.example.com", Port: 443, Path: "/", Code: "host_not_allowed", Stage: "name"}
			switch where {
			case "path":
				d.Path += h
			case "method":
				d.Method += h
			case "host":
				d.Host += h
			case "code":
				d.Code += verdictCode(h)
			case "agent":
				d.Agent += h
			case "asked":
				d.Asked, d.Detail, d.SNI, d.Rule = h, h, h, h
			}
			tr := &traffic{entries: []audit.Entry{{Decision: d}}}
			checkInert(t, suggest(t, wish(rules()), tr), d)
		}
	}
}

// checkInert loads the text and looks for what it should not have.
func checkInert(t testing.TB, s hindsight.Suggestions, d *audit.Decision) {
	t.Helper()
	text := s.YAML()
	for _, c := range []byte(text) {
		if c != '\n' && (c < ' ' || c > '~') {
			t.Fatalf("byte %#x in\n%q", c, text)
		}
	}
	p, err := policy.Load([]byte(text), policy.Known{AnyAgent: true})
	if err != nil {
		t.Fatalf("%+v: %v\n%s", d, err, text)
	}
	if list := p.Agents(); len(list) > 1 || len(list) == 1 && list[0] != "dev" {
		t.Fatalf("%+v: rules for %q\n%s", d, list, text)
	}
	for _, r := range p.Agent("dev").Rules() {
		if r.Host.String() != d.Host || r.Deny || len(r.Methods) != 1 || len(r.Paths) != 1 || r.AcceptRisk != "" || r.Inspect != policy.InspectFull ||
			r.Methods[0] != d.Method && r.Methods[0] != "HEAD" || r.Paths[0].String() != d.Path && r.Paths[0].String() != "/" {
			t.Fatalf("%+v: rule %+v\n%s", d, r, text)
		}
		if segments, rest := r.Paths[0].Segments(); rest || slices.Contains(segments, "*") {
			t.Fatalf("%+v: a pattern\n%s", d, text)
		}
	}
}

// FuzzSuggest: fields of a record that a fuzzer writes.
func FuzzSuggest(f *testing.F) {
	f.Add("a.example.com", "GET", "/v1", "http/1.1", "host_not_allowed", uint16(443))
	f.Add("a.example.com", "A", "", "dns", "dns_name_not_allowed", uint16(0))
	f.Add("a.example.com", "CONNECT", "", "http/1.1", "port_not_allowed", uint16(22))
	f.Add("a.example.com", "GET", "/\n- {host: b}", "websocket", "path_not_allowed", uint16(80))
	f.Fuzz(func(t *testing.T, host, method, path, proto, code string, port uint16) {
		d := &audit.Decision{Time: now, Identity: ids.Identity{Agent: "dev"}, Proto: proto, Method: method, Scheme: "https", Host: host, Port: port, Path: path, Code: verdictCode(code), Stage: "head"}
		checkInert(t, suggest(t, wish(rules()), &traffic{entries: []audit.Entry{{Decision: d}}}), d)
	})
}
