// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"bawn/internal/codes"
	"bawn/internal/guard"
	"bawn/internal/ids"
	"bawn/internal/names"
	"bawn/internal/netplan"
	"bawn/internal/verdict"
)

// A Source says whose connections a listener accepts, and how they come. It is
// what the kernel says, never what an agent sends.
type Source struct {
	Identity ids.Identity
	Arrival  netplan.Arrival
	// CheckPeer, where set, reports why a connection is not the agent's. The
	// uid placement sets it, since others can reach its listener.
	CheckPeer func(net.Conn) error
}

// Serve accepts on ln until ctx is done, then closes ln and every connection,
// waits for their end and returns nil. An error means that ln is of no use.
func (s *Server) Serve(ctx context.Context, ln net.Listener, src Source) error {
	t := s.enterTenant(src.Identity)
	defer s.leaveTenant(t)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	var open sync.WaitGroup
	err := acceptAll(ctx, ln, func(raw net.Conn) {
		open.Go(func() { s.serveConn(ctx, raw, src, t) })
	})
	ln.Close()
	cancel()
	open.Wait()
	if err != nil {
		return fmt.Errorf("accepting for %s on %s: %w", src.Identity.Agent, ln.Addr(), err)
	}
	return nil
}

// acceptAll hands each connection to take. What keeps a process from accepting
// for a while, such as too many open files, is waited out.
func acceptAll(ctx context.Context, ln net.Listener, take func(net.Conn)) error {
	for pause := time.Millisecond; ; {
		raw, err := ln.Accept()
		switch {
		case err == nil:
			pause = time.Millisecond
			take(raw)
			continue
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
			pause = min(2*pause, time.Second)
		}
	}
}

// A counter counts up to a bound.
type counter struct{ n atomic.Int64 }

func (c *counter) enter(limit int) bool {
	if c.n.Add(1) <= int64(limit) {
		return true
	}
	c.n.Add(-1)
	return false
}

func (c *counter) leave() { c.n.Add(-1) }

// A conn is one accepted connection.
type conn struct {
	s    *Server
	t    *tenant
	src  Source
	ctx  context.Context // ends with the connection
	flow *flow

	raw net.Conn      // as accepted
	cl  net.Conn      // where requests come from: raw, or the TLS on it
	r   *bufio.Reader // of cl; nil while a connection with TLS waits for a request

	client string // the agent's end, for the record

	first firstOctet // of a request, where it came while r was nil

	// What the connection is for from now on, once it is known: served at the
	// bottom of the goroutine's stack, which then stays as small as can be
	// however long that waits.
	rest func()

	// The one name and port that this connection is for. Host is zero on an
	// explicit connection without a tunnel, where each request names its own.
	host    names.Host
	port    uint16
	plain   bool // without TLS
	arrival guard.Arrival
	tls     guard.TLSInfo

	// Of HTTP/1.1, where one request follows the other.
	x  exchange
	h1 h1Agent

	// Of HTTP/2.
	mu      sync.Mutex
	streams int // that are served
}

func (s *Server) serveConn(ctx context.Context, raw net.Conn, src Source, t *tenant) {
	defer raw.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := s.newConn(ctx, raw, src, t, cancel)
	defer func() { c.cl.Close() }() // TLS says farewell
	defer c.rescue()
	defer s.live.remove(c.flow)
	defer context.AfterFunc(ctx, func() { c.flow.cut(endOf(ctx)) })()
	s.stage("accepted")
	if !c.admitted() {
		return
	}
	defer t.conns.leave()
	defer t.open.Leave()
	c.arrive()
	for c.rest != nil {
		rest := c.rest
		c.rest = nil
		rest()
	}
}

// ErrSessionEnded is the cause with which the context of [Server.Serve] ends when
// the session has: what is under way then, nobody waits for.
var ErrSessionEnded = errors.New("the session has ended")

// The ways in which everything of a listener ends.
const (
	cutSession  = "session"
	cutShutdown = "shutdown"
)

// endOf says why ctx is done.
func endOf(ctx context.Context) cut {
	if errors.Is(context.Cause(ctx), ErrSessionEnded) {
		return cut{why: cutSession, detail: "the session ended"}
	}
	return cut{why: cutShutdown, detail: "the proxy ends"}
}

// admitted reports whether the connection may be served, and counts it then.
func (c *conn) admitted() bool {
	if c.src.CheckPeer != nil {
		if err := c.src.CheckPeer(c.raw); err != nil {
			c.refuse(verdict.Refuse("accept", codes.PolicyDenied, "not the agent's connection: "+err.Error()), "tcp")
			return false
		}
	}
	if !c.t.conns.enter(c.s.lim.Connections) {
		c.tooMany(verdict.Refuse("accept", codes.ConcurrencyExceeded, ""), 0)
		return false
	}
	if v, revision := c.welcome(); !v.Allowed() {
		c.t.conns.leave()
		c.tooMany(v, revision)
		return false
	}
	return true
}

func (c *conn) arrive() {
	c.takeReader(c.cl)
	switch c.src.Arrival {
	case netplan.Explicit:
		c.explicit()
	case netplan.Transparent:
		c.transparent()
	default:
		c.refuse(verdict.Refuse("accept", codes.InternalError, "a listener without an arrival"), "tcp")
	}
}

// newConn makes a connection that stands in live; cancel ends its context.
func (s *Server) newConn(ctx context.Context, raw net.Conn, src Source, t *tenant, cancel context.CancelFunc) *conn {
	c := &conn{s: s, t: t, src: src, ctx: ctx, raw: raw, cl: raw, client: raw.RemoteAddr().String()}
	sock := socketOf(raw)
	c.flow = s.live.add(src.Identity.Agent, &sock, cancel)
	c.h1.c = c
	c.x.c, c.x.ctx, c.x.flow, c.x.leg = c, ctx, c.flow, &c.h1
	c.x.kept.of = &t.held
	return c
}

// rescue ends one connection after a panic that no request caught.
func (c *conn) rescue() {
	if p := recover(); p != nil {
		c.panicked(p)
		c.refuse(verdict.Refuse("accept", codes.InternalError, "panic"), "tcp")
	}
}

func (c *conn) panicked(p any) {
	c.s.cfg.Log.Error("panic while serving an agent", "agent", c.src.Identity.Agent, "slot", c.src.Identity.Slot,
		"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
}

// answering is how many connections or streams beyond its bound an agent is
// answered on at a time.
const answering = 32

// tooMany refuses a connection beyond a bound of the agent's. A client of the
// explicit proxy is told so in HTTP, before it has asked; others, and those
// beyond that bound as well, see a reset.
func (c *conn) tooMany(v verdict.Verdict, revision uint64) {
	if c.src.Arrival != netplan.Explicit || !c.t.refused.enter(answering) {
		c.refuse(v, "tcp")
		return
	}
	defer c.t.refused.leave()
	c.flow.await(phaseHead)
	c.x.begin()
	c.x.rec.Revision = revision
	c.x.q.Close = true
	c.x.deny(v)
	c.linger()
}

// refuse puts a refusal on record that no HTTP answer can carry, and resets the
// connection.
func (c *conn) refuse(v verdict.Verdict, proto string) {
	c.x.begin()
	c.x.rec.Proto = proto
	c.x.host, c.x.port = c.host, c.port // as far as they are known
	c.x.record(v)
	reset(c.raw)
}
