// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"errors"

	"bawn/internal/codes"
	"bawn/internal/guard"
	"bawn/internal/httpwire"
	"bawn/internal/names"
	"bawn/internal/policy"
	"bawn/internal/verdict"
)

// explicit serves a client that knows that it talks to a proxy: requests with
// an absolute target, one after the other, or one CONNECT that makes the
// connection a tunnel.
func (c *conn) explicit() {
	c.plain, c.arrival = true, guard.ArrivalAbsolute
	for c.next() {
		x := &c.x
		if x.q.Method != "CONNECT" {
			if !x.run() {
				return
			}
			continue
		}
		d, keep := x.connect()
		switch {
		case d.Verdict.Allowed():
			c.tunnel(d)
			return
		case !keep:
			return
		}
	}
}

// connect judges a CONNECT. If it is refused the answer has been given, and
// keep says whether the connection can carry another request.
func (x *exchange) connect() (d policy.Decision, keep bool) {
	defer x.rescue(&keep)
	c := x.c
	x.rec.Proto, x.rec.Method, x.rec.Asked = "http/1.1", "CONNECT", x.q.Authority
	if v := x.connectName(); !v.Allowed() {
		return d, x.deny(v)
	}
	x.rec.Asked = differs(x.q.Authority, x.host.String())
	d, x.rec.Revision = c.judgeName(x.host, x.port)
	if !d.Verdict.Allowed() {
		return d, x.deny(d.Verdict)
	}
	c.s.stage("judged")
	c.host, c.port, c.plain, c.arrival = x.host, x.port, d.Plain, guard.ArrivalConnect
	return d, true
}

// connectName reads the one name of a CONNECT. Its Host field says the same,
// with or without the port, or is left out by HTTP/1.0.
func (x *exchange) connectName() verdict.Verdict {
	host, port, v := authority(x.q.Authority, 0)
	x.host, x.port = host, port
	if v.Allowed() && port == 0 {
		v = verdict.Refuse("name", codes.HostInvalid, "CONNECT without a port")
	}
	if !v.Allowed() {
		return v
	}
	if x.q.HasHost && x.q.Host != x.q.Authority {
		again, otherPort, v := authority(x.q.Host, port)
		if !v.Allowed() || again != host || otherPort != port {
			return verdict.Refuse("name", codes.HostHeaderInvalid, "Host is not the target of CONNECT")
		}
	}
	return allowed
}

// judgeName asks the policy whether anything may go to a name and port.
func (c *conn) judgeName(host names.Host, port uint16) (policy.Decision, uint64) {
	p, revision, v := c.s.cfg.Policies.Current()
	if !v.Allowed() {
		return policy.Decision{Verdict: v}, revision
	}
	return c.counted(host, p.Agent(c.src.Identity.Agent).Name(host, port, c.s.cfg.Now())), revision
}

// next reads the next head. It reports false when there is none to serve: then
// whatever had to be said has been.
func (c *conn) next() bool {
	c.flow.stands(stand{host: c.host, port: c.port})
	c.flow.rests()
	c.flow.await(phaseIdle)
	if !c.stirs() {
		return false
	}
	c.flow.begins()
	c.flow.await(phaseHead)
	err := c.x.q.Read(c.r, c.s.lim.Wire)
	c.x.begin()
	if err == nil {
		return true
	}
	c.badHead(err)
	return false
}

// badHead answers a head that cannot be read, after which nothing on the
// connection can be.
func (c *conn) badHead(err error) {
	x := &c.x
	x.host, x.port = c.host, c.port
	x.q.Close = true
	if e, ok := errors.AsType[*httpwire.Error](err); ok {
		x.rec.Proto = "http/1.1"
		x.rec.Method, x.rec.Asked = x.q.Method, x.q.Target
		x.deny(verdict.Refuse("head", e.Code, e.Detail))
		c.linger()
		return
	}
	if why := c.flow.wasCut(); why != nil && why.why == "limit" {
		x.record(verdict.Refuse("head", codes.ProtocolError, why.detail))
	}
}

// differs returns what the agent wrote, where that is not the canonical form.
func differs(asked, canonical string) string {
	if asked == canonical {
		return ""
	}
	return asked
}
