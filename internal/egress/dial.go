// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"bawn/internal/addr"
	"bawn/internal/audit"
	"bawn/internal/codes"
	"bawn/internal/policy"
	"bawn/internal/verdict"
)

// vet is what decides about the addresses of a name under a decision.
func (s *Server) vet(d policy.Decision) addr.Vet {
	v := s.cfg.Vet()
	v.Allowed = d.Addresses
	return v
}

// upstream returns a connection for the request: one that waits for this lease,
// rule, name and port, or a new one.
func (x *exchange) upstream() (upstreamLeg, verdict.Verdict) {
	c := x.c
	key := x.poolKey()
	if up := c.t.pool.get(key, x.rec.Revision, c.s.vet(x.d)); up != nil {
		x.out.Reused = true
		x.out.Upstream = up.name
		return up, allowed
	}
	return x.newUpstream(key)
}

func (x *exchange) poolKey() poolKey {
	return poolKey{rule: x.d.Verdict.Rule, credential: x.d.Credential, host: x.host, port: x.port, plain: x.c.plain}
}

// newUpstream makes a new connection.
func (x *exchange) newUpstream(key poolKey) (*h1Upstream, verdict.Verdict) {
	c := x.c
	cert, v := x.release()
	if !v.Allowed() {
		return nil, v
	}
	raw, to, v := x.reach()
	if !v.Allowed() {
		return nil, v
	}
	x.out.Upstream = to.String()
	up := &h1Upstream{s: c.s, pool: &c.t.pool, key: key, conn: raw, sock: socketOf(raw), addr: x.vetted(to), name: x.out.Upstream, revision: x.rec.Revision}
	if !c.plain {
		secure, v := x.secure(raw, cert)
		if !v.Allowed() {
			raw.Close()
			return nil, v
		}
		up.conn = secure
	}
	up.r = bufio.NewReader(up.conn)
	return up, allowed
}

// reach resolves the name, vets every address and connects to one of them; or it
// has the parent do so. The address is then the parent's.
func (x *exchange) reach() (net.Conn, netip.AddrPort, verdict.Verdict) {
	x.flow.await(phaseUpstream)
	if x.throughParent() {
		return x.askParent()
	}
	addrs, v := x.resolve()
	if !v.Allowed() {
		return nil, netip.AddrPort{}, v
	}
	x.c.s.stage("resolved")
	began := time.Now()
	raw, to, v := x.dial(addrs)
	x.out.Dial = audit.Span(time.Since(began))
	if v.Allowed() {
		x.c.s.stage("dialled")
	}
	return raw, to, v
}

// resolve returns the addresses of the name. One that may not be dialled
// refuses the name: whoever mixes them in is not to be trusted with the others.
func (x *exchange) resolve() ([]netip.Addr, verdict.Verdict) {
	ctx, cancel := context.WithTimeout(x.ctx, x.c.s.lim.Resolve)
	defer cancel()
	began := time.Now()
	addrs, err := x.c.s.cfg.Resolver.Lookup(ctx, x.host)
	x.out.DNS = audit.Span(time.Since(began))
	switch {
	case err != nil:
		return nil, x.cutVerdict("resolve", codes.AddressUnresolved, err.Error())
	case len(addrs) == 0:
		return nil, verdict.Refuse("resolve", codes.AddressUnresolved, "no address")
	}
	vet := x.c.s.vet(x.d)
	for _, a := range addrs {
		if detail, ok := vet.Check(a); !ok {
			return nil, verdict.Refuse("resolve", codes.AddressNotPublic, a.String()+": "+detail)
		}
	}
	return addrs, allowed
}

// dial connects to one of the vetted addresses, in their order. Each gets its
// share of the time that is left.
func (x *exchange) dial(addrs []netip.Addr) (net.Conn, netip.AddrPort, verdict.Verdict) {
	var failed []error
	until := time.Now().Add(x.c.s.lim.Dial)
	for i, a := range addrs {
		to := netip.AddrPortFrom(a, x.port)
		share := time.Until(until) / time.Duration(len(addrs)-i)
		raw, err := x.dialOne(to, share)
		if err == nil {
			return raw, to, allowed
		}
		failed = append(failed, err)
		if x.ctx.Err() != nil {
			break
		}
	}
	return nil, netip.AddrPort{}, x.cutVerdict("dial", codes.UpstreamUnreachable, errors.Join(failed...).Error())
}

var errOtherAddress = errors.New("the socket was about to connect to an address that was not vetted")

func (x *exchange) dialOne(to netip.AddrPort, limit time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(x.ctx, limit)
	defer cancel()
	return x.c.s.cfg.Dialer.Dial(ctx, to, func(real netip.AddrPort) error {
		if real != to {
			return fmt.Errorf("%w: %s", errOtherAddress, real)
		}
		if detail, ok := x.c.s.vet(x.d).Check(real.Addr()); !ok {
			return fmt.Errorf("%w: %s, %s", errOtherAddress, real, detail)
		}
		return nil
	})
}

// A NetDialer dials on the host's network.
type NetDialer struct{}

// Dial connects to an address. check is asked with the address that the kernel
// is about to be given.
func (NetDialer) Dial(ctx context.Context, to netip.AddrPort, check func(netip.AddrPort) error) (net.Conn, error) {
	d := net.Dialer{Control: func(_, address string, _ syscall.RawConn) error {
		real, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("reading the address %q: %w", address, err)
		}
		return check(real)
	}}
	return d.DialContext(ctx, "tcp", to.String())
}
