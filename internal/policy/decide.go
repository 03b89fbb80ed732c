// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"slices"
	"time"

	"bawn/internal/codes"
	"bawn/internal/guard"
	"bawn/internal/names"
	"bawn/internal/quota"
	"bawn/internal/verdict"
)

// A Decision is what the policy says of a name or a request. The zero Decision
// denies.
type Decision struct {
	Verdict   verdict.Verdict
	Inspect   Inspect        // how far the connection has to be looked into: the strictest of all rules that match
	Plain     bool           // the port speaks HTTP without TLS
	Addresses []netip.Prefix // special-purpose ranges that the name may resolve to. Not to be changed
	Guards    guard.Chain    // what judges the request further. Not to be changed
	Sensitive bool           // the record is to be marked
	Budgets   []quota.Budget // of the rules that allow it. Not to be changed
	Under     names.Pattern  // the narrowest wildcard that allows the name; zero where a rule that allows it names it exactly

	Credential string // of the request: what is shown or sent to the server; empty: none
}

// A Query is a request as far as rules look at it.
type Query struct {
	Host      names.Host
	Port      uint16
	Plain     bool   // it came, and would be sent on, without TLS
	Method    string // exactly as sent
	Path      string // canonical, without the query
	WebSocket bool   // it asks for an upgrade
}

// Host decides whether anything may go to the name, on whatever port: the
// question of a resolver, which hears of no port.
func (a *Agent) Host(h names.Host, now time.Time) Decision {
	if a == nil || h.IsZero() {
		return a.Name(h, 443, now)
	}
	best := Decision{Verdict: verdict.Refuse("name", codes.HostNotAllowed, "no rule is about the name")}
	for _, ru := range slices.Concat(a.shared.about(h), a.own.about(h), a.granted.about(h)) {
		for _, p := range ru.ports {
			d := a.Name(h, p.Number, now)
			switch {
			case d.Verdict.Allowed() && d.Under.IsZero():
				return d
			case d.Verdict.Allowed() && !best.Verdict.Allowed(), best.Verdict.Code == codes.HostNotAllowed:
				best = d
			}
		}
	}
	return best
}

// Name decides whether anything may go to the name and port. Methods and paths
// are judged later; a rule that can match none counts for nothing here.
func (a *Agent) Name(h names.Host, port uint16, now time.Time) Decision {
	return a.decide(tally{now: now, query: Query{Port: port}}, h)
}

// Request decides on the head of a request. It asks everything again that
// [Agent.Name] asked, so that a request is judged in one piece.
func (a *Agent) Request(q Query, now time.Time) Decision {
	return a.decide(tally{now: now, request: true, query: q}, q.Host)
}

// Address decides on a connection to an address that the agent named. This
// build has no rules for addresses, so the answer is no.
func (a *Agent) Address(netip.Addr, uint16, time.Time) Decision {
	return Decision{Verdict: verdict.Refuse("name", codes.IPLiteralDenied, "addresses are not allowed, only names")}
}

func (a *Agent) decide(t tally, h names.Host) Decision {
	if a != nil && !h.IsZero() {
		t.query.Host = h
		a.shared.scan(h.String(), &t)
		a.own.scan(h.String(), &t)
		a.granted.scan(h.String(), &t)
	}
	return t.decision()
}

// A hurdle is what a rule failed to match at. The greatest that any rule
// reached gives the code of the denial: it is the one to fix.
type hurdle uint8

const (
	atHost hurdle = iota
	atPort
	atPlain
	atWebSocket
	atMethod
	atPath
	atNothing // matches
)

func (h hurdle) code() codes.Code {
	switch h {
	case atPort:
		return codes.PortNotAllowed
	case atPlain:
		return codes.PlainHTTPDenied
	case atWebSocket:
		return codes.WebSocketNotAllowed
	case atMethod:
		return codes.MethodNotAllowed
	case atPath:
		return codes.PathNotAllowed
	default:
		return codes.HostNotAllowed
	}
}

// A tally sums up what the rules say of one query.
type tally struct {
	now     time.Time
	request bool // the whole head is known, not only name and port
	query   Query

	allowed *rule  // the first that allows
	denied  *rule  // the first that denies
	expired *rule  // the first that would have allowed
	nearest *rule  // the one that came nearest to allowing
	missed  hurdle // what nearest failed at

	d       Decision
	exact   bool // some allowing rule names the host itself
	encoded bool // some allowing rule speaks TLS on the port
	partly  bool // a deny rule has to see requests
	another bool // two rules have different credentials
}

// see takes a rule about the host into account.
func (t *tally) see(ru *rule) {
	past := !ru.expires.IsZero() && !t.now.Before(ru.expires)
	failed, port := t.match(ru)
	if ru.deny {
		switch {
		case past:
		case failed == atNothing && (t.request || ru.whole()):
			t.denied = first(t.denied, ru)
		case failed == atNothing:
			t.partly = true
		}
		return
	}
	switch {
	case failed == atNothing && past:
		t.expired = first(t.expired, ru)
	case failed == atNothing:
		t.allow(ru, port)
	case !past && (t.nearest == nil || failed > t.missed || failed == t.missed && ru.line < t.nearest.line):
		t.nearest, t.missed = ru, failed
	}
}

// allow adds an allowing rule that matches.
func (t *tally) allow(ru *rule, port Port) {
	if t.allowed == nil {
		t.d.Inspect = ru.inspect
	}
	t.d.Inspect = min(t.d.Inspect, ru.inspect)
	t.allowed = first(t.allowed, ru)
	switch {
	case !ru.host.Wildcard():
		t.exact = true
	case t.d.Under.IsZero() || t.d.Under.Covers(ru.host):
		t.d.Under = ru.host
	}
	t.encoded = t.encoded || !port.Plain
	t.d.Sensitive = t.d.Sensitive || ru.sensitive
	switch {
	case len(ru.addresses) == 0:
	case t.d.Addresses == nil:
		t.d.Addresses = ru.addresses
	default:
		t.d.Addresses = append(t.d.Addresses[:len(t.d.Addresses):len(t.d.Addresses)], ru.addresses...)
	}
	switch {
	case len(ru.budgets) == 0:
	case t.d.Budgets == nil:
		t.d.Budgets = ru.budgets
	default:
		t.d.Budgets = append(t.d.Budgets[:len(t.d.Budgets):len(t.d.Budgets)], ru.budgets...)
	}
	if t.request {
		t.d.Guards = t.d.Guards.With(ru.chain)
		t.credential(ru)
	}
}

// credential adds that of an allowing rule. Whatever uses it is sensitive.
func (t *tally) credential(ru *rule) {
	if ru.credential == "" {
		return
	}
	t.another = t.another || t.d.Credential != "" && t.d.Credential != ru.credential
	t.d.Credential, t.d.Sensitive = ru.credential, true
}

// match says at which hurdle ru fails, and the entry of ports that matched.
func (t *tally) match(ru *rule) (hurdle, Port) {
	var port Port
	if ru.ports != nil {
		var ok bool
		if port, ok = ru.port(t.query.Port); !ok {
			return atPort, port
		}
	}
	if !t.request {
		return ru.closed(), port
	}
	q := &t.query
	if !ru.deny && port.Plain != q.Plain {
		return atPlain, port
	}
	if q.WebSocket && !ru.websocket && !ru.deny {
		return atWebSocket, port
	}
	if ru.methods != nil && !contains(ru.methods, q.Method) || q.Method == "CONNECT" && !ru.deny {
		return atMethod, port
	}
	if ru.paths != nil && !ru.hasPath(q.Path) {
		return atPath, port
	}
	return atNothing, port
}

// closed says at which empty list no request can get past.
func (ru *rule) closed() hurdle {
	switch {
	case ru.methods != nil && len(ru.methods) == 0:
		return atMethod
	case ru.paths != nil && len(ru.paths) == 0:
		return atPath
	}
	return atNothing
}

func (ru *rule) port(number uint16) (Port, bool) {
	for _, p := range ru.ports {
		if p.Number == number {
			return p, true
		}
	}
	return Port{}, false
}

func (ru *rule) hasPath(path string) bool {
	for i := range ru.paths {
		if ru.paths[i].match(path) {
			return true
		}
	}
	return false
}

// decision is the sum: any deny wins, and what nothing allows is denied.
func (t *tally) decision() Decision {
	at := "name"
	if t.request {
		at = "head"
	}
	switch {
	case t.denied != nil:
		return t.refuse(at, codes.PolicyDenied, t.denied, "a deny rule matches")
	case t.allowed != nil && t.another:
		return t.refuse(at, codes.CredentialAmbiguous, t.allowed, "rules with different credentials allow it")
	case t.allowed != nil:
		d := t.d
		d.Verdict = verdict.Verdict{Effect: verdict.Allow, Rule: t.allowed.id, Stage: at}
		d.Plain = !t.encoded
		if t.exact {
			d.Under = names.Pattern{}
		}
		if t.partly || d.Plain {
			d.Inspect = InspectFull
		}
		return d
	case t.expired != nil:
		return t.refuse(at, codes.RuleExpired, t.expired, "the rule that would have allowed it has expired")
	case t.nearest != nil:
		d := t.refuse(at, t.missed.code(), nil, "no rule allows it; the nearest is "+t.nearest.id)
		return d
	default:
		return t.refuse(at, codes.HostNotAllowed, nil, "no rule is about the name")
	}
}

func (t *tally) refuse(at string, code codes.Code, ru *rule, detail string) Decision {
	v := verdict.Refuse(at, code, detail)
	if ru != nil {
		v.Rule = ru.id
	}
	return Decision{Verdict: v}
}

// first returns the rule that stands first in the file.
func first(a, b *rule) *rule {
	if a == nil || b.line < a.line {
		return b
	}
	return a
}
