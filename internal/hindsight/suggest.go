// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package hindsight

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"bawn/internal/audit"
	"bawn/internal/codes"
	"bawn/internal/labels"
	"bawn/internal/names"
	"bawn/internal/policy"
	"bawn/internal/verdict"
)

// A Wish is what suggestions are made for.
type Wish struct {
	Agent string // only of this one; empty: of all
	Since time.Time
	Now   time.Time
	// With compiles the policy in force with further rules for one agent, as
	// strictly as one that is applied.
	With func(extra []policy.Grant) (*policy.Policy, error)
	// Agents are those that are registered.
	Agents map[string]bool
}

// A Seen is one thing that was denied, however often.
type Seen struct {
	query policy.Query
	form  form

	Asked string    `json:"asked"`
	Code  string    `json:"code"`
	Count uint64    `json:"count"`
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

// A SuggestedRule allows exactly what it was made for.
type SuggestedRule struct {
	Agent     string   `json:"agent"`
	Domain    string   `json:"domain"` // registrable
	Host      string   `json:"host"`
	Ports     []string `json:"ports"`
	Methods   []string `json:"methods"`
	Paths     []string `json:"paths"`
	WebSocket bool     `json:"websocket,omitempty"`
	Guard     string   `json:"guard,omitempty"`

	// Offered says that the rule is only shown: somebody has to look at its name
	// first.
	Offered bool     `json:"offered"`
	Marks   []string `json:"marks,omitempty"`  // what to know of the name
	Wider   []string `json:"wider,omitempty"`  // patterns that stand for many of the paths, and for more than was seen
	Claims  []Seen   `json:"claims"`           // what it allows
	Tunnel  bool     `json:"tunnel,omitempty"` // only the name was seen: the request that it allows was not
	Raw     uint16   `json:"raw,omitempty"`    // the port of a rule with inspect: none instead, if this is no HTTP; 0: none
}

// Apart is denials for which no rule is suggested.
type Apart struct {
	Agent  string    `json:"agent"`
	Code   string    `json:"code"`
	Why    string    `json:"why"` // what an operator can do
	Count  uint64    `json:"count"`
	Last   time.Time `json:"last"`
	Sample string    `json:"sample,omitempty"`
}

// Suggestions are rules that would allow what was denied, and what is left.
type Suggestions struct {
	Since   time.Time       `json:"since"`
	At      time.Time       `json:"at"`
	Rules   []SuggestedRule `json:"rules"`
	Apart   []Apart         `json:"apart"`
	Settled uint64          `json:"settled"`          // denials of what the policy in force allows by now
	Note    string          `json:"note,omitempty"`   // in which way the record is not whole; set by the caller
	Beyond  uint64          `json:"beyond,omitempty"` // denials that were not looked at, since there are so many
}

const (
	maxSeen     = 1000      // distinct things that are looked at, of each agent: it chose them
	maxText     = 256 << 10 // bytes of what they are called: a policy may have four times that
	maxPaths    = 100       // of one rule
	maxRules    = 60        // about one host of one agent
	madeUpNames = 10        // denied names under one domain that are too many to be anybody's list
	shapeFrom   = 5         // paths of one shape that are offered as a pattern
)

// Suggest looks at what was denied. An error ends it.
func Suggest(ctx context.Context, w Wish, entries iter.Seq2[audit.Entry, error]) (Suggestions, error) {
	s := &suggester{w: w, seen: map[string]map[string]*Seen{}, text: map[string]int{}, reached: map[names.Host]bool{}, apart: map[string]*Apart{}}
	s.out.Since, s.out.At = w.Since, w.Now
	for e, err := range entries {
		if err != nil {
			return s.out, fmt.Errorf("reading the record: %w", err)
		}
		if ctx.Err() != nil {
			return s.out, ctx.Err()
		}
		s.entry(&e)
	}
	for _, agent := range slices.Sorted(maps.Keys(s.seen)) {
		if err := s.suggest(ctx, agent, slices.Collect(maps.Values(s.seen[agent]))); err != nil {
			return s.out, err
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.apart)) {
		s.out.Apart = append(s.out.Apart, *s.apart[key])
	}
	return s.out, nil
}

type suggester struct {
	w       Wish
	out     Suggestions
	seen    map[string]map[string]*Seen // by agent and what was asked
	text    map[string]int              // bytes of the keys, by agent
	reached map[names.Host]bool         // by anybody
	apart   map[string]*Apart
}

func (s *suggester) entry(e *audit.Entry) {
	if sum := e.Summary; sum != nil && s.wanted(sum.Agent) {
		s.aside(sum.Agent, string(codes.AuditQuota), "", sum.To, sum.Denials)
	}
	d := e.Decision
	if d == nil || e.Late {
		return
	}
	a, why := read(e)
	if d.Verdict == verdict.Allow {
		if why == "" && a.form != formDNS && (e.Outcome == nil || e.Outcome.Upstream != "") {
			s.reached[a.query.Host] = true
		}
		return
	}
	switch {
	case !s.wanted(d.Agent):
	case why != "" || !s.suggestable(d, a):
		sample := ""
		if why == "" {
			sample = clipped(a.String())
		}
		s.aside(d.Agent, string(d.Code), sample, d.Time, 1)
	default:
		s.note(d, a)
	}
}

func (s *suggester) wanted(agent string) bool {
	return s.w.Agents[agent] && (s.w.Agent == "" || s.w.Agent == agent)
}

// suggestable reports whether a further rule could have allowed it: nothing
// denied it but that none did.
func (s *suggester) suggestable(d *audit.Decision, a asked) bool {
	switch d.Code {
	case codes.HostNotAllowed, codes.PortNotAllowed, codes.MethodNotAllowed, codes.PathNotAllowed,
		codes.WebSocketNotAllowed, codes.RuleExpired:
		return matterOfRules(d) && (a.form != formDNS || a.answers())
	case codes.DNSNameNotAllowed:
		return a.answers()
	}
	return false
}

// aside counts a denial for which no rule is suggested, with what the catalogue
// says that an operator can do.
func (s *suggester) aside(agent, code, sample string, at time.Time, n uint64) {
	entry, _ := codes.Lookup(codes.Code(code))
	s.asideWhy(agent, code, entry.OperatorFor(agent), sample, at, n)
}

func (s *suggester) asideWhy(agent, code, why, sample string, at time.Time, n uint64) {
	key := fmt.Sprintf("%q", []string{agent, code, why})
	have := s.apart[key]
	if have == nil {
		if len(s.apart) >= maxRows {
			s.out.Beyond += n
			return
		}
		have = &Apart{Agent: agent, Code: code, Why: why, Sample: sample}
		s.apart[key] = have
	}
	have.Count += n
	if at.After(have.Last) {
		have.Last = at
	}
}

func (s *suggester) note(d *audit.Decision, a asked) {
	of := s.seen[d.Agent]
	if of == nil {
		of = map[string]*Seen{}
		s.seen[d.Agent] = of
	}
	key := a.String()
	if a.form == formDNS {
		key = "dns " + a.query.Host.String() // whatever the type: the name is what counts
	}
	have := of[key]
	if have == nil {
		if len(of) >= maxSeen || s.text[d.Agent]+len(key) > maxText {
			s.out.Beyond++
			return
		}
		s.text[d.Agent] += len(key)
		have = &Seen{query: a.query, form: a.form, Asked: a.String(), Code: string(d.Code), First: d.Time}
		of[key] = have
	}
	have.Count++
	if d.Time.After(have.Last) {
		have.Last = d.Time
	}
}

// suggest makes the rules of one agent.
func (s *suggester) suggest(ctx context.Context, agent string, seen []*Seen) error {
	now, err := s.w.With(nil)
	if err != nil {
		return fmt.Errorf("compiling the policy in force: %w", err)
	}
	var open []*Seen
	for _, one := range seen {
		got := asked{form: one.form, query: one.query}.judge(now.Agent(agent), s.w.Now)
		switch {
		case got.Verdict.Allowed():
			s.out.Settled += one.Count
		case got.Verdict.Why() == codes.PolicyDenied:
			s.aside(agent, string(codes.PolicyDenied), one.Asked, one.Last, one.Count)
		default:
			open = append(open, one)
		}
	}
	byHost := map[names.Host][]*Seen{}
	domains := map[names.Host]map[names.Host]bool{}
	for _, one := range open {
		h, domain := one.query.Host, names.Registrable(one.query.Host)
		byHost[h] = append(byHost[h], one)
		if domains[domain] == nil {
			domains[domain] = map[names.Host]bool{}
		}
		domains[domain][h] = true
	}
	var all [][]SuggestedRule
	for _, h := range slices.SortedFunc(maps.Keys(byHost), func(a, b names.Host) int {
		return cmp.Or(strings.Compare(names.Registrable(a).String(), names.Registrable(b).String()), strings.Compare(a.String(), b.String()))
	}) {
		rules := s.host(agent, h, byHost[h], now)
		for i := range rules {
			s.mark(&rules[i], h, len(domains[names.Registrable(h)]))
		}
		all = append(all, rules)
	}
	return s.keep(ctx, agent, all)
}

// mark says what to know of a name. One that the agent seems to have chosen is
// only offered: to ask for it may be all that it is for.
func (s *suggester) mark(r *SuggestedRule, h names.Host, siblings int) {
	domain := names.Registrable(h)
	r.Domain = domain.String()
	front := labels.Choice{Domain: domain, Labels: strings.TrimSuffix(strings.TrimSuffix(h.String(), domain.String()), ".")}
	if front.Encoded() {
		r.Offered = true
		r.Marks = append(r.Marks, "the name looks like encoded data: the agent may have chosen it")
	}
	if siblings >= madeUpNames {
		r.Offered = true
		r.Marks = append(r.Marks, fmt.Sprintf("%d names under %s were denied: the agent may have chosen them", siblings, domain))
	}
	if !s.reached[h] {
		r.Marks = append(r.Marks, "never resolved: nobody here has reached the name in this time, so that it may not even exist")
	}
}

// keep takes the rules that policy takes, and of these what they then really
// allow. Mostly that is all of them; where it is not, each host is tried alone,
// since rules about different names cannot be in each other's way.
func (s *suggester) keep(ctx context.Context, agent string, byHost [][]SuggestedRule) error {
	all := slices.Concat(byHost...)
	if p, err := s.w.With(granted(agent, s.w.Now, all)); err == nil {
		for _, r := range all {
			s.take(p.Agent(agent), r)
		}
		return nil
	}
	for _, rules := range byHost {
		var fine []SuggestedRule
		for _, r := range rules {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			p, err := s.w.With(granted(agent, s.w.Now, append(slices.Clone(fine), r)))
			if err != nil {
				why := firstLine(err.Error())
				for _, c := range r.Claims {
					s.asideWhy(agent, c.Code, why, c.Asked, c.Last, c.Count)
				}
				continue
			}
			fine = append(fine, r)
			s.take(p.Agent(agent), r)
		}
	}
	return nil
}

// granted makes grants of rules, to try them.
func granted(agent string, now time.Time, rules []SuggestedRule) []policy.Grant {
	list := make([]policy.Grant, len(rules))
	for i, r := range rules {
		list[i] = policy.Grant{ID: tried, Agent: agent, Rule: r.YAML(), Until: now.Add(time.Hour)}
	}
	return list
}

// tried is what a rule is called while it is tried.
const tried = policy.GrantPrefix + "new"

// take keeps a rule with the claims that it meets.
func (s *suggester) take(a *policy.Agent, r SuggestedRule) {
	r.Claims = slices.DeleteFunc(r.Claims, func(c Seen) bool {
		got := asked{form: c.form, query: c.query}.judge(a, s.w.Now)
		if got.Verdict.Allowed() {
			return false
		}
		s.aside(r.Agent, string(got.Verdict.Why()), c.Asked, c.Last, c.Count)
		return true
	})
	if len(r.Claims) > 0 {
		s.out.Rules = append(s.out.Rules, r)
	}
}

// firstLine is the first problem of an error, without what the rule was called
// while it was tried.
func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return "no rule can be suggested: " + strings.ReplaceAll(line, tried+" ", "")
}
