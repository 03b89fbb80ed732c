// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package hindsight

import (
	"strings"
	"time"

	"bawn/internal/audit"
	"bawn/internal/codes"
	"bawn/internal/dnswire"
	"bawn/internal/httpwire"
	"bawn/internal/names"
	"bawn/internal/policy"
	"bawn/internal/verdict"
)

// A form is what a record is about.
type form uint8

const (
	formRequest form = iota
	formTunnel       // a connection to a name and port
	formDNS          // a name alone
)

// asked is what somebody asked for, as far as rules look at it.
type asked struct {
	form  form
	query policy.Query // of a tunnel without method, of a name without port
	dns   string       // the type of a query
}

// Why a record cannot be put to a policy again.
const (
	whyCut      = "the record was cut: a name or path was too long for it"
	whyMessage  = "a message on a WebSocket: only guards judge it"
	whyProtocol = "refused before any rule was asked, for its form"
	whySummary  = "a denial beyond the record budget, of which only the number is on record"
	whyDamage   = "the line of the journal is damaged"
	whyGone     = "the agent is not registered any more"
	whyState    = "refused for something other than rules, which may be otherwise by now"
	whyType     = "refused for its DNS type, whatever the name"
	whyAddress  = "refused for the address that its name resolved to, which is not on record"
)

// read takes a record for the question that it was, or says why it cannot be.
func read(e *audit.Entry) (asked, string) {
	d := e.Decision
	switch {
	case d.Clipped:
		return asked{}, whyCut
	case d.Message > 0:
		return asked{}, whyMessage
	}
	host, err := names.Parse(d.Host)
	if err != nil || host.String() != d.Host {
		return asked{}, whyProtocol
	}
	q := policy.Query{Host: host, Port: d.Port}
	switch {
	case d.Proto == "dns":
		return asked{form: formDNS, query: q, dns: d.Method}, ""
	case d.Port == 0:
		return asked{}, whyProtocol
	case d.Method == "CONNECT", d.Proto == "tls", d.Proto == "tcp":
		if d.Verdict != verdict.Allow && d.Stage == "tls" {
			return asked{}, whyProtocol
		}
		return asked{form: formTunnel, query: q}, ""
	case d.Method == "":
		return asked{}, whyProtocol
	}
	if path, query, err := httpwire.CanonicalTarget(d.Path); err != nil || query != "" || path != d.Path {
		return asked{}, whyProtocol
	}
	q.Method, q.Path, q.Plain, q.WebSocket = d.Method, d.Path, d.Scheme == "http", opensWebSocket(e)
	return asked{query: q}, ""
}

// opensWebSocket reports whether the request opened a WebSocket or was to.
func opensWebSocket(e *audit.Entry) bool {
	o := e.Outcome
	return e.Decision.Proto == "websocket" || e.Decision.Code == codes.WebSocketNotAllowed || e.Decision.Code == codes.WebSocketUninspectable ||
		o != nil && (o.Status == 101 || o.Close != 0)
}

// String says what was asked for.
func (a asked) String() string {
	switch a.form {
	case formDNS:
		return "dns " + a.dns + " " + a.query.Host.String()
	case formTunnel:
		return "connection to " + strings.TrimPrefix(a.query.String(), "https://")
	}
	return a.query.String()
}

// answers reports whether a DNS query of this type is answered at all, where its
// name is allowed.
func (a asked) answers() bool {
	for _, t := range []dnswire.Type{dnswire.TypeA, dnswire.TypeAAAA, dnswire.TypeHTTPS, dnswire.TypeSVCB} {
		if a.dns == t.String() {
			return true
		}
	}
	return false
}

// judge puts the question to a policy as the proxy and the resolver do: the name
// first, then the request, unless the connection passes unread.
func (a asked) judge(p *policy.Agent, now time.Time) policy.Decision {
	switch a.form {
	case formDNS:
		return p.Host(a.query.Host, now)
	case formTunnel:
		return p.Name(a.query.Host, a.query.Port, now)
	}
	name := p.Name(a.query.Host, a.query.Port, now)
	if !name.Verdict.Allowed() || name.Inspect != policy.InspectFull && !a.query.Plain {
		return name
	}
	d := p.Request(a.query, now)
	d.Inspect = policy.InspectFull // of the connection, as strict as it has to be
	return d
}

// matterOfRules reports whether a refusal was one that rules decide. One that a
// guard decided has the stage of a guard.
func matterOfRules(d *audit.Decision) bool {
	if d.Stage == "guard" || d.Stage == "body" || d.Stage == "message" {
		return false
	}
	switch d.Code {
	case codes.HostNotAllowed, codes.PortNotAllowed, codes.PlainHTTPDenied, codes.MethodNotAllowed, codes.PathNotAllowed,
		codes.WebSocketNotAllowed, codes.PolicyDenied, codes.RuleExpired, codes.CredentialAmbiguous,
		codes.DNSNameNotAllowed, codes.PolicyUnavailable, codes.PolicyInvalid:
		return true
	}
	return false
}
