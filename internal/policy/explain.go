// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"bawn/internal/codes"
	"bawn/internal/httpwire"
	"bawn/internal/names"
	"bawn/internal/quota"
)

// A Trace is what one rule says of a query.
type Trace struct {
	Rule    string `json:"rule"`
	Line    int    `json:"line"`    // of the policy file; 0 for a grant
	Origin  string `json:"origin"`  // "profile NAME", "agent NAME", or whose grant it is
	Subject string `json:"subject"` // what the rule is about, in short
	Effect  string `json:"effect"`  // allow or deny
	Matched bool   `json:"matched"`
	Why     string `json:"why"` // why it matched or not
}

// An Explanation is the decision on a query, and what every rule of the agent
// says of it.
type Explanation struct {
	Agent   string     `json:"agent"`
	Query   string     `json:"query"`
	Verdict string     `json:"verdict"` // allow or deny
	Code    codes.Code `json:"code,omitempty"`
	Rule    string     `json:"rule,omitempty"` // the one that decided
	Stage   string     `json:"stage"`
	Detail  string     `json:"detail,omitempty"`
	Inspect string     `json:"inspect,omitempty"` // of an allowed connection
	// Credential is the name of what would be shown or sent to the server.
	Credential string `json:"credential,omitempty"`

	Decision Decision `json:"-"`
	others   int      // rules that were left out
	Rules    []Trace  `json:"rules"`
	Budgets  []Bound  `json:"budgets,omitempty"` // that the request, or the agent, would be counted against
}

// A Bound is a budget that counts for what is explained.
type Bound struct {
	Budget string `json:"budget"` // as in "requests 600/min"
	Origin string `json:"origin"` // "profile NAME", "agent NAME" or "rule ID"
	Line   int    `json:"line"`
}

// Explain decides on a request with the code that enforces, and says for each
// rule of the agent why it matches or not. With an empty Method only name and
// port are decided on, as for a tunnel.
func (a *Agent) Explain(q Query, now time.Time) Explanation {
	e := Explanation{Query: q.String(), Rules: []Trace{}}
	if q.Method == "" {
		e.Decision = a.Name(q.Host, q.Port, now)
	} else if e.Decision = a.Name(q.Host, q.Port, now); e.Decision.Verdict.Allowed() {
		e.Decision = a.Request(q, now)
	}
	v := e.Decision.Verdict
	e.Verdict, e.Code, e.Rule, e.Stage, e.Detail = v.Effect.String(), v.Code, v.Rule, v.Stage, v.Detail
	if v.Allowed() {
		e.Inspect, e.Credential = e.Decision.Inspect.String(), e.Decision.Credential
		if q.Method == "" && e.Decision.Inspect == InspectNone {
			e.Query = fmt.Sprintf("tcp://%s:%d", q.Host, q.Port)
		}
	}
	if a == nil {
		return e
	}
	e.Agent = a.name
	for _, ru := range a.rules {
		e.Rules = append(e.Rules, a.trace(ru, q, now))
	}
	for _, list := range [][]quota.Budget{a.budgets, e.Decision.Budgets} {
		for _, b := range list {
			e.Budgets = append(e.Budgets, Bound{b.String(), b.Origin, b.Line})
		}
	}
	return e
}

// Explain reads what an operator asks about as [ParseQuery] does, and explains
// it for an agent. An error says that the question is none, never a refusal.
func (p *Policy) Explain(agent, method, target string, now time.Time) (Explanation, error) {
	q, err := ParseQuery(method, target)
	if err != nil {
		return Explanation{}, err
	}
	e := p.Agent(agent).Explain(q, now)
	e.Agent = agent
	return e, nil
}

// trace says what one rule makes of the query.
func (a *Agent) trace(ru *rule, q Query, now time.Time) Trace {
	tr := Trace{Rule: ru.id, Line: ru.line, Origin: a.origin(ru), Subject: ru.subjectText(), Effect: "allow"}
	if ru.grant != nil {
		tr.Origin = ru.grant.said()
	}
	if ru.deny {
		tr.Effect = "deny"
	}
	if !ru.host.Match(q.Host) {
		tr.Why = elsewhere
		if ru.host.Wildcard() && ru.host.Host() == q.Host {
			tr.Why = "another host: " + ru.host.String() + " is every name in front of " + q.Host.String() + ", and not " + q.Host.String() + " itself"
		}
		return tr
	}
	t := tally{now: now, request: q.Method != "", query: q}
	failed, _ := t.match(ru)
	switch {
	case failed != atNothing:
		tr.Why = failed.words(q)
	case ru.grant != nil && ru.grant.Ended:
		tr.Why = "the grant has ended"
	case !ru.expires.IsZero() && !now.Before(ru.expires):
		tr.Why = "expired at " + ru.expires.UTC().Format(time.RFC3339)
	case ru.deny && !t.request && !ru.whole():
		tr.Why = "denies only some methods or paths; the request decides"
	default:
		tr.Matched, tr.Why = true, "matches"
		if ru.host.Wildcard() {
			tr.Why = "matches, as every name in front of " + ru.host.Host().String() + " does"
		}
		if ru.host.String() == "*" {
			tr.Why = "matches, as every name does"
		}
	}
	return tr
}

// origin says where a rule of the agent stands.
func (a *Agent) origin(ru *rule) string {
	shared := len(a.rules) - a.ownCount - a.grantCount
	switch {
	case ru.grant != nil:
		return "grant"
	case slices.Contains(a.rules[shared:], ru):
		return "agent " + a.name
	}
	return "profile " + a.profile
}

// words says what a rule failed at.
func (h hurdle) words(q Query) string {
	switch h {
	case atPort:
		return fmt.Sprintf("not on port %d", q.Port)
	case atPlain:
		return fmt.Sprintf("the port is %s in the rule, and the request is %s", transport(!q.Plain), transport(q.Plain))
	case atWebSocket:
		return "no WebSocket"
	case atMethod:
		return "not for method " + show(q.Method)
	case atPath:
		return "not for path " + show(q.Path)
	default:
		return "another host"
	}
}

// subjectText says in short what the rule is about.
func (ru *rule) subjectText() string {
	var b strings.Builder
	b.WriteString(ru.host.String())
	if ru.ports != nil {
		list := make([]string, len(ru.ports))
		for i, p := range ru.ports {
			list[i] = p.String()
		}
		b.WriteString(" ports [" + strings.Join(list, ", ") + "]")
	}
	if ru.methods != nil {
		b.WriteString(" methods [" + strings.Join(ru.methods, ", ") + "]")
	}
	if ru.paths != nil {
		list := make([]string, len(ru.paths))
		for i := range ru.paths {
			list[i] = ru.paths[i].text
		}
		b.WriteString(" paths [" + strings.Join(list, ", ") + "]")
	}
	if ru.credential != "" {
		b.WriteString(" credential " + ru.credential)
	}
	if ru.websocket {
		b.WriteString(" websocket")
	}
	return b.String()
}

// String gives the query as a URL with its method.
func (q Query) String() string {
	scheme := map[bool]string{false: "https", true: "http"}[q.Plain]
	if q.WebSocket {
		scheme = map[bool]string{false: "wss", true: "ws"}[q.Plain]
	}
	s := fmt.Sprintf("%s://%s:%d%s", scheme, q.Host, q.Port, q.Path)
	if q.Method != "" {
		return q.Method + " " + s
	}
	return s
}

var errTarget = errors.New("wants https://HOST[:PORT]/PATH (or http, wss, ws) or HOST[:PORT]")

// ParseQuery reads what an operator asks about: a URL with a method, or
// HOST[:PORT] for name and port alone, where method is ignored. A WebSocket,
// wss or ws, is a GET. The name goes
// through the one canonicaliser and the path through that of requests, so that
// the answer is the one that a request would get.
func ParseQuery(method, target string) (Query, error) {
	scheme, rest, isURL := strings.Cut(target, "://")
	if !isURL {
		scheme, rest = "", target
	}
	authority, path := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	q := Query{Port: 443}
	switch {
	case scheme == "https" || !isURL && path == "":
	case scheme == "http":
		q.Plain, q.Port = true, 80
	case scheme == "wss":
		q.WebSocket = true
	case scheme == "ws":
		q.WebSocket, q.Plain, q.Port = true, true, 80
	default:
		return Query{}, fmt.Errorf("reading %s: %w", show(target), errTarget)
	}
	a, err := names.ParseAuthority(authority)
	if err != nil {
		return Query{}, fmt.Errorf("reading %s: %w", show(target), err)
	}
	if a.IsIP() {
		return Query{}, fmt.Errorf("reading %s: an address; rules are about names", show(target))
	}
	q.Host, q.Port = a.Host, a.PortOr(q.Port)
	if !isURL {
		return q, nil
	}
	if path == "" || path[0] == '?' {
		path = "/" + path
	}
	if q.Path, _, err = httpwire.CanonicalTarget(path); err != nil {
		return Query{}, fmt.Errorf("reading %s: %w", show(target), err)
	}
	q.Method = method
	if method == "" {
		q.Method = "GET"
	}
	if q.WebSocket && q.Method != "GET" {
		return Query{}, fmt.Errorf("reading %s: a WebSocket is opened by GET, not by %s", show(target), show(method))
	}
	return q, nil
}

// elsewhere is why a rule says nothing of a name that it is not about.
const elsewhere = "another host"

// About is the explanation without the rules that are not about the name, which are
// only counted. A rule that looks as if it were about it stays.
func (e Explanation) About() Explanation {
	all := len(e.Rules)
	e.Rules = slices.DeleteFunc(slices.Clone(e.Rules), func(t Trace) bool { return t.Why == elsewhere })
	e.others += all - len(e.Rules)
	return e
}

// String gives the explanation as text for a person, one rule a line. It quotes
// parts of the query and of the policy: whoever shows it on a terminal filters it.
func (e Explanation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", e.Query, e.Verdict)
	if e.Code != "" {
		b.WriteString(" " + string(e.Code))
	}
	if e.Rule != "" {
		b.WriteString(" by rule " + e.Rule)
	}
	if e.Detail != "" {
		b.WriteString(" (" + e.Detail + ")")
	}
	if e.Inspect != "" {
		b.WriteString(", inspect " + e.Inspect)
	}
	if e.Credential != "" {
		b.WriteString(", credential " + e.Credential)
	}
	b.WriteString("\n")
	if len(e.Rules)+e.others == 0 {
		b.WriteString("  the agent has no rules\n")
	}
	for _, r := range e.Rules {
		mark := " "
		if r.Matched {
			mark = "*"
		}
		where := r.Origin
		if r.Line > 0 {
			where += fmt.Sprintf(", line %d", r.Line)
		}
		fmt.Fprintf(&b, "%s %-5s %s (%s) %s: %s\n", mark, r.Effect, r.Rule, where, r.Subject, r.Why)
	}
	if e.others > 0 {
		fmt.Fprintf(&b, "  rules for other hosts: %d (-v shows them)\n", e.others)
	}
	for _, x := range e.Budgets {
		fmt.Fprintf(&b, "  budget %s (%s, line %d)\n", x.Budget, x.Origin, x.Line)
	}
	return b.String()
}
