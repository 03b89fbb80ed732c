// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"crypto/rand"
	"net/netip"
	"slices"
	"strings"
	"time"

	"bawn/internal/audit"
	"bawn/internal/codes"
	"bawn/internal/guard"
	"bawn/internal/httpwire"
	"bawn/internal/quota"
	"bawn/internal/verdict"
	"bawn/internal/wswire"
)

// An opening is a request that opens a WebSocket: what its client said, and
// what the server is told instead. Keys and extensions are of one connection
// only; the subprotocol is between the two.
type opening struct {
	v            verdict.Verdict // whether it can be one
	otherVersion bool

	key       string // of the agent
	protocols []string
	down      wswire.Params // with the agent
	answer    string        // to the agent's offers, empty for none

	upKey   string // of the connection to the server
	offered bool   // compression, to the server
	up      wswire.Params
}

// Fields of the opening handshake, which are written anew on either side.
const (
	fieldKey        = "Sec-WebSocket-Key"
	fieldVersion    = "Sec-WebSocket-Version"
	fieldAccept     = "Sec-WebSocket-Accept"
	fieldProtocol   = "Sec-WebSocket-Protocol"
	fieldExtensions = "Sec-WebSocket-Extensions"
)

// newOpening reads the opening handshake off q and puts into q what goes to the
// server. A malformed one becomes the verdict: first the rules are asked.
func newOpening(q *httpwire.Request) *opening {
	o := &opening{}
	o.v = o.read(q)
	q.Fields.DelFunc(func(name string) bool {
		return isField(name, "sec-websocket-key") || isField(name, "sec-websocket-version") || isField(name, "sec-websocket-accept") ||
			isField(name, "sec-websocket-protocol") || isField(name, "sec-websocket-extensions")
	})
	if !o.v.Allowed() {
		return o
	}
	var random [16]byte
	rand.Read(random[:]) // never fails
	o.upKey = wswire.NewKey(random)
	q.Fields = append(q.Fields,
		httpwire.Field{Name: "Connection", Value: "Upgrade"}, httpwire.Field{Name: "Upgrade", Value: "websocket"},
		httpwire.Field{Name: fieldVersion, Value: wswire.Version}, httpwire.Field{Name: fieldKey, Value: o.upKey})
	if len(o.protocols) > 0 {
		q.Fields = append(q.Fields, httpwire.Field{Name: fieldProtocol, Value: strings.Join(o.protocols, ", ")})
	}
	if o.offered {
		q.Fields = append(q.Fields, httpwire.Field{Name: fieldExtensions, Value: wswire.Offer})
	}
	return o
}

// read judges a client's opening handshake (RFC 6455 section 4.2.1).
func (o *opening) read(q *httpwire.Request) verdict.Verdict {
	version, _ := q.Fields.Get("sec-websocket-version")
	key, _ := q.Fields.Get("sec-websocket-key")
	_, expects := q.Fields.Get("expect")
	var ok bool
	switch {
	case q.Method != "GET":
		return verdict.Refuse("head", codes.MethodNotAllowed, "a WebSocket is opened by GET")
	case !strings.EqualFold(strings.TrimSpace(q.Upgrade), "websocket"):
		return verdict.Refuse("head", codes.UpgradeDenied, "an upgrade to a WebSocket or something else")
	case q.Framing.HasBody():
		return verdict.Refuse("head", codes.FramingInvalid, "an upgrade with a body")
	case expects:
		return verdict.Refuse("head", codes.HeaderInvalid, "an upgrade with an expectation")
	case version != wswire.Version:
		o.otherVersion = true
		return verdict.Refuse("head", codes.WebSocketProtocolError, "version "+version+" of the protocol")
	case !wswire.ValidKey(key):
		return verdict.Refuse("head", codes.WebSocketProtocolError, "the key is not 16 octets in base64")
	}
	o.key = key
	if values := q.Fields.Values("sec-websocket-protocol"); len(values) > 0 {
		if o.protocols, ok = wswire.ParseProtocols(values); !ok {
			return verdict.Refuse("head", codes.HeaderInvalid, "the list of subprotocols is malformed, or has one twice")
		}
	}
	offers, ok := wswire.ParseExtensions(q.Fields.Values("sec-websocket-extensions"))
	if !ok {
		return verdict.Refuse("head", codes.HeaderInvalid, "the list of extensions is malformed")
	}
	o.down, o.answer = wswire.Answer(offers)
	o.offered = o.down.Deflate
	return allowed
}

// accepts judges a server's 101 (RFC 6455 section 4.1). Each side has parameters
// of its own for compression, but it is not done for the agent's alone: that
// would cost both ends of the short way and spare nobody.
func (o *opening) accepts(p *httpwire.Response) (problem string) {
	accept, _ := p.Fields.Get("sec-websocket-accept")
	protocol, chosen := p.Fields.Get("sec-websocket-protocol")
	answer, ok := wswire.ParseExtensions(p.Fields.Values("sec-websocket-extensions"))
	switch {
	case !strings.EqualFold(strings.TrimSpace(p.Upgrade), "websocket"):
		return "a change to another protocol than WebSocket"
	case p.Fields.Count("sec-websocket-accept") != 1 || accept != wswire.Accept(o.upKey):
		return "Sec-WebSocket-Accept does not answer the key"
	case p.Fields.Count("sec-websocket-protocol") > 1 || chosen && !slices.Contains(o.protocols, protocol):
		return "a subprotocol that was not offered"
	case p.Close:
		return "a change of protocol with a body"
	case !ok:
		return "the list of extensions is malformed"
	}
	if o.up, ok = wswire.Agreed(answer, o.offered); !ok {
		return "an extension, or a parameter of one, that was not offered"
	}
	if !o.up.Deflate { // nor on the short way to the agent
		o.down, o.answer = wswire.Params{}, ""
	}
	return ""
}

// adapt makes of a server's 101 the one for the agent.
func (o *opening) adapt(p *httpwire.Response) {
	p.Fields.DelFunc(func(name string) bool {
		return withheld(name) || strings.EqualFold(name, fieldKey) || strings.EqualFold(name, fieldVersion) ||
			strings.EqualFold(name, fieldAccept) || strings.EqualFold(name, fieldExtensions)
	})
	p.Fields = append(p.Fields,
		httpwire.Field{Name: "Connection", Value: "Upgrade"}, httpwire.Field{Name: "Upgrade", Value: "websocket"},
		httpwire.Field{Name: fieldAccept, Value: wswire.Accept(o.key)})
	if o.answer != "" {
		p.Fields = append(p.Fields, httpwire.Field{Name: fieldExtensions, Value: o.answer})
	}
}

// openWebSocket asks the server, on a connection of its own, and carries the
// messages if it agrees. Any other answer goes to the agent like that to any
// request.
func (x *exchange) openWebSocket() (keep bool) {
	up, _, v := x.newUpstream(x.poolKey())
	if !v.Allowed() {
		return x.deny(v)
	}
	kept := false
	defer func() {
		if !kept {
			x.flow.join(nil, netip.Addr{})
		}
	}()
	if !x.flow.join(up, up.address()) {
		up.drop()
		return x.deny(x.cutVerdict("upstream", codes.PolicyDenied, ""))
	}
	if _, err := x.send(up); err != nil { // there is no body, so no upload
		up.drop()
		return x.deny(x.upstreamFault("upstream", "sending the request", err))
	}
	sent := time.Now()
	v = x.awaitUpgrade(up)
	switch {
	case !v.Allowed():
		up.drop()
		return x.deny(v)
	case x.p.Status != 101:
		x.out.TTFB = audit.Span(time.Since(sent))
		x.c.s.stage("first_byte")
		x.p.Close = true // the connection is none that waits for others
		defer x.leg.done()
		return x.respond(up, nil)
	}
	x.out.TTFB = audit.Span(time.Since(sent))
	x.c.s.stage("first_byte")
	up.release()
	kept, x.c.rest = true, func() { x.carryMessages(up) }
	return false
}

// awaitUpgrade reads the server's answer, and judges it if it is a 101. Interim
// responses mean nothing to an upgrade and go no further.
func (x *exchange) awaitUpgrade(up *h1Upstream) verdict.Verdict {
	for range maxInterim {
		err := up.readHead(&x.p, x.q.Method)
		switch {
		case err != nil:
			return x.noResponse(err, nil)
		case x.p.Status == 101:
			if problem := x.ws.accepts(&x.p); problem != "" {
				return verdict.Refuse("upstream", codes.UpstreamUnreachable, problem)
			}
			return allowed
		case !x.p.Informational():
			return allowed
		case x.p.Close:
			return verdict.Refuse("upstream", codes.UpstreamUnreachable, "an interim response with a body")
		}
	}
	return verdict.Refuse("upstream", codes.UpstreamUnreachable, "interim responses without an end")
}

// carryMessages answers the agent and runs the WebSocket until it ends.
func (x *exchange) carryMessages(up *h1Upstream) {
	keep := false
	defer x.rescue(&keep)
	defer x.flow.join(nil, netip.Addr{})
	c := x.c
	x.answered, x.q.Close = true, true
	w := newWebSocket(x, up)
	defer w.release()
	if !x.flow.takeOver(w) {
		x.deny(x.cutVerdict("upstream", codes.PolicyDenied, ""))
		return
	}
	x.ws.adapt(&x.p)
	x.out.Status = x.p.Status
	head := httpwire.AppendResponse(nil, &x.p)
	if v := x.pass.Take(quota.IngressBytes, int64(len(head)), c.s.cfg.Now); !v.Allowed() {
		x.flow.cut(cut{code: v.Why(), why: cutBudget, detail: v.Detail})
		reset(c.raw)
	} else if n, err := c.cl.Write(head); err == nil {
		x.out.BytesDown += int64(n)
		w.run()
	}
	w.settle()
	x.finish()
	w.farewell()
}

// messageView is the request of a WebSocket as guards see it with each message.
func (x *exchange) messageView() *guard.Request {
	view := x.viewed()
	view.Header = slices.Clone(view.Header)
	return view
}
