// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"net/netip"

	"bawn/internal/codes"
	"bawn/internal/guard"
	"bawn/internal/names"
	"bawn/internal/netplan"
	"bawn/internal/policy"
	"bawn/internal/verdict"
)

// transparent serves a redirected connection. The address that it went to
// stands for a name of this agent, or for nothing: an address is never dialled.
func (c *conn) transparent() {
	c.arrival = guard.ArrivalTransparent
	d, revision, to := c.redirected()
	if !d.Verdict.Allowed() {
		c.x.begin()
		c.x.rec.Proto, c.x.rec.Revision, c.x.rec.Asked = "tcp", revision, to.String()
		c.x.host, c.x.port = c.host, to.Port()
		c.x.record(d.Verdict)
		reset(c.raw)
		return
	}
	c.s.stage("judged")
	c.plain = d.Plain
	c.tunnel(d)
}

// redirected finds the name and port of the connection and judges them.
func (c *conn) redirected() (policy.Decision, uint64, netip.AddrPort) {
	to, err := c.s.cfg.OriginalDst(c.raw)
	if err != nil {
		return denied("accept", codes.InternalError, err.Error()), 0, to
	}
	a := to.Addr().Unmap()
	host, known := names.Host{}, false
	if c.s.cfg.Names != nil {
		host, known = c.s.cfg.Names.Name(c.src.Identity.Agent, a)
	}
	switch {
	case known:
		c.host, c.port = host, to.Port()
		d, revision := c.judgeName(host, to.Port())
		return d, revision, to
	case netplan.Synthetic.Contains(a):
		return denied("name", codes.SyntheticUnknown, "no name of this agent has this address"), 0, to
	}
	p, revision, v := c.s.cfg.Policies.Current()
	if !v.Allowed() {
		return policy.Decision{Verdict: v}, revision, to
	}
	d := p.Agent(c.src.Identity.Agent).Address(a, to.Port(), c.s.cfg.Now())
	if d.Verdict.Allowed() {
		d = denied("name", codes.IPLiteralDenied, "connections to addresses are not served")
	}
	return d, revision, to
}

func denied(stage string, code codes.Code, detail string) policy.Decision {
	return policy.Decision{Verdict: verdict.Refuse(stage, code, detail)}
}
