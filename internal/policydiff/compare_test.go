// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package policydiff_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"bawn/internal/guard"
	"bawn/internal/names"
	"bawn/internal/policy"
	"bawn/internal/policydiff"
	"bawn/internal/quota"
	"bawn/internal/roottest"
)

var now = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

var known = policy.Known{AnyAgent: true, AnyCredential: true}

func load(t testing.TB, src string) *policy.Policy {
	t.Helper()
	p, err := policy.Load([]byte(src), known)
	if err != nil {
		t.Fatalf("loading policy:\n%v\n%s", err, src)
	}
	return p
}

func rules(lines ...string) string {
	text := "version: 1\nprofiles:\n  p:\n    rules:"
	if len(lines) == 0 {
		text += " []"
	}
	for _, l := range lines {
		text += "\n      - " + l
	}
	return text + "\nagents:\n  dev: {profile: p}\n"
}

// lines gives the changes as text, each with its kind.
func lines(a, b *policy.Policy) string {
	var text strings.Builder
	for _, c := range policydiff.Agent(a.Agent("dev"), b.Agent("dev"), now) {
		fmt.Fprintf(&text, "%s: %s\n", c.Kind, c.Text)
	}
	return text.String()
}

func TestChangesInWords(t *testing.T) {
	for name, tc := range map[string]struct{ a, b, want string }{
		"nothing": {rules(`host: a.example`), rules(`host: a.example`), ""},
		"a new host": {rules(), rules(`{host: a.example, methods: [GET], paths: ["/v1/**"]}`),
			"widened: a.example port 443: GET on /v1/**: allowed now, by rule p.1\n"},
		"a host that is gone": {rules(`host: a.example`), rules(),
			"narrowed: a.example port 443: denied now (host_not_allowed), rule p.1 allowed it\n"},
		"one path more": {rules(`{host: a.example, methods: [GET], paths: ["/a"]}`), rules(`{host: a.example, methods: [GET], paths: ["/a", "/b"]}`),
			"widened: a.example port 443: GET on /b: allowed now, by rule p.1\n"},
		"a wildcard that takes in what was named": {rules(`host: api.a.example`), rules(`host: "*.a.example"`),
			"widened: *.a.example (but not api.a.example) port 443: allowed now, by rule p.1\n" +
				"narrowed: api.a.example port 443: names count more against the budget of made-up names: named by a rule -> made up under *.a.example, by rule p.1\n"},
		"the apex is not in the wildcard": {rules(`host: a.example`), rules(`host: "*.a.example"`),
			"widened: *.a.example port 443: allowed now, by rule p.1\nnarrowed: a.example port 443: denied now (host_not_allowed), rule p.1 allowed it\n"},
		"less inspection": {rules(`host: a.example`), rules(`{host: a.example, inspect: sni}`),
			"widened: a.example port 443: not inspected any more: anything in TLS passes, by rule p.1\n"},
		"more inspection": {rules(`{host: a.example, inspect: none}`), rules(`host: a.example`),
			"narrowed: a.example port 443/http: denied now (plain_http_denied), rule p.1 allowed it\n" +
				"narrowed: a.example port 443: WebSocket: denied now (websocket_not_allowed), rule p.1 allowed it\n" +
				"narrowed: a.example port 443: inspected now, where any TCP passed, by rule p.1\n"},
		"a guard that goes": {rules(`{host: a.example, guard: json}`), rules(`host: a.example`),
			"widened: a.example port 443: guard json does not judge it any more, by rule p.1\n"},
		"a guard that comes": {rules(`host: a.example`), rules(`{host: a.example, guard: read-only}`),
			"narrowed: a.example port 443: guard read-only judges it now, by rule p.1\n"},
		"a deny rule that goes": {rules(`host: a.example`, `deny: {host: a.example, paths: ["/x/**"]}`), rules(`host: a.example`),
			"widened: a.example port 443: every method on /x/**: allowed now, by rule p.1\n"},
		"a deny rule for one path": {rules(`{host: a.example, paths: ["/v1/**"]}`), rules(`{host: a.example, paths: ["/v1/**"]}`, `deny: {host: a.example, methods: [POST], paths: ["/v1/admin/**"]}`),
			"narrowed: a.example port 443: POST on /v1/admin/**: denied now (policy_denied), by rule p.2\n"},
		"a credential": {rules(`host: a.example`), rules(`{host: a.example, credential: key}`),
			"widened: a.example port 443: goes with another credential: none -> key, by rule p.1\n" +
				"neither: a.example port 443: records are marked as sensitive now, by rule p.1\n"},
		"addresses": {rules(`{host: a.example, addresses: [10.1.0.0/16]}`), rules(`{host: a.example, addresses: [10.0.0.0/8]}`),
			"widened: a.example port 443: may resolve to 10.0.0.0/8 now, by rule p.1\n"},
		"a rule that ends later": {rules(`{host: a.example, expires: 2027-01-01T00:00:00Z}`), rules(`{host: a.example, expires: 2027-02-01T00:00:00Z}`),
			"widened: a.example port 443: allowed now, by rule p.1, from 2027-01-01T00:00:00Z, until 2027-02-01T00:00:00Z\n"},
		"a WebSocket": {rules(`{host: a.example, methods: [GET]}`), rules(`{host: a.example, methods: [GET], websocket: true}`),
			"widened: a.example port 443: WebSocket: allowed now, by rule p.1\n"},
		"ids and reasons": {rules(`{host: a.example, id: one, reason: x}`), rules(`{host: a.example, id: two, reason: y}`),
			"neither: rule two has another reason: \"y\", was \"x\"\nneither: rule one is called two now\n"},
		"the order": {rules(`{host: a.example, id: one}`, `{host: b.example, id: two}`), rules(`{host: b.example, id: two}`, `{host: a.example, id: one}`),
			"neither: rules stand in another order, which makes no difference\n"},
		"a rule that was covered": {rules(`host: a.example`, `{host: a.example, methods: [GET], id: get}`), rules(`host: a.example`),
			"neither: rule get (a.example) is gone, which makes no difference\n"},
		"one address out of a range": {rules(`{host: a.example, addresses: [10.0.0.0/8]}`), rules(`{host: a.example, addresses: [10.0.0.1/32]}`),
			"widened: a.example port 443: may resolve to 10.0.0.1/32 now, by rule p.1\nnarrowed: a.example port 443: may not resolve to 10.0.0.0/8 any more, by rule p.1\n"},
		"two halves of a range": {rules(`{host: a.example, addresses: [10.0.0.0/9, 10.128.0.0/9]}`), rules(`{host: a.example, addresses: [10.0.0.0/8]}`),
			"neither: rule p.1 (a.example) is written otherwise, which makes no difference\n"},
		"an empty last segment": {rules(`{host: a.example, paths: ["/v1/*", "/v1/*/**"]}`), rules(`{host: a.example, paths: ["/v1/**"]}`),
			"widened: a.example port 443: every method on /v1/** (but not /v1/*, /v1/*/**): allowed now, by rule p.1\n"},
		"all other paths": {rules(`{host: a.example, paths: ["/a"]}`), rules(`host: a.example`),
			"widened: a.example port 443: every method on other paths: allowed now, by rule p.1\n"},
		"two stretches of time": {rules(`{host: a.example, expires: 2027-02-01T00:00:00Z}`, `deny: {host: a.example, expires: 2027-01-01T00:00:00Z}`), rules(`host: a.example`),
			"widened: a.example port 443: allowed now, by rule p.1, from 2027-02-01T00:00:00Z\nwidened: a.example port 443: allowed now, by rule p.1, until 2027-01-01T00:00:00Z\n"},
		"a name within what is left out": {
			rules(`{host: "*.b.a.example"}`, `deny: {host: x.b.a.example}`), rules(`{host: "*.a.example"}`, `{host: "*.b.a.example", id: b}`),
			"widened: *.a.example, x.b.a.example (but not *.b.a.example) port 443: allowed now, by rule p.1\n" +
				"neither: rule p.1 is called b now\n"},
		"a path within what is left out": {
			rules(`{host: a.example, paths: ["/v/*"]}`, `deny: {host: a.example, paths: ["/v/x"]}`), rules(`{host: a.example, paths: ["/v/**"]}`),
			"widened: a.example port 443: every method on /v/**, /v/x (but not /v/*): allowed now, by rule p.1\n"},
		"one path through two patterns": {rules(`{host: a.example, paths: ["/*/x"]}`, `deny: {host: a.example, paths: ["/v1/*"]}`), rules(`{host: a.example, paths: ["/*/x"]}`),
			"widened: a.example port 443: every method on /v1/x: allowed now, by rule p.1\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := lines(load(t, tc.a), load(t, tc.b)); got != tc.want {
				t.Errorf("said\n%swant\n%s", got, tc.want)
			}
		})
	}
}

// A draw makes random policies over a few names, ports, methods and paths, so
// that rules meet often.
type draw struct{ *rand.Rand }

func pick[T any](d draw, list ...T) T { return list[d.IntN(len(list))] }

// some returns nil half of the time, and otherwise a part of list.
func (d draw) some(list ...string) []string {
	if d.IntN(2) == 0 {
		return nil
	}
	part := []string{}
	for _, e := range list {
		if d.IntN(2) == 0 {
			part = append(part, `"`+e+`"`)
		}
	}
	return part
}

var (
	hosts    = []string{"a.example.com", "b.example.com", "a.b.example.com", "c.b.example.com", "example.com", "other.example.net", "deep.a.b.example.com"}
	patterns = append([]string{"*.example.com", "*.b.example.com", "*.a.b.example.com", "*.example.net"}, hosts...)
	paths    = []string{"/", "/v1/**", "/v1/x", "/v1/*", "/*/x", "/*/x/**", "/**", "/v1/x/", "/*/*"}
	asked    = []string{"/", "/v1", "/v1/", "/v1/x", "/v1/x/", "/v1/x/y", "/v2/x", "/v2/x/y/z", "/q", "/v1/y", "/v1/y/z/w"}
	methods  = []string{"GET", "PUT", "POST"}
	times    = []time.Time{now.Add(-time.Hour), now.Add(time.Hour), now.Add(2 * time.Hour)}
)

func (d draw) rule() string {
	keys := []string{fmt.Sprintf("host: %q", pick(d, patterns...))}
	add := func(key string, list []string) bool {
		if list != nil {
			keys = append(keys, key+": ["+strings.Join(list, ", ")+"]")
		}
		return list != nil
	}
	deny := d.IntN(4) == 0
	ports := d.some("443", "80", "8080/http", "8443")
	add("ports", ports)
	heads := add("methods", d.some("GET", "PUT"))
	heads = add("paths", d.some(paths...)) || heads
	plain := slices.Contains(ports, `"80"`) || slices.Contains(ports, `"8080/http"`)
	if d.IntN(6) == 0 {
		keys = append(keys, "expires: "+pick(d, times...).Format(time.RFC3339))
	}
	if deny {
		return "deny: {" + strings.Join(keys, ", ") + "}"
	}
	if !heads && !plain && d.IntN(2) == 0 {
		keys = append(keys, "inspect: "+pick(d, "sni", "none"))
		return "{" + strings.Join(append(keys, d.others()...), ", ") + "}"
	}
	if d.IntN(3) == 0 {
		keys = append(keys, "guard: "+pick(d, "json", "read-only"))
	}
	if d.IntN(4) == 0 {
		keys = append(keys, "websocket: true")
	}
	return "{" + strings.Join(append(keys, d.others()...), ", ") + "}"
}

func (d draw) others() (keys []string) {
	if d.IntN(6) == 0 {
		keys = append(keys, "addresses: ["+pick(d, "10.0.0.0/8", "10.0.0.0/9", "10.128.0.0/9", "10.1.0.0/16, 192.168.0.0/16", "10.1.2.3/32")+"]")
	}
	if d.IntN(4) == 0 {
		keys = append(keys, fmt.Sprintf("id: r%d, budgets: {requests: %s}", d.IntN(40), pick(d, "5/day", "9/day")))
	}
	if d.IntN(8) == 0 {
		keys = append(keys, "sensitive: true")
	}
	return keys
}

// pair draws two policies: each its own, or the second made of the first.
func (d draw) pair() (a, b string) {
	var one, two []string
	for range d.IntN(6) {
		one = append(one, d.rule())
	}
	two = slices.Clone(one)
	for range 1 + d.IntN(3) {
		switch n := d.IntN(3); {
		case n == 0 && len(two) > 0:
			i := d.IntN(len(two))
			two = slices.Delete(two, i, i+1)
		case n == 1 && len(two) > 0:
			two[d.IntN(len(two))] = d.rule()
		default:
			two = append(two, d.rule())
		}
	}
	d.Shuffle(len(two), func(i, j int) { two[i], two[j] = two[j], two[i] })
	return rules(one...), rules(two...)
}

// passes asks the engine as the proxy does: the name first, and the request
// unless the connection passes unread. how tells what the proxy would do with it.
func passes(a *policy.Agent, q policy.Query, at time.Time) (how policy.Decision, ok bool) {
	n := a.Name(q.Host, q.Port, at)
	switch {
	case !n.Verdict.Allowed():
		return n, false
	case n.Inspect == policy.InspectNone:
		return n, true
	case n.Inspect == policy.InspectSNI:
		return n, !q.Plain
	case n.Plain != q.Plain:
		return n, false
	}
	d := a.Request(q, at)
	d.Inspect = policy.InspectFull
	return d, d.Verdict.Allowed()
}

// looser reports whether b lets through what a does not, though both allow.
func looser(a, b policy.Decision) string {
	if b.Inspect > a.Inspect {
		return "inspect"
	}
	for _, g := range a.Guards {
		if a.Inspect == b.Inspect && !slices.ContainsFunc(b.Guards, func(o guard.Step) bool { return o.Name == g.Name }) {
			return "guard"
		}
	}
	if a.Credential != b.Credential {
		return "credential"
	}
	for _, p := range b.Addresses {
		within := false
		for _, o := range a.Addresses {
			within = within || o == p || !p.IsSingleIP() && o.Bits() <= p.Bits() && o.Contains(p.Addr())
		}
		halves := p.String() == "10.0.0.0/8" && len(a.Addresses) >= 2 // which the draw can put together of two
		if !within && !halves {
			return "addresses"
		}
	}
	for _, was := range a.Budgets {
		if !slices.ContainsFunc(b.Budgets, func(o quota.Budget) bool { return o.Key == was.Key && o.Limit <= was.Limit }) {
			return "budget"
		}
	}
	if b.Under != a.Under && (b.Under.IsZero() || !a.Under.IsZero() && a.Under.Covers(b.Under)) {
		return "names"
	}
	return ""
}

// TestWhatIsLetThroughMoreIsSaid: random pairs of policies, and requests that
// both engines judge. Whatever B lets through and A does not is within a change
// that is called wider, and what the report calls the same is the same.
func TestWhatIsLetThroughMoreIsSaid(t *testing.T) {
	rounds := roottest.Count(150, 20_000)
	widened, narrowed := 0, 0
	for seed := range rounds {
		d := draw{rand.New(rand.NewPCG(uint64(seed), 19))}
		a, b, textA, textB, ok := d.compiled()
		if !ok {
			continue
		}
		changes := policydiff.Agent(a.Agent("dev"), b.Agent("dev"), now)
		w, n := judge(t, d, a, b, changes, fmt.Sprintf("seed %d\nA:\n%s\nB:\n%s", seed, textA, textB))
		widened, narrowed = widened+w, narrowed+n
	}
	if widened < rounds || narrowed < rounds {
		t.Errorf("only %d requests were let through more and %d less: the draw is too tame", widened, narrowed)
	}
}

func (d draw) compiled() (a, b *policy.Policy, textA, textB string, ok bool) {
	textA, textB = d.pair()
	a, errA := policy.Load([]byte(textA), known)
	b, errB := policy.Load([]byte(textB), known)
	return a, b, textA, textB, errA == nil && errB == nil // a port that is TLS and not, for example
}

func judge(t *testing.T, d draw, a, b *policy.Policy, changes []policydiff.Change, context string) (widened, narrowed int) {
	t.Helper()
	wider := func(q policy.Query, at time.Time) bool {
		return slices.ContainsFunc(changes, func(c policydiff.Change) bool {
			return (c.Kind == policydiff.Widened || c.Kind == policydiff.Uncompared) && c.Covers(q, at)
		})
	}
	tighter := func(q policy.Query, at time.Time) bool {
		return slices.ContainsFunc(changes, func(c policydiff.Change) bool {
			return c.Kind == policydiff.Narrowed && c.Covers(q, at)
		})
	}
	for range 400 {
		q := policy.Query{
			Host: names.MustParse(pick(d, append([]string{"new.example.com", "x.y.b.example.com", "w.other.example.net"}, hosts...)...)),
			Port: pick(d, uint16(443), 80, 8080, 8443, 22), Plain: d.IntN(2) == 0, Method: pick(d, append([]string{"PATCH"}, methods...)...), Path: pick(d, asked...),
		}
		if q.WebSocket = q.Method == "GET" && d.IntN(3) == 0; d.IntN(6) == 0 {
			q.Path = "/" + pick(d, "v1", "z") + "/" + pick(d, "x", "y", "") // as the draw has it
		}
		at := now.Add(time.Duration(d.IntN(4)) * time.Hour)
		howA, passA := passes(a.Agent("dev"), q, at)
		howB, passB := passes(b.Agent("dev"), q, at)
		switch {
		case passB && !passA:
			widened++
			if !wider(q, at) {
				t.Fatalf("%s at %s passes in B and not in A, and no wider change says so: %+v\n%s", q, at, changes, context)
			}
		case passA && !passB:
			narrowed++
			if !tighter(q, at) {
				t.Fatalf("%s at %s passes in A and not in B, and no narrower change says so: %+v\n%s", q, at, changes, context)
			}
		case passA && passB:
			if why := looser(howA, howB); why != "" && !wider(q, at) {
				t.Fatalf("%s at %s passes in both and more easily in B (%s), and no wider change says so: %+v\n%s", q, at, why, changes, context)
			}
		}
	}
	return widened, narrowed
}

// FuzzCompare draws the pairs from a seed that the fuzzer chooses; the engine
// that enforces is the oracle.
func FuzzCompare(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) {
		d := draw{rand.New(rand.NewPCG(seed, 23))}
		a, b, textA, textB, ok := d.compiled()
		if !ok {
			t.Skip()
		}
		judge(t, d, a, b, policydiff.Agent(a.Agent("dev"), b.Agent("dev"), now), fmt.Sprintf("A:\n%s\nB:\n%s", textA, textB))
		if back := policydiff.Agent(a.Agent("dev"), a.Agent("dev"), now); len(back) > 0 {
			t.Fatalf("a policy differs from itself: %+v\n%s", back, textA)
		}
	})
}

// TestEveryKeyOfARuleIsCompared: a key of the format that the comparison does
// not know could let something through without a word.
func TestEveryKeyOfARuleIsCompared(t *testing.T) {
	compared := []string{
		"host", "ports", "methods", "paths", "deny", "inspect", "addresses", "websocket", "guard", "credential", "expires", // by what the engine answers
		"budgets",                                  // as they stand
		"sensitive", "accept_risk", "reason", "id", // let nothing through
	}
	refused := map[string]string{ // by Compile, so that there is nothing to compare
		"cidr": "203.0.113.0/24", "preset": "openai", "account": "acct_1", "allow_fields": "[metadata]", "ask": "true",
	}
	for _, key := range policy.RuleKeys() {
		value, is := refused[key]
		if slices.Contains(compared, key) == is {
			t.Errorf("key %s: the comparison does not know it", key)
		}
		rule := "{host: a.example, " + key + ": " + value + "}"
		if key == "cidr" || key == "preset" {
			rule = "{" + key + ": " + value + "}"
		}
		if _, err := policy.Load([]byte(rules(rule)), known); is && err == nil {
			t.Errorf("key %s is enforced now, and not compared", key)
		}
	}
}

// TestManyRulesAreComparedOrCalledTooMany, within a bounded time either way.
func TestWhatIsTooMuchCountsAsWider(t *testing.T) {
	var one []string
	for i := range 14 {
		segments := slices.Repeat([]string{"*"}, 14)
		segments[i] = fmt.Sprint("s", i)
		one = append(one, `{host: a.example, methods: [GET], paths: ["/`+strings.Join(segments, "/")+`"]}`)
	}
	a := load(t, rules(one...))
	b := load(t, rules(append(one, `{host: a.example, methods: [PUT]}`)...))
	changes := policydiff.Agent(a.Agent("dev"), b.Agent("dev"), now)
	if len(changes) != 1 || changes[0].Kind != policydiff.Uncompared {
		t.Fatalf("said %+v", changes)
	}
	r := policydiff.Compare(a, b, []string{"dev"}, now)
	if r.Reach() != policydiff.Widened {
		t.Errorf("in all it is called %s", r.Reach())
	}
}

func TestAgentsWithTheSameChangesAreGrouped(t *testing.T) {
	const agents = "agents:\n  one: {profile: p}\n  two: {profile: p}\n  own: {rules: [{host: b.example}]}\n"
	text := func(host string) string {
		return "version: 1\nprofiles: {p: {rules: [{host: " + host + "}]}}\n" + agents
	}
	r := policydiff.Compare(load(t, text("a.example")), load(t, text("c.example")), []string{"one", "own", "two"}, now)
	if len(r.Groups) != 1 || !slices.Equal(r.Groups[0].Agents, []string{"one", "two"}) || !slices.Equal(r.Same, []string{"own"}) {
		t.Errorf("report %+v", r)
	}
}
