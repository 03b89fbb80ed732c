// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"bawn/internal/names"
	"bawn/internal/policy"
)

func TestRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		policy string
		want   string // a part of the message, with its line
	}{
		"empty file":               {"", "line 1: the policy is empty"},
		"comments only":            {"# nothing\n", "the policy is empty"},
		"null":                     {"~\n", "the policy is empty"},
		"a list":                   {"- a\n", "line 1: wants a mapping"},
		"a scalar":                 {"x\n", "wants a mapping"},
		"no version":               {"agents: {}\n", `key "version" is missing`},
		"another version":          {"version: 2\n", `line 1: version: "2" is not 1`},
		"version as a string":      {"version: \"1\"\n", "version:"},
		"version in hex":           {"version: 0x1\n", "version:"},
		"not YAML":                 {"version: 1\nagents: [\n", "line 2: not YAML"},
		"a second document":        {"version: 1\n---\nversion: 1\n", "more than one YAML document"},
		"garbage after the end":    {"version: 1\n...\nx: [\n", "not YAML"},
		"a tab":                    {"version: 1\nagents: {}\t\n", "line 2: holds the character U+0009"},
		"a NUL":                    {"version: 1\n# \x00\n", "line 2: holds the character U+0000"},
		"a bidi override":          {"version: 1\n# \u202e\n", "U+202E"},
		"a no-break space":         {"version: 1\n# \u00a0\n", "U+00A0"},
		"not UTF-8":                {"version: 1\n# \xff\n", "line 2: not UTF-8"},
		"UTF-16":                   {"\xff\xfev\x00", "not UTF-8"},
		"byte order mark":          {"\ufeffversion: 1\n", "byte order mark"},
		"a directive":              {"%YAML 1.1\n---\nversion: 1\n", "line 1: a YAML directive"},
		"too large":                {"version: 1\n#" + strings.Repeat("x", policy.MaxSize), "the limit is 1048576"},
		"too deep":                 {"version: 1\nagents: " + strings.Repeat("[", 40) + strings.Repeat("]", 40), "nested deeper than 12 levels"},
		"far too deep":             {"version: 1\nagents: " + strings.Repeat("[", 200_000), "line 2: not YAML"},
		"an unknown key":           {"version: 1\nagent: {}\n", `line 2: unknown key "agent" (did you mean agents?)`},
		"a key twice":              {"version: 1\nversion: 1\n", `line 2: key "version" a second time (first on line 1)`},
		"a profile twice":          {"version: 1\nprofiles:\n  p: {}\n  p: {}\n", `line 4: profiles: "p" a second time (first on line 3)`},
		"an anchor":                {"version: 1\nprofiles: &x {}\n", "an anchor (&x)"},
		"an alias":                 {"version: 1\nprofiles: &x {}\nagents: *x\n", "an alias (*x)"},
		"a merge key":              {"version: 1\nprofiles:\n  <<: {p: {}}\n", "a merge key"},
		"a tag":                    {"version: !!int 1\n", "an explicit tag"},
		"a binary tag":             {rules("host: !!binary YS5leGFtcGxl"), "an explicit tag"},
		"a key that is a list":     {"version: 1\n? [a]\n: b\n", "a key that is a list"},
		"a key that is a number":   {"version: 1\nprofiles: {1: {}}\n", `a key that is "1"`},
		"a bad profile name":       {"version: 1\nprofiles: {Coder: {}}\n", `"Coder" is not a name`},
		"agents as a list":         {"version: 1\nagents: [dev]\n", "line 2: agents: wants a mapping (key: value), has a list"},
		"agents as nothing":        {"version: 1\nagents:\n", "has nothing (write {} for an empty one)"},
		"rules as nothing":         {"version: 1\nprofiles: {p: {rules: }}\n", "p rules: wants a list, has nothing"},
		"a rule as a string":       {rules("api.example.com"), "p.1: wants a mapping"},
		"a rule about nothing":     {rules("methods: [GET]"), "p.1: a rule needs one of host, cidr, preset, deny"},
		"a rule about two things":  {rules("{host: a.example, deny: {host: b.example}}"), "this has host and deny"},
		"a misspelt key":           {rules("{host: a.example, method: [GET]}"), "did you mean methods?"},
		"a host as a number":       {rules("host: 12"), `p.1 host: "12" is not a host name`},
		"a host with a scheme":     {rules("host: https://a.example"), "is not a host name"},
		"a host with a port":       {rules("host: a.example:443"), "is not a host name"},
		"a host with a user":       {rules("host: a@b.example"), "is not a host name"},
		"a host with unicode":      {rules("host: bücher.example"), "is not a host name"},
		"a star in a label":        {rules("host: ex*ample.com"), "is not a host name"},
		"two stars":                {rules("host: \"foo.**.x\""), "is not a host name"},
		"an inner star":            {rules("host: a.*.example.com"), "is not a host name"},
		"an address as host":       {rules("host: 192.0.2.1"), "a rule for addresses has cidr"},
		"an octal address":         {rules("host: 0177.0.0.1"), "an address, not a name"},
		"a false punycode label":   {rules("host: xn--example-.com"), "host_invalid"},
		"every name":               {rules(`host: "*"`), "too wide"},
		"a top level domain":       {rules(`host: "*.com"`), "too wide"},
		"a public suffix":          {rules(`host: "*.co.uk"`), "too wide"},
		"a divided zone":           {rules(`host: "*.s3.amazonaws.com"`), "too wide"},
		"accept_risk says nothing": {rules(`{host: "*", accept_risk: "  "}`), "accept_risk"},
		"accept_risk as true":      {rules(`{host: "*", accept_risk: true}`), "accept_risk"},
		"two spellings":            {rules("host: Example.com", "host: example.com"), `"example.com" and "Example.com" (line 5) are one host in two spellings`},
		"a spelling with a dot":    {rules("host: example.com.", "{host: example.com, ports: [8443]}"), "one host in two spellings"},
		"a port that is too large": {rules("{host: a.example, ports: [70000]}"), "not from 1 to 65535"},
		"port zero":                {rules("{host: a.example, ports: [0]}"), "is not a port"},
		"a port with a zero":       {rules("{host: a.example, ports: [0443]}"), "is not a port"},
		"a port with a sign":       {rules("{host: a.example, ports: [+443]}"), "is not a port"},
		"a port in hex":            {rules("{host: a.example, ports: [0x1bb]}"), "is not a port"},
		"a port with underscores":  {rules("{host: a.example, ports: [4_43]}"), "is not a port"},
		"udp":                      {rules("{host: a.example, ports: [443/udp]}"), "is not a port"},
		"port 80 as tcp":           {rules("{host: a.example, ports: [80/tcp]}"), "port 80 is always HTTP without TLS"},
		"a port twice":             {rules("{host: a.example, ports: [443, 443/tcp]}"), "port 443 a second time"},
		"ports as a number":        {rules("{host: a.example, ports: 443}"), "wants a list"},
		"a method in lower case":   {rules("{host: a.example, methods: [get]}"), "a method in upper case"},
		"CONNECT":                  {rules("{host: a.example, methods: [CONNECT]}"), "CONNECT is no method"},
		"a method twice":           {rules("{host: a.example, methods: [GET, GET]}"), "method GET a second time"},
		"a relative path":          {rules("{host: a.example, paths: [v1]}"), "a path that begins with /"},
		"a path with a query":      {rules(`{host: a.example, paths: ["/a?b"]}`), "a path that begins with /"},
		"a path with a space":      {rules(`{host: a.example, paths: ["/a b"]}`), "a path that begins with /"},
		"stars inside a segment":   {rules(`{host: a.example, paths: ["/a*"]}`), "stands for a whole segment"},
		"two stars in the middle":  {rules(`{host: a.example, paths: ["/**/a"]}`), "it has to come last"},
		"a dot segment":            {rules(`{host: a.example, paths: ["/a/../b"]}`), "dot segment"},
		"an empty segment":         {rules(`{host: a.example, paths: ["/a//b"]}`), "empty segment"},
		"a path that is not matched so": {rules(`{host: a.example, paths: ["/%7Ea"]}`),
			`is matched as "~a"`},
		"websocket as yes":           {rules("{host: a.example, websocket: yes}"), `"yes" is not true or false`},
		"websocket as a string":      {rules(`{host: a.example, websocket: "true"}`), "is not true or false"},
		"an unknown inspect":         {rules("{host: a.example, inspect: snii}"), "did you mean sni?"},
		"an unknown guard":           {rules("{host: a.example, guard: readonly}"), "did you mean read-only?"},
		"sni with methods":           {rules("{host: a.example, inspect: sni, methods: [GET]}"), "cannot be enforced with inspect: sni"},
		"none with paths":            {rules(`{host: a.example, inspect: none, paths: ["/a"]}`), "cannot be enforced with inspect: none"},
		"none with a guard":          {rules("{host: a.example, inspect: none, guard: read-only}"), "cannot be enforced with inspect: none"},
		"sni on port 80":             {rules("{host: a.example, inspect: sni, ports: [80]}"), "always inspected in full"},
		"TLS here and plain there":   {rules("{host: a.example, ports: [8080]}", `{host: "*.example.com", ports: [8443]}`, "{host: a.example, ports: [8080/http]}"), "port 8080 is TLS here and HTTP without TLS in rule p.3"},
		"TLS under a plain wildcard": {rules("{host: a.example.com, ports: [8080]}", `{host: "*.example.com", ports: [8080/http]}`), "port 8080 is TLS here"},
		"bits behind the length":     {rules("{host: a.example, addresses: [10.1.2.3/8]}"), "the range is 10.0.0.0/8"},
		"a mapped range":             {rules(`{host: a.example, addresses: ["::ffff:10.0.0.0/104"]}`), "hides an IPv4 range"},
		"another spelling":           {rules(`{host: a.example, addresses: ["FD00::/16"]}`), "write fd00::/16"},
		"an address alone":           {rules("{host: a.example, addresses: [10.0.0.1]}"), "an address range such as"},
		"loopback":                   {rules("{host: a.example, addresses: [127.0.0.0/8]}"), "loopback: services of this host"},
		"metadata":                   {rules("{host: a.example, addresses: [169.254.169.254/32]}"), "metadata services"},
		"every address":              {rules("{host: a.example, addresses: [0.0.0.0/0]}"), "p.1 addresses: 0.0.0.0/0 is loopback"},
		"stand-in addresses":         {rules("{host: a.example, addresses: [198.18.0.0/16]}"), "stand-in addresses"},
		"a date alone":               {rules("{host: a.example, expires: 2027-01-01}"), "a time such as"},
		"a time without a zone":      {rules("{host: a.example, expires: 2027-01-01T00:00:00}"), "a time such as"},
		"no such day":                {rules("{host: a.example, expires: 2027-02-30T00:00:00Z}"), "a time such as"},
		"an id with a dot":           {rules("{host: a.example, id: p.2}"), "p.1 id:"},
		"an id twice":                {rules("{host: a.example, id: x}", "{host: b.example, id: x}"), "line 6: x: the id of another rule (line 5)"},
		"methods beside deny":        {rules("{deny: {host: a.example}, methods: [GET]}"), "write it inside deny"},
		"inspect inside deny":        {rules("deny: {host: a.example, inspect: sni}"), `unknown key "inspect"`},
		"deny of nothing":            {rules("deny: {methods: [GET]}"), "needs one of host, cidr, preset"},
		"deny as a string":           {rules("deny: a.example"), "p.1 deny: wants a mapping"},
		"reason in two places":       {rules("{deny: {host: a.example, reason: x}, reason: y}"), "written inside deny and beside it"},
		"a profile that is not":      {"version: 1\nprofiles: {coder: {}}\nagents: {dev: {profile: codr}}\n", `no profile "codr" in this policy (did you mean coder?)`},
		"a cidr rule":                {rules("cidr: 203.0.113.0/24"), "address rules are not yet supported by this build"},
		"a bad cidr rule":            {rules("cidr: 203.0.113.1/24"), "the range is 203.0.113.0/24"},
		"a denied cidr":              {rules("deny: {cidr: 203.0.113.0/24}"), "not yet supported by this build"},
		"a preset":                   {rules("preset: openai"), "presets are not yet supported by this build"},
		"a credential":               {rules("{host: a.example, credential: x}"), "credentials are not yet supported by this build"},
		"an account":                 {rules("{host: a.example, account: x}"), "account pins are not yet supported by this build"},
		"both":                       {rules("{host: a.example, account: x, credential: y}"), "exclude each other"},
		"allow_fields":               {rules("{host: a.example, allow_fields: [x]}"), "allow_fields is not yet supported by this build"},
		"ask":                        {rules("{host: a.example, ask: true}"), "ask: true is not yet supported by this build"},
		"websocket with sni":         {rules("{host: a.example, inspect: sni, websocket: true}"), "cannot be enforced with inspect: sni"},
		"a later guard":              {rules("{host: a.example, guard: text-filter}"), "guard text-filter is not yet supported by this build"},
		"too many rules on a host":   {rules(manyRules(257)...), "line 261: p.257: more than 256 rules about one host"},
		"a budget in no list":        {bounds("requests: []"), "line 2: profiles p budgets requests: an empty list is no budget"},
		"two budgets for a period":   {bounds("requests: [1/min, 2/minute]"), "a second budget for one period"},
		"a budget beyond all":        {bounds("egress_bytes: 999999999999TB/day"), "more than the largest budget"},
		"a budget without a period":  {bounds("egress_bytes: 500MB"), "an amount such as 500MB/day"},
		"names by the minute":        {bounds("names: 5/min"), "a number of names such as 1000/day"},
		"connections by the minute":  {bounds("connections: 5/min"), "a number above zero"},
		"an unknown budget":          {bounds("request: 5/min"), "did you mean requests?"},
		"a budget of a rule":         {rules("{host: a.example, budgets: {requests: 1/s}}"), "a rule with budgets needs an id"},
		"connections of a rule":      {rules("{host: a.example, id: a, budgets: {connections: 1}}"), `unknown key "connections"`},
		"budgets beside deny":        {rules("{deny: {host: a.example}, id: a, budgets: {requests: 1/s}}"), "p.1 budgets: has no meaning beside deny"},
		"bad budgets":                {"version: 1\nprofiles: {p: {budgets: {requests: lots}}}\n", "a rate such as 600/min"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := policy.Load([]byte(tc.policy), policy.Known{AnyAgent: true})
			if err == nil {
				t.Fatalf("accepted:\n%s", tc.policy)
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got\n%v\nwant something with\n%s", err, tc.want)
			}
		})
	}
}

func bounds(s string) string { return "version: 1\nprofiles: {p: {budgets: {" + s + "}}}\n" }

func manyRules(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("{host: a.example, ports: [%d]}", 1000+i)
	}
	return list
}

func TestManyProblemsAreCounted(t *testing.T) {
	list := make([]string, 150)
	for i := range list {
		list[i] = "hots: a.example"
	}
	_, err := policy.Parse([]byte(rules(list...)))
	if err == nil || !strings.HasSuffix(err.Error(), "and 200 more problems") || strings.Count(err.Error(), "\n") != 100 {
		t.Errorf("got %v", err)
	}
}

func TestEveryProblemIsReported(t *testing.T) {
	_, err := policy.Load([]byte(rules("hots: a.example", `{host: "*.com", method: [GET]}`, "preset: openai")), policy.Known{})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		`line 5: p.1: unknown key "hots" (did you mean host?)`, "line 5: p.1: a rule needs one of",
		`line 6: p.2: unknown key "method" (did you mean methods?)`, `line 6: p.2 host: "*.com" is too wide`,
		"line 7: p.3 preset: presets are not yet supported", "line 9: agents dev: no agent of this name is registered",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing: %s\nin:\n%v", want, err)
		}
	}
}

func TestUnknownAgentsAreRefused(t *testing.T) {
	src := []byte("version: 1\nagents: {dev: {}}\n")
	if _, err := policy.Load(src, policy.Known{}); err == nil {
		t.Error("an agent that nobody knows is accepted")
	}
	_, err := policy.Load(src, policy.Known{Agents: map[string]bool{"deva": true}})
	if err == nil || !strings.Contains(err.Error(), "did you mean deva?") {
		t.Errorf("a misspelt agent: %v", err)
	}
	if _, err := policy.Load(src, policy.Known{Agents: map[string]bool{"dev": false}}); err == nil {
		t.Error("an agent that is known not to exist is accepted")
	}
	if _, err := policy.Load(src, policy.Known{Agents: map[string]bool{"dev": true}}); err != nil {
		t.Error(err)
	}
}

func TestHostsOfPresetsAreTheirs(t *testing.T) {
	known := policy.Known{AnyAgent: true, Owned: []policy.Owned{
		{Preset: "models", Hosts: []names.Pattern{names.MustPattern("api.models.example"), names.MustPattern("*.cdn.models.example")}},
	}}
	for rule, refused := range map[string]bool{
		"host: api.models.example":          true,
		"host: API.models.example.":         true,
		`host: "*.models.example"`:          true,
		"host: a.cdn.models.example":        true,
		`host: "*.a.cdn.models.example"`:    true,
		"host: models.example":              false,
		"host: other.models.example":        false,
		"deny: {host: api.models.example}":  false,
		`deny: {host: "*.models.example"}`:  false,
		`{host: "*", accept_risk: because}`: true,
	} {
		_, err := policy.Load([]byte(rules(rule)), known)
		if (err != nil) != refused {
			t.Errorf("%s: %v, want refused: %v", rule, err, refused)
		}
		if refused && err != nil && !strings.Contains(err.Error(), "write preset: models instead") {
			t.Errorf("%s: the preset is not named: %v", rule, err)
		}
	}
}

func TestWarnings(t *testing.T) {
	p := load(t, rules(
		`{host: a.example, methods: []}`,
		`{host: b.example, expires: 2020-01-01T00:00:00Z}`,
		`deny: {host: "*.c.example.com"}`,
		`host: x.c.example.com`,
		`host: "*.d.example.com"`,
		`{host: x.d.example.com, methods: [GET]}`,
		`{host: y.d.example.com, guard: read-only}`,
		`{host: e.example, paths: ["/a/**"]}`,
		`{host: e.example, paths: ["/a/*/b"], methods: [GET]}`,
		`host: f.example`, `host: f.example`,
	))
	got := p.Warnings(now).Error()
	for _, want := range []string{
		"line 5: p.1 methods: an empty list matches nothing",
		"line 6: p.2: expired at 2020-01-01T00:00:00Z: it matches nothing any more",
		"line 8: p.4: never allows anything: rule p.3 (line 7) denies all of it",
		"line 10: p.6: makes no difference: rule p.5 (line 9) covers all of it",
		"line 13: p.9: makes no difference: rule p.8 (line 12) covers all of it",
		"line 15: p.11: makes no difference: rule p.10 (line 14) covers all of it",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("missing: %s\nin:\n%s", want, got)
		}
	}
	if n := len(p.Warnings(now)); n != 6 {
		t.Errorf("%d warnings:\n%s", n, got)
	}
	if n := len(load(t, rules("host: a.example")).Warnings(now)); n != 0 {
		t.Errorf("%d warnings for a plain policy", n)
	}
}

// TestTCPThatWouldNotPassIsWarnedOf: a port for ssh or a database at which nothing
// but TLS is understood.
func TestTCPThatWouldNotPassIsWarnedOf(t *testing.T) {
	for text, want := range map[string]string{
		"{host: a.example, ports: [22/tcp]}":                     "line 5: p.1 ports: port 22 is taken for HTTPS, and a connection that does not begin with TLS is refused (write inspect: none",
		"{host: a.example, ports: [9000/tcp]}":                   "port 9000 is taken for HTTPS",
		"{host: a.example, ports: [443, 5432]}":                  "port 5432 is taken for HTTPS",
		"{host: a.example, ports: [22/tcp], inspect: none}":      "",
		"{host: a.example, ports: [8443/tcp], inspect: sni}":     "",
		"{host: a.example, ports: [443/tcp, 8443, 22/http, 80]}": "",
		"deny: {host: a.example, ports: [22/tcp]}":               "",
	} {
		w := load(t, rules(text)).Warnings(now)
		if got := w.Error(); want == "" && len(w) > 0 || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// TestYAMLThatBreaksNamesItsLine: not only where the block begins that is broken.
func TestYAMLThatBreaksNamesItsLine(t *testing.T) {
	good := rules(strings.Split(strings.Repeat("host: a.example|", 20)+"host: b.example", "|")...)
	lines := strings.Count(good[:strings.Index(good, "b.example")], "\n") + 1
	for text, want := range map[string]string{
		strings.Replace(good, "host: b.example", "host: b.example\n   ports: [22]", 1):                                    fmt.Sprintf("line %d: not YAML: did not find expected", lines+1),
		"version: 1\nprofiles:\n  p:\n    rules:\n      - host: a.example\n        methods: [GET]\n       ports: [443]\n": "line 7: not YAML: did not find expected",
		"version: 1\nagents:\n  dev: {}\n more: {}\n":                                                                     "line 4: not YAML: did not find expected key",
	} {
		_, err := policy.Load([]byte(text), policy.Known{AnyAgent: true})
		if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "in the block that begins at line") {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
