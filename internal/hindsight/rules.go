// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package hindsight

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"bawn/internal/names"
	"bawn/internal/policy"
)

// host makes rules for what one agent was denied of one name. Within a rule all
// methods and paths were seen together, so that it allows nothing else.
func (s *suggester) host(agent string, h names.Host, seen []*Seen, now *policy.Policy) []SuggestedRule {
	slices.SortFunc(seen, func(a, b *Seen) int { return cmp.Or(cmp.Compare(a.form, b.form), strings.Compare(a.Asked, b.Asked)) })
	guard := s.guardFor(now.Agent(agent), h)
	var rules []SuggestedRule
	for _, g := range grouped(s.requests(agent, seen)) {
		r := SuggestedRule{
			Agent: agent, Host: h.String(), Ports: []string{g.port.String()}, Methods: g.methods, Paths: g.paths, WebSocket: g.socket,
			Guard: guard, Wider: shapes(g.paths), Claims: g.claims,
		}
		if g.socket {
			r.Marks = append(r.Marks, "a rule for a WebSocket allows a plain GET of its path as well")
			if guard == "read-only" {
				r.Guard = "" // it refuses every WebSocket
			}
		}
		if g.port.Plain {
			r.Marks = append(r.Marks, "without TLS: whoever is on the way reads and changes what is sent")
		}
		rules = append(rules, r)
	}
	rules = append(rules, tunnels(agent, h, seen, rules)...)
	if over := len(rules) - maxRules; over > 0 {
		for _, r := range rules[maxRules:] {
			for _, c := range r.Claims {
				s.out.Beyond += c.Count
			}
		}
		rules = rules[:maxRules]
	}
	return rules
}

// guardFor is the guard that all rules about the name have that have one, if it
// is one: what is allowed more should not pass it by.
func (s *suggester) guardFor(a *policy.Agent, h names.Host) string {
	guards := map[string]bool{}
	for _, r := range a.Rules() {
		if !r.Deny && r.Host.Match(h) && r.Guard != "" {
			guards[r.Guard] = true
		}
	}
	if len(guards) != 1 {
		return ""
	}
	return slices.Collect(maps.Keys(guards))[0]
}

// requests keeps the requests among what was seen that a rule can say exactly.
func (s *suggester) requests(agent string, seen []*Seen) []*Seen {
	var list []*Seen
	for _, one := range seen {
		if one.form != formRequest {
			continue
		}
		if strings.Contains(one.query.Path, "*") {
			s.asideWhy(agent, one.Code, "no rule can be suggested: a star in a path is a pattern in a rule, so that no rule says just this path", one.Asked, one.Last, one.Count)
			continue
		}
		list = append(list, one)
	}
	return list
}

// A group is requests of which every method was seen with every path.
type group struct {
	port    policy.Port
	socket  bool
	methods []string
	paths   []string
	claims  []Seen
}

// grouped puts requests together, methods first that were seen with the same
// paths, in rules of a size that can be read.
func grouped(seen []*Seen) []group {
	type place struct {
		port   policy.Port
		socket bool
	}
	at := map[place]map[string]map[string]*Seen{} // method and path
	for _, one := range seen {
		q := one.query
		p := place{policy.Port{Number: q.Port, Plain: q.Plain}, q.WebSocket}
		if at[p] == nil {
			at[p] = map[string]map[string]*Seen{}
		}
		if at[p][q.Method] == nil {
			at[p][q.Method] = map[string]*Seen{}
		}
		at[p][q.Method][q.Path] = one
	}
	var all []group
	for p, methods := range at {
		same := map[string][]string{} // paths, as one text -> methods
		for method, paths := range methods {
			key := strings.Join(slices.Sorted(maps.Keys(paths)), "\n")
			same[key] = append(same[key], method)
		}
		for key, list := range same {
			slices.Sort(list)
			for chunk := range slices.Chunk(strings.Split(key, "\n"), maxPaths) {
				g := group{port: p.port, socket: p.socket, methods: list, paths: chunk}
				for _, m := range list {
					for _, path := range chunk {
						g.claims = append(g.claims, *methods[m][path])
					}
				}
				all = append(all, g)
			}
		}
	}
	slices.SortFunc(all, func(a, b group) int {
		return cmp.Or(cmp.Compare(a.port.Number, b.port.Number), strings.Compare(fmt.Sprint(a.socket, a.methods, a.paths), fmt.Sprint(b.socket, b.methods, b.paths)))
	})
	return all
}

// tunnels makes rules for connections and names of which no request was seen.
// A rule has to allow some request for a connection to be let through, so it
// allows the one that carries least; what the agent then asks for is on record
// with its path.
//
// What one of others allows anyway is added to its claims.
func tunnels(agent string, h names.Host, seen []*Seen, others []SuggestedRule) []SuggestedRule {
	byPort := map[uint16][]Seen{}
	for _, one := range seen { // connections come before names
		if one.form == formRequest || allowedBy(others, one) {
			continue
		}
		port := one.query.Port
		if one.form == formDNS {
			if port = 443; len(byPort) > 0 {
				port = slices.Min(slices.Collect(maps.Keys(byPort))) // the name is allowed with its port
			}
		}
		byPort[port] = append(byPort[port], *one)
	}
	var rules []SuggestedRule
	for _, port := range slices.Sorted(maps.Keys(byPort)) {
		p := policy.Port{Number: port, Plain: port == 80}
		r := SuggestedRule{
			Agent: agent, Host: h.String(), Ports: []string{p.String()}, Methods: []string{"HEAD"}, Paths: []string{"/"},
			Guard: "read-only", Claims: byPort[port], Tunnel: true,
		}
		r.Raw = rawPort(port, byPort[port])
		rules = append(rules, r)
	}
	return rules
}

// rawPort is the port that a rule for TCP which is no HTTP would be for: the one that
// was seen or, of a name of which only a look-up was seen, that of ssh. 0 says that it
// was HTTPS or HTTP in all likelihood.
func rawPort(port uint16, seen []Seen) uint16 {
	switch {
	case !slices.ContainsFunc(seen, func(one Seen) bool { return one.form != formDNS }):
		return 22
	case port == 443 || port == 80:
		return 0
	}
	return port
}

// allowedBy adds one to the claims of a rule that lets its connection open, if
// there is one. A name alone is allowed with any port.
func allowedBy(rules []SuggestedRule, one *Seen) bool {
	for i := range rules {
		if one.form == formDNS || slices.ContainsFunc(rules[i].Claims, func(c Seen) bool { return c.query.Port == one.query.Port }) {
			rules[i].Claims = append(rules[i].Claims, *one)
			return true
		}
	}
	return false
}

// shapes finds paths that are the same but for one segment, of which there are
// many, and writes them as patterns. These stand for more than was seen.
func shapes(paths []string) []string {
	count := map[string]int{}
	for _, path := range paths {
		segments := strings.Split(path[1:], "/")
		for i, s := range segments {
			if s == "" {
				continue
			}
			kept := segments[i]
			segments[i] = "*"
			count["/"+strings.Join(segments, "/")]++
			segments[i] = kept
		}
	}
	var list []string
	for pattern, n := range count {
		if n >= shapeFrom {
			list = append(list, pattern)
		}
	}
	slices.Sort(list)
	return list
}
