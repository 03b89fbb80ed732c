// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"bawn/internal/audit"
	"bawn/internal/codes"
	"bawn/internal/parent"
	"bawn/internal/verdict"
)

// vettedByParent stands on record where the parent proxy chose the address.
const vettedByParent = "parent"

// throughParent reports whether the host is reached through the parent proxy.
func (x *exchange) throughParent() bool {
	p := x.c.s.cfg.Parent
	return p != nil && !x.host.IsZero() && p.Takes(x.host)
}

// vetted is the address that was vetted before a connection to it: none, where
// to is the parent's and only the parent knows what is behind it.
func (x *exchange) vetted(to netip.AddrPort) netip.Addr {
	if x.throughParent() {
		return netip.Addr{}
	}
	return to.Addr()
}

// askParent has the parent connect to the host. A rule that names addresses says
// where the host has to be, which nobody here could see.
func (x *exchange) askParent() (net.Conn, netip.AddrPort, verdict.Verdict) {
	if len(x.d.Addresses) > 0 {
		return nil, netip.AddrPort{}, verdict.Refuse("resolve", codes.AddressNotPublic,
			"the rule names addresses, and a parent proxy chooses them itself: put the host under bypass of parent_proxy")
	}
	ctx, cancel := context.WithTimeout(x.ctx, x.c.s.lim.Resolve+x.c.s.lim.Dial)
	defer cancel()
	began := time.Now()
	conn, via, err := x.c.s.cfg.Parent.Connect(ctx, x.host, x.port)
	x.out.Dial = audit.Span(time.Since(began))
	if err == nil {
		x.c.s.stage("dialled")
		return conn, via, allowed
	}
	if via.IsValid() {
		x.out.Upstream = via.String()
	}
	code := codes.ParentProxyUnreachable
	if e, ok := errors.AsType[*parent.Error](err); ok {
		code = e.Code
	}
	return nil, via, x.cutVerdict("dial", code, err.Error())
}
