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
	"bawn/internal/h2conn"
	"bawn/internal/policy"
	"bawn/internal/verdict"
)

// vet is what decides about the addresses of a name under a decision.
func (s *Server) vet(d policy.Decision) addr.Vet {
	v := s.cfg.Vet()
	v.Allowed = d.Addresses
	return v
}

// upstream returns a leg for the request: on a connection of this lease, rule,
// name and port, or on a new one.
func (x *exchange) upstream() (upstreamLeg, verdict.Verdict) {
	key, p := x.poolKey(), &x.c.t.pool
	if leg := x.pooled(key); leg != nil {
		return leg, allowed
	}
	if x.leg.proto() == "h2" {
		// The streams of a connection often come all at once; the first one
		// opens the connection that carries the others too.
		began := time.Now()
		if !p.await(x.ctx, key) {
			defer p.arrived(key)
		} else {
			x.out.Queue = audit.Span(time.Since(began))
			if leg := x.pooled(key); leg != nil {
				return leg, allowed
			}
		}
	}
	up, agreed, v := x.newUpstream(key)
	switch {
	case !v.Allowed():
		return nil, v
	case agreed == "h2":
		return x.multiplexed(up)
	case x.grpc:
		up.drop()
		return nil, verdict.Refuse("dial", codes.ALPNDenied, "gRPC needs HTTP/2, which the server does not speak")
	}
	return up, allowed
}

func (x *exchange) poolKey() poolKey {
	key := poolKey{rule: x.d.Verdict.Rule, credential: x.d.Credential, host: x.host, port: x.port, plain: x.c.plain}
	for _, p := range x.d.Addresses {
		key.addresses += p.String() + " "
	}
	return key
}

// pooled returns a leg on a connection that is open; nil if none will do. gRPC
// has no place on HTTP/1.1.
func (x *exchange) pooled(key poolKey) upstreamLeg {
	p, vet := &x.c.t.pool, x.c.s.vet(x.d)
	if r := p.share(x, key, vet); r != nil {
		x.reuses(r.up.name, r.up.local, r.up.cert)
		return r
	}
	if x.grpc {
		return nil
	}
	if up := p.get(key, x.rec.Revision, vet); up != nil {
		x.reuses(up.name, up.local, up.cert)
		return up
	}
	return nil
}

// reuses says on record which connection the request shares.
func (x *exchange) reuses(upstream, local, cert string) {
	x.out.Reused, x.out.Upstream, x.out.Local, x.out.Certificate = true, upstream, local, cert
}

// newUpstream makes a new connection, and says what it was agreed to speak: h2,
// or else HTTP/1.1.
func (x *exchange) newUpstream(key poolKey) (up *h1Upstream, agreed string, v verdict.Verdict) {
	c := x.c
	cert, v := x.release()
	if !v.Allowed() {
		return nil, "", v
	}
	raw, to, v := x.reach()
	if !v.Allowed() {
		return nil, "", v
	}
	up = &h1Upstream{
		s: c.s, pool: &c.t.pool, key: key, conn: raw, sock: socketOf(raw),
		addr: x.vetted(to), name: x.out.Upstream, local: x.out.Local, revision: x.rec.Revision,
	}
	if !c.plain {
		secure, v := x.secure(raw, cert)
		if !v.Allowed() {
			raw.Close()
			return nil, "", v
		}
		up.conn, up.cert, agreed = secure, x.out.Certificate, secure.ALPN
	}
	up.r = bufio.NewReader(up.conn)
	return up, agreed, allowed
}

// multiplexed makes a new connection one that requests share.
func (x *exchange) multiplexed(up *h1Upstream) (upstreamLeg, verdict.Verdict) {
	client, err := h2conn.NewClient(up.conn, x.c.h2Limits())
	if err != nil {
		up.close()
		return nil, x.cutVerdict("dial", codes.UpstreamUnreachable, "HTTP/2: "+err.Error())
	}
	shared := &h2Upstream{
		pool: up.pool, key: up.key, client: client, sock: up.sock, addr: up.addr, name: up.name,
		local: up.local, cert: up.cert, revision: up.revision,
	}
	up.pool.add(shared)
	r := shared.open(x)
	if r == nil {
		up.pool.free(shared)
		shared.close()
		<-client.Done() // it says why
		return nil, x.upstreamFault("dial", "HTTP/2: the server lets no request through", client.Err())
	}
	return r, allowed
}

// protocols are what a new connection may speak. Each leg has its own; the
// server decides, and hears first what the agent speaks. A WebSocket needs
// HTTP/1.1.
func (x *exchange) protocols() []string {
	switch {
	case x.ws != nil:
		return []string{"http/1.1"}
	case x.leg.proto() == "h2":
		return []string{"h2", "http/1.1"}
	}
	return []string{"http/1.1", "h2"}
}

// reach resolves the name, vets every address and connects to one of them; or it
// has the parent do so. The address is then the parent's.
func (x *exchange) reach() (net.Conn, netip.AddrPort, verdict.Verdict) {
	x.flow.await(phaseUpstream)
	raw, to, v := x.connectUp()
	if v.Allowed() {
		x.stands(raw, to)
	}
	return raw, to, v
}

// stands puts on record that an upstream connection stands.
func (x *exchange) stands(raw net.Conn, to netip.AddrPort) {
	x.out.Upstream, x.out.Local = to.String(), raw.LocalAddr().String()
	err := x.c.s.cfg.Recorder.Dial(&audit.Dial{
		Request: x.rec.Request, Identity: x.rec.Identity, Plane: x.rec.Plane, Local: x.out.Local, Upstream: x.out.Upstream,
	})
	if err != nil {
		x.c.s.cfg.Log.Debug("an upstream connection cannot be put on record", "agent", x.rec.Agent, "request", x.rec.Request, "error", err)
	}
}

func (x *exchange) connectUp() (net.Conn, netip.AddrPort, verdict.Verdict) {
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
