// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

// This file is the one list of keys. The parser, the JSON Schema and the
// reference page are all read off it, so that none can know a key that another
// does not.

// A kind is the form of a value.
type kind uint8

const (
	kindWord   kind = iota // a string on one line that fits pattern or enum
	kindText               // words for people: white space is folded, never empty
	kindBool               // true or false
	kindOne                // the number 1
	kindInt                // a number above zero
	kindPort               // a number or a string that fits pattern
	kindTime               // a date with time and zone (RFC 3339)
	kindList               // a list of elem
	kindObject             // a mapping with the given keys
	kindNamed              // a mapping from names to elem
)

// A shape is the form of a value, as far as it can be said without looking at
// other values.
type shape struct {
	kind    kind
	pattern string   // of kindWord and kindPort: an expression for the whole value
	saying  string   // the pattern in words, for messages
	enum    []string // of kindWord: all values
	elem    *shape   // of kindList and kindNamed
	single  bool     // of kindList: one elem may stand for the list
	keys    []key    // of kindObject
}

// A key is one key of a mapping.
type key struct {
	name     string
	shape    shape
	doc      string // for the reference
	fallback string // what holds without it, for the reference
	example  string // a value, in YAML
	later    string // what brings it; set: parsed, but refused by [Compile]
	required bool
}

const (
	namePattern    = `[a-z]([a-z0-9-]{0,25}[a-z0-9])?`
	hostPattern    = `(\*|(\*\.)?[A-Za-z0-9.-]{1,253})`
	portPattern    = `[1-9][0-9]{0,4}(/tcp|/http)?`
	methodPattern  = `[A-Z]([A-Z_-]{0,30}[A-Z])?`
	pathPattern    = `/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*`
	prefixPattern  = `[0-9A-Fa-f:.]{2,45}/[0-9]{1,3}`
	idPattern      = `[a-z]([a-z0-9-]{0,62}[a-z0-9])?`
	refPattern     = `[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?`
	notYetEnforced = "not yet supported by this build"
)

func word(pattern, saying string) shape {
	return shape{kind: kindWord, pattern: pattern, saying: saying}
}

func listOf(elem shape) shape { return shape{kind: kindList, elem: &elem} }

func oneOf(values ...string) shape { return shape{kind: kindWord, enum: values} }

func object(keys []key) shape { return shape{kind: kindObject, keys: keys} }

func named(keys []key) shape {
	elem := object(keys)
	return shape{kind: kindNamed, elem: &elem, pattern: namePattern,
		saying: "a name of 1 to 27 of a-z, 0-9 and '-' that begins with a letter"}
}

// matchKeys say what a rule, allowing or denying, is about.
func matchKeys() []key {
	return []key{
		{name: "host", shape: word(hostPattern, "a host name, *.REST or *"),
			doc:     "The name that the rule is about. `api.example.com` is exactly that name. `*.example.com` is every name with one or more labels in front of `example.com`, and never `example.com` itself; how many of them an agent may make up in a day is bounded (dns.md). Upper case and one final dot make no difference.",
			example: "api.example.com"},
		{name: "cidr", shape: word(prefixPattern, "an address range such as 203.0.113.0/24"),
			doc:     "Addresses instead of names: connections straight to an address in this range.",
			example: "203.0.113.0/24", later: notYetEnforced},
		{name: "preset", shape: word(namePattern, "the name of a preset"),
			doc:     "A maintained set of rules for a provider, instead of a host.",
			example: "openai", later: notYetEnforced},
		{name: "ports", shape: listOf(shape{kind: kindPort, pattern: portPattern, saying: "a port from 1 to 65535, PORT/tcp or PORT/http"}),
			doc:      "`443` and `443/tcp` are the same: TLS on that port, or with `inspect: none` any TCP. So `22/tcp` alone is TLS on port 22; ssh and databases need `inspect: none` beside it. `8080/http` is HTTP without TLS. Port 80 is always HTTP without TLS, and has to be written to be allowed.",
			fallback: "`[443]`; in a `deny`, every port", example: "[443, 8080/http]"},
		{name: "methods", shape: listOf(word(methodPattern, "a method in upper case, such as GET")),
			doc:      "The HTTP methods. GET does not imply HEAD.",
			fallback: "every method", example: "[GET, HEAD]"},
		{name: "paths", shape: listOf(word(pathPattern, "a path that begins with /")),
			doc:      "The paths, matched against the canonical path of the request without its query. `*` is exactly one segment, `**` at the end is all that follows: `/v1/**` is `/v1/` and everything below it, not `/v1`.",
			fallback: "every path", example: `["/v1/**"]`},
	}
}

// noteKeys are the keys that a rule has for people.
func noteKeys() []key {
	return []key{
		{name: "expires", shape: shape{kind: kindTime},
			doc:      "From this time on the rule matches nothing. A request that only an expired rule would have allowed is refused with `rule_expired`. For a rule of minutes or hours there is `bawn allow` ([policy-changes.md](policy-changes.md)).",
			fallback: "never", example: "2027-01-31T00:00:00Z"},
		{name: "reason", shape: shape{kind: kindText},
			doc: "Why the rule is there.", example: "the build reads release notes"},
		{name: "id", shape: word(idPattern, "1 to 64 of a-z, 0-9 and '-', beginning with a letter"),
			doc:      "The name of the rule in records and denials. Unique in the policy. A given id stays the same when rules are added above.",
			fallback: "`PROFILE.N` or `agent.NAME.N`, counted from 1", example: "release-notes"},
	}
}

// ruleKeys are the keys of a rule.
func ruleKeys() []key {
	keys := matchKeys()
	keys = append(keys, []key{
		{name: "deny", shape: object(append(matchKeys(), noteKeys()...)),
			doc:     "What is inside is refused, whatever other rules allow. Holds `host`, `ports`, `methods`, `paths`; without `ports` it holds for every port.",
			example: "{host: files.example.com}"},
		{name: "inspect", shape: oneOf("full", "sni", "none"),
			doc:      "`full` ends TLS and judges every request. `sni` checks only the name in the TLS greeting and passes the rest on unread. `none` is for other TCP protocols: only the name is judged. Where rules overlap, the strictest holds. `methods`, `paths` and `guard` need `full`.",
			fallback: "`full`", example: "sni"},
		{name: "addresses", shape: listOf(word(prefixPattern, "an address range such as 10.20.0.0/16")),
			doc:      "Ranges that are not public and that the name may resolve to all the same. Without it, a name with a private, local or otherwise special address is refused.",
			fallback: "public addresses only", example: "[10.20.0.0/16]"},
		{name: "websocket", shape: shape{kind: kindBool},
			doc:      "Whether a GET may be upgraded to a WebSocket. Rules without it do not match one that asks for that; those that deny do.",
			fallback: "`false`", example: "true"},
		{name: "guard", shape: oneOf("read-only", "json", "json-schema", "text-filter"),
			doc:     "A check of the whole request. `read-only`: only GET, HEAD and OPTIONS without a body, and no WebSocket. `json`: every body, and every message on a WebSocket, is one JSON document that no two readers read differently. `json-schema` and `text-filter` are " + notYetEnforced + ".",
			example: "read-only"},
		{name: "credential", shape: word(refPattern, "the name of a credential"),
			doc:     "What is shown to the server: a client certificate of the host's configuration (`credentials:` there, kind `tls-client`), by its name. The rule needs one exact host, which the configuration has to name as well, `inspect: full`, and ports with TLS. Every use is on record as sensitive. Rules that some request could match together may not have different credentials. Other kinds of credentials are " + notYetEnforced + ".",
			example: "partner-cert"},
		{name: "account", shape: word(refPattern, "an account id"),
			doc: "The only account of the provider that may be used.", example: "acct_123", later: notYetEnforced},
		{name: "allow_fields", shape: listOf(word(`[A-Za-z_][A-Za-z0-9_.-]{0,126}`, "the name of a body field")),
			doc: "Body fields that a guard would refuse and that are allowed here.", example: "[metadata]", later: notYetEnforced},
		{name: "ask", shape: shape{kind: kindBool},
			doc: "Hold each request until a person has answered.", fallback: "`false`", example: "true", later: "`true` is " + notYetEnforced},
		{name: "budgets", shape: object(ruleBudgetKeys()),
			doc:     "Limits on how much each agent may use of what this rule lets through (budgets.md). The rule needs an `id`, under which it is counted. Where several rules allow a request, the budgets of all apply.",
			example: "{requests: 60/min}"},
		{name: "sensitive", shape: shape{kind: kindBool},
			doc: "Mark the records of this rule as sensitive.", fallback: "`false`", example: "true"},
		{name: "accept_risk", shape: shape{kind: kindText},
			doc:     "Why a rule that is too wide shall stand: a host under which strangers can have names (`*`, a public suffix, a zone that a provider divides among its customers), or `addresses` that hold loopback, link-local or very many addresses.",
			example: "the fetcher of the archive project has to reach any site"},
	}...)
	return append(keys, noteKeys()...)
}

// bodyKeys are what profiles and agents have in common.
func bodyKeys() []key {
	return []key{
		{name: "rules", shape: listOf(object(ruleKeys())), doc: "The rules. Their order makes no difference.", fallback: "`[]`", example: "[]"},
		{name: "budgets", shape: object(budgetKeys()),
			doc:     "Limits on how much each agent may use (budgets.md). Those of a profile and of an agent both hold, so that the tighter one counts.",
			example: "{egress_bytes: 500MB/day, requests: 600/min}"},
	}
}

// documentKeys are the keys of the whole file.
func documentKeys() []key {
	agent := append([]key{
		{name: "profile", shape: word(namePattern, "the name of a profile"),
			doc: "The profile whose rules the agent has.", fallback: "the profile that the agent was registered with", example: "coder"},
	}, bodyKeys()...)
	return []key{
		{name: "version", shape: shape{kind: kindOne}, doc: "The version of the format.", example: "1", required: true},
		{name: "profiles", shape: named(bodyKeys()), doc: "Named rule lists that agents share.", fallback: "`{}`"},
		{name: "agents", shape: named(agent), doc: "What single agents have: a profile, and rules of their own beside it. Each has to be registered (`bawn agent create`).", fallback: "`{}`"},
	}
}

// keyNames lists the names of keys.
func keyNames(keys []key) []string {
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.name
	}
	return names
}
