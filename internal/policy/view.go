// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"bawn/internal/names"
	"bawn/internal/quota"
)

// A Rule is one rule of an agent as it is enforced, for whoever compares
// policies or writes about them. Only [Agent] decides by rules. Lists are not to
// be changed; one that is nil stands for everything, an empty one for nothing.
type Rule struct {
	ID     string
	Line   int    // of the policy file; 0 for a grant
	Origin string // "profile NAME", "agent NAME" or "grant"
	Deny   bool

	Host      names.Pattern
	Ports     []Port
	Methods   []string
	Paths     []Path
	Expires   time.Time // zero: never
	Inspect   Inspect
	WebSocket bool

	Addresses  []netip.Prefix
	Guard      string
	Credential string
	Budgets    []quota.Budget
	Sensitive  bool
	Reason     string
	AcceptRisk string
	GivenID    bool // somebody wrote the id
}

// Rules lists the rules of the agent: those of its profile, its own, and its
// grants, each in the order in which they stand.
func (a *Agent) Rules() []Rule {
	if a == nil {
		return nil
	}
	list := make([]Rule, len(a.rules))
	for i, ru := range a.rules {
		list[i] = ru.view()
		list[i].Origin = a.origin(ru)
	}
	return list
}

func (ru *rule) view() Rule {
	v := Rule{
		ID: ru.id, Line: ru.line, Deny: ru.deny, Host: ru.host, Ports: ru.ports, Methods: ru.methods,
		Expires: ru.expires, Inspect: ru.inspect, WebSocket: ru.websocket, Addresses: ru.addresses,
		Guard: ru.guard, Credential: ru.credential, Sensitive: ru.sensitive, Budgets: ru.budgets,
		Reason: ru.reason, AcceptRisk: ru.acceptRisk, GivenID: ru.given,
	}
	if ru.paths != nil {
		v.Paths = make([]Path, len(ru.paths))
		for i, g := range ru.paths {
			v.Paths[i] = Path{g}
		}
	}
	return v
}

// Profile is the profile that the agent has, empty for none.
func (a *Agent) Profile() string {
	if a == nil {
		return ""
	}
	return a.profile
}

// Profiles lists the profiles of the policy, in the order of the file.
func (p *Policy) Profiles() []string {
	if p == nil {
		return nil
	}
	return p.doc.Profiles()
}

// A Path is one pattern of a rule's paths.
type Path struct{ g glob }

// ParsePath reads a pattern as a rule's paths hold it.
func ParsePath(s string) (Path, error) {
	if !strings.HasPrefix(s, "/") {
		return Path{}, errNoSlash
	}
	g, err := parseGlob(s)
	return Path{g}, err
}

// String gives the pattern as written.
func (p Path) String() string { return p.g.text }

// Segments are what stands between the slashes; "*" is any one segment that is
// not empty. With rest at least one more follows, which may be empty.
func (p Path) Segments() (list []string, rest bool) { return slices.Clone(p.g.segments), p.g.rest }

// Match reports whether p stands for the canonical path.
func (p Path) Match(path string) bool { return p.g.match(path) }

// Covers reports whether p stands for every path that other stands for; false
// where it cannot say.
func (p Path) Covers(other Path) bool { return p.g.covers(&other.g) }

// RuleKeys lists the keys that a rule may have.
func RuleKeys() []string { return keyNames(ruleKeys()) }
