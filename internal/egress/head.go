// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"bawn/internal/audit"
	"bawn/internal/budget"
	"bawn/internal/codes"
	"bawn/internal/guard"
	"bawn/internal/httpwire"
	"bawn/internal/ids"
	"bawn/internal/names"
	"bawn/internal/policy"
	"bawn/internal/verdict"
)

// An exchange is one request on its way, from its head to its outcome. An
// HTTP/1.1 connection has one, which is used again.
type exchange struct {
	c    *conn
	ctx  context.Context // ends with the request, or its connection
	flow *flow           // of the request, or of its connection
	leg  agentLeg
	q    httpwire.Request
	p    httpwire.Response

	host  names.Host
	port  uint16
	path  string // canonical
	query string // from the question mark on
	d     policy.Decision
	body  []byte // that was read for a guard; nil: it still comes from the agent
	clear []byte // the same as guards see it, decoded
	kept  hold   // what these two take
	start time.Time
	taken bool // nothing of the body is left on the agent's connection
	mute  bool // no HTTP answer can be given: a refusal is a reset
	grpc  bool
	call  bool     // of gRPC, over HTTP/2: a refusal has to be in its words
	ws    *opening // of a request that opens a WebSocket

	pass *budget.Pass                    // what it is counted by; nil before it is let through
	over atomic.Pointer[verdict.Verdict] // which budget it went beyond

	rec     audit.Decision
	out     audit.Outcome
	decided bool // an allowing decision is on record, an outcome is due

	interims  sync.Mutex // whoever writes an interim response, and:
	answered  bool       // the final response has begun
	continued bool       // the agent was told to send its body
}

// begin makes x ready for what comes of the head in q.
func (x *exchange) begin() {
	c := x.c
	x.start = c.s.cfg.Now()
	x.host, x.port, x.path, x.query = names.Host{}, 0, "", ""
	x.d, x.body, x.clear, x.taken, x.mute, x.ws = policy.Decision{}, nil, nil, false, false, nil
	x.decided, x.answered, x.continued, x.grpc, x.call = false, false, false, false, false
	x.pass = nil
	x.over.Store(nil)
	x.rec = audit.Decision{
		Time: x.start, Request: ids.NewRequest(), Identity: c.src.Identity, Arrival: string(c.src.Arrival),
		Client: c.client,
	}
	x.out = audit.Outcome{}
}

// run serves the request whose head has been read. It reports whether the
// connection can carry another.
func (x *exchange) run() (keep bool) {
	defer x.letGo()
	defer x.rescue(&keep)
	if v := x.judge(); !v.Allowed() {
		return x.deny(v)
	}
	if v := x.payHead(); !v.Allowed() {
		return x.deny(v)
	}
	if x.ws != nil {
		return x.openWebSocket()
	}
	up, v := x.upstream()
	if !v.Allowed() {
		return x.deny(v)
	}
	return x.forward(up)
}

// rescue turns a panic into the refusal of one request.
func (x *exchange) rescue(keep *bool) {
	p := recover()
	if p == nil {
		return
	}
	*keep = false
	x.q.Close = true
	x.c.panicked(p)
	x.deny(verdict.Refuse("head", codes.InternalError, "panic"))
}

// judge finds out what the request asks for, whether it may have it, and puts
// the answer on record if it may.
func (x *exchange) judge() verdict.Verdict {
	x.rec.Proto, x.rec.Method, x.rec.Scheme = x.leg.proto(), x.q.Method, scheme(x.c.plain)
	x.rec.ALPN = x.c.tls.ALPN
	x.rec.SNI = x.c.tls.ServerName.String()
	if v := x.destination(); !v.Allowed() {
		return v
	}
	if v := x.canonical(); !v.Allowed() {
		return v
	}
	x.grpc = isGRPC(x.q.Fields)
	x.strip()
	if isWebSocket(x.q.Upgrade) {
		x.ws = newOpening(&x.q)
		x.rec.Proto = "websocket"
	}
	return x.decide()
}

// isGRPC reports whether a request is one of gRPC, by its content type
// (application/grpc, with a suffix or parameters; the gRPC HTTP/2 protocol).
func isGRPC(fields httpwire.Fields) bool {
	kind, _ := fields.Get("content-type")
	const grpc = "application/grpc"
	return hasPrefixFold(kind, grpc) && (len(kind) == len(grpc) || kind[len(grpc)] == '+' || kind[len(grpc)] == ';')
}

// destination settles the one name and port that the request is for, and that
// its target and its Host say so.
func (x *exchange) destination() verdict.Verdict {
	c := x.c
	x.host, x.port = c.host, c.port
	v := x.targetAgrees()
	switch {
	case !v.Allowed():
		return v
	case !x.q.HasHost:
		return verdict.Refuse("name", codes.HostHeaderInvalid, "no Host field")
	case !hostAgrees(x.q.Host, x.host, x.port, c.plain):
		x.rec.Asked = x.q.Host
		if x.leg.proto() == "h2" {
			return verdict.Refuse("name", codes.AuthorityMismatch, ":authority names another host or port")
		}
		return verdict.Refuse("name", codes.HostHeaderInvalid, "Host names another host or port")
	}
	if host := canonicalHost(x.q.Host, x.host); host != x.q.Host {
		x.rec.Asked = x.q.Host
		if err := x.q.Fields.Set("Host", host); err != nil {
			return verdict.Refuse("name", codes.HostHeaderInvalid, err.Error())
		}
	}
	return allowed
}

// targetAgrees reads the name in the target, if there is one. In a tunnel it
// has to be the tunnel's; elsewhere it is what the request is for.
func (x *exchange) targetAgrees() verdict.Verdict {
	tunnel := !x.c.host.IsZero()
	if x.leg.proto() == "h2" && x.q.Scheme != scheme(x.c.plain) {
		return verdict.Refuse("name", codes.AuthorityMismatch, ":scheme is not that of the connection")
	}
	switch {
	case x.q.Method == "CONNECT":
		return verdict.Refuse("head", codes.MethodNotAllowed, "CONNECT inside a connection to one host")
	case x.q.Form == httpwire.Absolute:
	case tunnel:
		return allowed
	default:
		return verdict.Refuse("head", codes.TargetInvalid, "a request to a proxy whose target names no host")
	}
	plain := x.q.Scheme == "http"
	host, port, v := authority(x.q.Authority, schemePort(plain))
	switch {
	case tunnel && (!v.Allowed() || host != x.host || port != x.port || plain != x.c.plain):
		x.rec.Asked = x.q.Authority
		return verdict.Refuse("name", codes.AuthorityMismatch, "the target names another host, port or scheme")
	case tunnel:
		return allowed
	}
	x.host, x.port = host, port
	x.rec.Asked = differs(x.q.Authority, host.String())
	if v.Allowed() && !plain {
		return verdict.Refuse("name", codes.PlainHTTPDenied, "a request for https that came without TLS")
	}
	return v
}

// canonical brings the target into its one form.
func (x *exchange) canonical() verdict.Verdict {
	if x.q.Form == httpwire.Asterisk {
		return verdict.Refuse("head", codes.TargetInvalid, "the target * is about no path")
	}
	path, query, err := httpwire.CanonicalTarget(x.q.PathQuery)
	if err != nil {
		return badHead(err)
	}
	x.path, x.query = path, query
	x.rec.Path = path
	if query != "" {
		x.rec.Query = audit.QueryHash(query)
	}
	return allowed
}

func badHead(err error) verdict.Verdict {
	if e, ok := errors.AsType[*httpwire.Error](err); ok {
		return verdict.Refuse("head", e.Code, e.Detail)
	}
	return verdict.Refuse("head", codes.ProtocolError, err.Error())
}

// revisions is how often a request is judged anew because the policy changed
// while it was judged.
const revisions = 5

// decide judges the request by the policy in force, guards included, puts the
// decision on record, and makes sure that this policy is still in force then.
func (x *exchange) decide() verdict.Verdict {
	for range revisions {
		p, revision, v := x.c.s.cfg.Policies.Current()
		x.rec.Revision = revision
		if !v.Allowed() {
			return v
		}
		if v := x.ask(p); !v.Allowed() {
			return v
		}
		if c := &x.c.s.cfg; c.Judged != nil {
			c.Judged(c.Now().Sub(x.start))
		}
		if v, again := x.commit(revision); !again {
			return v
		}
	}
	return verdict.Refuse("journal", codes.LeaseLapsed, "the policy changed again and again")
}

// ask asks rules and guards.
func (x *exchange) ask(p *policy.Policy) verdict.Verdict {
	c := x.c
	query := policy.Query{
		Host: x.host, Port: x.port, Plain: c.plain,
		Method: x.q.Method, Path: x.path, WebSocket: x.ws != nil,
	}
	a := p.Agent(c.src.Identity.Agent)
	x.d = c.counted(x.host, a.Request(query, x.start))
	if !x.d.Verdict.Allowed() {
		return x.d.Verdict
	}
	if x.ws != nil && !x.ws.v.Allowed() {
		return x.ws.v
	}
	x.rec.Inspect = policy.InspectFull.String()
	if v := noDNS(x.q.Fields); !v.Allowed() {
		return v
	}
	if v := x.bodySoFar(); !v.Allowed() {
		return v
	}
	if len(x.d.Guards) > 0 {
		if v := x.guards(); !v.Allowed() {
			return v
		}
	}
	if v := x.spend(a); !v.Allowed() {
		return v
	}
	c.s.stage("judged")
	x.flow.stands(stand{host: x.host, port: x.port, request: true, query: query, guards: x.d.Guards, key: x.d.Credential, pass: x.pass})
	return x.d.Verdict
}

// bodySoFar judges as much of the body as came with the head. The rest is judged
// as it goes up.
func (x *exchange) bodySoFar() verdict.Verdict {
	if x.taken {
		return allowed
	}
	if err := x.leg.soFar(); err != nil {
		x.q.Close = true
		return badBody(err)
	}
	return allowed
}

// isWebSocket reports whether an Upgrade field asks for a WebSocket, among
// whatever else. Every other upgrade is left out and the request goes on
// without it.
func isWebSocket(upgrade string) bool {
	for more := upgrade != ""; more; {
		var one string
		one, upgrade, more = strings.Cut(upgrade, ",")
		name, _, _ := strings.Cut(strings.TrimSpace(one), "/")
		if strings.EqualFold(name, "websocket") {
			return true
		}
	}
	return false
}

// viewed is the request as guards see it.
func (x *exchange) viewed() *guard.Request {
	return &guard.Request{
		Arrival: x.c.arrival, Name: x.host, Port: x.port, TLS: x.c.tls,
		Method: x.q.Method, Path: x.path, Query: x.query, Header: x.q.Fields,
		HasBody: x.q.Framing.HasBody(), Body: x.clear, Revision: x.rec.Revision,
		WebSocket: x.ws != nil,
	}
}
