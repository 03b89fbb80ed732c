// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"net/netip"
	"slices"

	"bawn/internal/guard"
	"bawn/internal/names"
	"bawn/internal/quota"
)

// Known is what a policy is compiled against. The zero Known knows no agent, so
// that a policy which names one is refused.
type Known struct {
	Agents   map[string]bool   // the registered agents
	Profiles map[string]string // the profile that an agent was registered with, where it has one
	AnyAgent bool              // take every agent for registered: for case files, which have no registry
	Owned    []Owned           // hosts that presets own
	Grants   []Grant           // rules that agents have for a time

	Credentials map[string]Credential // that rules may name
	// AnyCredential takes every credential that is named: whoever hands it out
	// knows better. For planes, since a credential that has gone refuses the
	// requests that need it, and not the policy.
	AnyCredential bool
}

// An Owned is the hosts of a preset. No custom rule may allow them, since the
// preset's guard would not see what such a rule lets through.
type Owned struct {
	Preset string
	Hosts  []names.Pattern
}

// A Policy is a compiled policy. It never changes, and any number of goroutines
// may use it. The nil Policy denies everything.
type Policy struct {
	doc      *Document
	agents   map[string]*Agent
	warnings Problems
}

// An Agent is the part of a policy that is about one agent. The nil Agent
// denies everything.
type Agent struct {
	name     string
	profile  string  // "" for none
	shared   *set    // the rules of the profile
	own      *set    // the rules of the agent
	granted  *set    // its grants
	rules    []*rule // of the profile, then its own, then its grants
	budgets  []quota.Budget
	ownCount int

	grantCount int
}

// Compile checks that the agents of d exist and that this build can enforce
// every line of it, and makes it ready for decisions. The error is [Problems].
func Compile(d *Document, known Known) (*Policy, error) {
	p, problems := compile(d, known)
	if err := problems.err(); err != nil {
		return nil, err
	}
	return p, nil
}

// Load is [Parse] and [Compile] in one step, which reports the problems of both
// together.
func Load(src []byte, known Known) (*Policy, error) {
	d, problems := read(src)
	p, more := compile(d, known)
	if err := append(problems, more...).err(); err != nil {
		return nil, err
	}
	return p, nil
}

func compile(d *Document, known Known) (*Policy, Problems) {
	var problems Problems
	unsupported(d, &problems)
	owned(d, known.Owned, &problems)
	credentials(d, known, &problems)
	registered(d, known, &problems)

	p := &Policy{doc: d, agents: map[string]*Agent{}}
	sets := map[string]*set{}
	for _, b := range d.profiles {
		s := newSet(b.rules)
		sets[b.name] = s
		onePort(b.rules, s, &problems)
		oneCredential(b.rules, s, &problems)
		shadowed(b.rules, s, &p.warnings)
	}
	for _, b := range d.agents {
		a := &Agent{name: b.name, profile: b.profile, own: newSet(b.rules)}
		if a.profile == "" {
			a.profile = known.Profiles[b.name]
		}
		a.take(d, sets, b)
		p.agents[b.name] = a
		if len(b.rules) > 0 {
			all := newSet(a.rules)
			onePort(b.rules, all, &problems)
			oneCredential(b.rules, all, &problems)
			shadowed(b.rules, all, &p.warnings)
		}
	}
	for name := range known.Agents {
		if p.agents[name] == nil && known.Agents[name] && known.Profiles[name] != "" {
			a := &Agent{name: name, profile: known.Profiles[name]}
			a.take(d, sets, &body{})
			p.agents[name] = a
		}
	}
	d.each(func(_ *body, ru *rule) { chained(ru) })
	emptyRules(d, &p.warnings)
	deafWebSockets(d, &p.warnings)
	speechlessTCP(d, &p.warnings)
	p.missing(known)
	p.grants(known, &problems)
	return p, problems
}

// chained gives ru the guard that it names.
func chained(ru *rule) {
	if step, ok := guard.Named(ru.guard); ok {
		ru.chain = guard.Chain{step}
	}
}

// take gives a the rules and budgets of its profile and its own.
func (a *Agent) take(d *Document, sets map[string]*set, own *body) {
	a.budgets = quota.Tightest(own.budgets)
	if b := find(d.profiles, a.profile); b != nil {
		a.shared = sets[a.profile]
		a.rules = append(a.rules, b.rules...)
		a.budgets = quota.Tightest(b.budgets, own.budgets)
	}
	a.rules = append(a.rules, own.rules...)
	a.ownCount = len(own.rules)
}

// unsupported refuses what is in the format and not in this build. To ignore a
// line would be to allow what it forbids, or to forget what it demands.
func unsupported(d *Document, problems *Problems) {
	d.each(func(_ *body, ru *rule) {
		for _, k := range []struct {
			name string
			used bool
			what string
		}{
			{"cidr", ru.cidr.IsValid(), "address rules are "},
			{"preset", ru.preset != "", "presets are "},
			{"account", ru.account != "", "account pins are "},
			{"allow_fields", ru.fields != nil, "allow_fields is "},
			{"ask", ru.ask, "ask: true is "},
			{"guard", ru.guard != "" && !built(ru.guard), "guard " + ru.guard + " is "},
		} {
			if k.used {
				problems.add(ru.at(k.name), ru.id+" "+k.name, "remove the rule or the key", "%s%s", k.what, notYetEnforced)
			}
		}
	})
}

// built reports whether this build has a guard of that name.
func built(name string) bool {
	_, ok := guard.Named(name)
	return ok
}

// owned refuses allowing rules on hosts that belong to a preset.
func owned(d *Document, list []Owned, problems *Problems) {
	d.each(func(_ *body, ru *rule) {
		if ru.deny || ru.host.IsZero() {
			return
		}
		for _, o := range list {
			for _, h := range o.Hosts {
				if h.Covers(ru.host) || ru.host.Covers(h) {
					problems.add(ru.at("host"), ru.id+" host", "write preset: "+o.Preset+" instead",
						"%s belongs to the preset %s (%s)", show(ru.spelled), o.Preset, h)
					return
				}
			}
		}
	})
}

// registered refuses agents that do not exist, and profiles that do not.
func registered(d *Document, known Known, problems *Problems) {
	for _, b := range d.agents {
		if !known.AnyAgent && !known.Agents[b.name] {
			hint := "register it: bawn agent create " + b.name + " --user USER"
			if near := didYouMean(b.name, slices.Sorted(maps.Keys(known.Agents))); len(near) > 0 && near[0] == 'd' {
				hint = near
			}
			problems.add(b.line, "agents "+b.name, hint, "no agent of this name is registered")
		}
		if b.profile != "" && find(d.profiles, b.profile) == nil {
			problems.add(b.lines["profile"], "agents "+b.name+" profile", didYouMean(b.profile, d.Profiles()), "no profile %q in this policy", b.profile)
		}
	}
}

// onePort refuses a port that is TLS in one rule and plain HTTP in another for
// one name: which of the two a connection is would be a guess.
func onePort(list []*rule, all *set, problems *Problems) {
	for _, ru := range list {
		if ru.deny || ru.host.IsZero() {
			continue
		}
		all.around(ru.host, func(other *rule) bool {
			if other == ru || other.deny || !other.host.Covers(ru.host) {
				return true
			}
			for _, p := range ru.ports {
				if other.ports != nil && other.hasPort(Port{p.Number, !p.Plain}) {
					problems.add(ru.at("ports"), ru.id+" ports", "give one of them another port or another host",
						"port %d is %s here and %s in rule %s (line %d)", p.Number, transport(p.Plain), transport(!p.Plain), other.id, other.line)
					return false
				}
			}
			return true
		})
	}
}

func transport(plain bool) string {
	if plain {
		return "HTTP without TLS"
	}
	return "TLS"
}

// missing warns of agents whose profile is not in the policy.
func (p *Policy) missing(known Known) {
	for _, name := range slices.Sorted(maps.Keys(p.agents)) {
		a := p.agents[name]
		if a.profile != "" && a.profile == known.Profiles[name] && find(p.doc.profiles, a.profile) == nil {
			p.warnings.add(0, "agent "+name, "add the profile to the policy", "is registered with profile %q, which this policy does not have: it may do nothing", a.profile)
		}
	}
}

// Agent returns what the policy says of an agent, or nil, which denies
// everything, when it says nothing.
func (p *Policy) Agent(name string) *Agent {
	if p == nil {
		return nil
	}
	return p.agents[name]
}

// Agents lists the agents that the policy lets do anything, sorted.
func (p *Policy) Agents() []string {
	if p == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(p.agents))
}

// Private lists the ranges that rules name under addresses, sorted and each
// once: where the proxy may have to dial besides public addresses.
func (p *Policy) Private() []netip.Prefix {
	if p == nil {
		return nil
	}
	var list []netip.Prefix
	for _, a := range p.agents {
		for _, ru := range a.rules {
			list = append(list, ru.addresses...)
		}
	}
	slices.SortFunc(list, netip.Prefix.Compare)
	return slices.Compact(list)
}

// An Addressed is a rule that says where its host has to be.
type Addressed struct {
	Rule string
	Line int
	Host names.Pattern
}

// Addressed lists the allowing rules that name addresses, in the order of the
// file.
func (p *Policy) Addressed() []Addressed {
	var list []Addressed
	if p == nil {
		return nil
	}
	p.doc.each(func(_ *body, ru *rule) {
		if len(ru.addresses) > 0 {
			list = append(list, Addressed{ru.id, ru.at("addresses"), ru.host})
		}
	})
	return list
}
