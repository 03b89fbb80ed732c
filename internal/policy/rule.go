// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"bawn/internal/guard"
	"bawn/internal/names"
	"bawn/internal/quota"
)

// Inspect says how far the proxy looks into a connection. The zero value is
// the strictest; a smaller value is stricter.
type Inspect uint8

// The ways to look.
const (
	InspectFull Inspect = iota // TLS ends at the proxy, each request is judged
	InspectSNI                 // the name in the TLS greeting is checked, the rest passes unread
	InspectNone                // any TCP: only the name is judged
)

// String gives the word that policies use.
func (i Inspect) String() string {
	switch i {
	case InspectSNI:
		return "sni"
	case InspectNone:
		return "none"
	default:
		return "full"
	}
}

// A rule is one rule as read. Lists are nil when not written; a list that was
// written and is empty is not nil, and matches nothing.
type rule struct {
	id    string
	given bool // the id was written
	line  int
	lines map[string]int // line of each key that was written
	deny  bool

	host       names.Pattern
	spelled    string // the host as written
	cidr       netip.Prefix
	preset     string
	ports      []Port   // never nil in an allowing rule
	asTCP      []uint16 // of ports, those written PORT/tcp
	methods    []string
	paths      []glob
	inspect    Inspect
	addresses  []netip.Prefix
	websocket  bool
	guard      string
	chain      guard.Chain // what guard names; set by Compile
	credential string
	account    string
	fields     []string
	ask        bool
	sensitive  bool
	budgets    []quota.Budget
	expires    time.Time
	reason     string
	acceptRisk string

	grant *Grant // that the rule comes from, or nil
}

// at returns the line of a key, or of the rule when the key was not written.
func (ru *rule) at(key string) int {
	if line, ok := ru.lines[key]; ok {
		return line
	}
	return ru.line
}

// whole reports whether the rule is about everything on its host and ports.
func (ru *rule) whole() bool { return ru.methods == nil && ru.paths == nil }

// rules reads a rule list. owner begins the ids that are not given.
func (r *reader) rules(n *yaml.Node, owner string) []*rule {
	s := listOf(object(r.ruleKeys))
	where := owner + " rules"
	if !r.list(n, s, where) {
		return nil
	}
	var rules []*rule
	for i, c := range n.Content {
		if ru := r.rule(c, owner+"."+itoa(i+1)); ru != nil {
			rules = append(rules, ru)
		}
	}
	return rules
}

// rule reads one rule as far as it can be read, or returns nil. id is what it
// is called without an id of its own.
func (r *reader) rule(n *yaml.Node, id string) *rule {
	ru := &rule{id: id, line: n.Line, lines: map[string]int{}}
	m, ok := r.fields(n, r.ruleKeys, id)
	if !ok {
		return nil
	}
	r.subject(m, ru)
	if m.has("deny") {
		r.denied(m, ru)
	} else {
		r.keys(m, r.ruleKeys, ru)
		r.budgeted(ru)
		if ru.ports == nil {
			ru.ports = []Port{{Number: 443}}
		}
		r.fits(ru)
	}
	return ru
}

// subject checks that the rule says once what it is about.
func (r *reader) subject(m mapping, ru *rule) {
	var about []string
	for _, k := range []string{"host", "cidr", "preset", "deny"} {
		if m.has(k) {
			about = append(about, k)
		}
	}
	switch len(about) {
	case 1:
	case 0:
		r.problems.add(ru.line, ru.id, "", "a rule needs one of host, cidr, preset, deny")
	default:
		r.problems.add(ru.line, ru.id, "make a rule of each", "a rule has one of host, cidr, preset, deny; this has %s", strings.Join(about, " and "))
	}
}

// denied reads the deny form: what is matched stands inside, the notes inside
// or beside.
func (r *reader) denied(m mapping, ru *rule) {
	ru.deny = true
	inner := r.denyKeys
	for _, k := range r.ruleKeys {
		if k.name == "deny" || !m.has(k.name) || lookup(r.noteKeys, k.name) != nil {
			continue
		}
		hint := ""
		if lookup(inner, k.name) != nil {
			hint = "write it inside deny: {...}"
		}
		r.problems.add(m.values[k.name].Line, ru.id+" "+k.name, hint, "has no meaning beside deny")
	}
	ru.lines["deny"] = m.values["deny"].Line
	inside, ok := r.fields(m.values["deny"], inner, ru.id+" deny")
	if !ok {
		return
	}
	for _, k := range r.noteKeys {
		if m.has(k.name) && inside.has(k.name) {
			r.problems.add(inside.values[k.name].Line, ru.id+" "+k.name, "", "written inside deny and beside it")
		}
	}
	about := 0
	for _, k := range []string{"host", "cidr", "preset"} {
		if inside.has(k) {
			about++
		}
	}
	if about != 1 {
		r.problems.add(inside.node.Line, ru.id+" deny", "", "needs one of host, cidr, preset")
	}
	r.keys(m, r.noteKeys, ru)
	r.keys(inside, inner, ru)
}

// keys reads those of keys that were written into ru.
func (r *reader) keys(m mapping, keys []key, ru *rule) {
	for _, k := range keys {
		n := m.values[k.name]
		if n == nil {
			continue
		}
		ru.lines[k.name] = n.Line
		if where := ru.id + " " + k.name; r.value(n, k.shape, where) {
			r.take(k.name, n, ru, where)
		}
	}
}

// take reads the meaning of one value of the right shape into ru.
func (r *reader) take(key string, n *yaml.Node, ru *rule, where string) {
	switch key {
	case "host":
		r.takeHost(n, ru, where)
	case "cidr":
		ru.cidr = r.prefix(n, where)
	case "preset":
		ru.preset = n.Value
	case "ports":
		r.takePorts(n, ru, where)
	case "methods":
		r.takeMethods(n, ru, where)
	case "paths":
		r.takePaths(n, ru, where)
	case "addresses":
		ru.addresses = []netip.Prefix{}
		for _, c := range n.Content {
			ru.addresses = append(ru.addresses, r.prefix(c, where))
		}
	case "allow_fields":
		ru.fields = listed(n)
	case "inspect":
		ru.inspect = map[string]Inspect{"full": InspectFull, "sni": InspectSNI, "none": InspectNone}[n.Value]
	case "websocket":
		ru.websocket = n.Value == "true"
	case "ask":
		ru.ask = n.Value == "true"
	case "budgets":
		ru.budgets = r.budgets(n, lookup(r.ruleKeys, key).shape.keys, where, "")
	case "sensitive":
		ru.sensitive = n.Value == "true"
	case "guard":
		ru.guard = n.Value
	case "credential":
		ru.credential = n.Value
	case "account":
		ru.account = n.Value
	case "expires":
		ru.expires, _ = parseTime(n.Value) // its shape has been checked
	case "reason":
		ru.reason = fold(n.Value)
	case "accept_risk":
		ru.acceptRisk = fold(n.Value)
	case "id":
		ru.id, ru.given = n.Value, true
	}
}

func (r *reader) takeHost(n *yaml.Node, ru *rule, where string) {
	p, err := names.ParsePattern(n.Value)
	if err != nil {
		hint := ""
		if _, addr := netip.ParseAddr(n.Value); addr == nil {
			hint = "a rule for addresses has cidr: instead of host:"
		}
		r.problems.add(n.Line, where, hint, "%v", err)
		return
	}
	ru.host, ru.spelled = p, n.Value
}

func (r *reader) takePorts(n *yaml.Node, ru *rule, where string) {
	ru.ports = []Port{}
	seen := map[uint16]bool{}
	for _, c := range n.Content {
		p, err := parsePort(c.Value)
		switch {
		case err != nil:
			r.problems.add(c.Line, where, "", "%v", err)
		case seen[p.Number]:
			r.problems.add(c.Line, where, "", "port %d a second time", p.Number)
		default:
			seen[p.Number] = true
			ru.ports = append(ru.ports, p)
			if strings.HasSuffix(c.Value, "/tcp") {
				ru.asTCP = append(ru.asTCP, p.Number)
			}
		}
	}
}

func (r *reader) takeMethods(n *yaml.Node, ru *rule, where string) {
	ru.methods = []string{}
	seen := map[string]bool{}
	for _, c := range n.Content {
		switch {
		case c.Value == "CONNECT":
			r.problems.add(c.Line, where, "a tunnel to a host is allowed by host and ports", "CONNECT is no method of a request that a rule could allow")
		case seen[c.Value]:
			r.problems.add(c.Line, where, "", "method %s a second time", c.Value)
		default:
			seen[c.Value] = true
			ru.methods = append(ru.methods, c.Value)
		}
	}
}

func (r *reader) takePaths(n *yaml.Node, ru *rule, where string) {
	ru.paths = []glob{}
	seen := map[string]bool{}
	for _, c := range n.Content {
		g, err := parseGlob(c.Value)
		switch {
		case err != nil:
			r.problems.add(c.Line, where, "", "%v", err)
		case seen[g.text]:
			r.problems.add(c.Line, where, "", "path %s a second time", show(g.text))
		default:
			seen[g.text] = true
			ru.paths = append(ru.paths, g)
		}
	}
}

// prefix reads an address range in its one canonical spelling.
func (r *reader) prefix(n *yaml.Node, where string) netip.Prefix {
	p, err := netip.ParsePrefix(n.Value)
	switch {
	case err != nil:
		r.problems.add(n.Line, where, "", "%s is not an address range", show(n.Value))
	case p.Addr().Is4In6():
		r.problems.add(n.Line, where, "write the IPv4 range", "%s hides an IPv4 range", show(n.Value))
	case p != p.Masked():
		r.problems.add(n.Line, where, "the range is "+p.Masked().String(), "%s has bits behind its length", show(n.Value))
	case p.String() != n.Value:
		r.problems.add(n.Line, where, "write "+p.String(), "%s is not the canonical spelling", show(n.Value))
	default:
		return p
	}
	return netip.Prefix{}
}

// fits checks that the keys of an allowing rule go together.
func (r *reader) fits(ru *rule) {
	if ru.inspect != InspectFull {
		r.fitsUnread(ru)
	}
	if ru.credential != "" && ru.account != "" {
		r.problems.add(ru.at("account"), ru.id+" account", "", "credential and account exclude each other")
	}
}

// fitsUnread checks a rule under which no request is ever read.
func (r *reader) fitsUnread(ru *rule) {
	for _, key := range []string{"methods", "paths", "guard", "credential", "account", "allow_fields", "websocket"} {
		if _, written := ru.lines[key]; !written || key == "websocket" && !ru.websocket {
			continue
		}
		r.problems.add(ru.at(key), ru.id+" "+key, "remove it, or write inspect: full",
			"cannot be enforced with inspect: %s, which never sees a request", ru.inspect)
	}
	for _, p := range ru.ports {
		if p.Plain {
			r.problems.add(ru.at("ports"), ru.id+" ports", "make a rule of its own for that port",
				"port %s is HTTP without TLS, which is always inspected in full; the rule says inspect: %s", p, ru.inspect)
		}
	}
}

// listed returns the values of a list of strings.
func listed(n *yaml.Node) []string {
	list := make([]string, 0, len(n.Content))
	for _, c := range n.Content {
		list = append(list, c.Value)
	}
	return list
}
