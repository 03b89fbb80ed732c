// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package parent connects to hosts through another proxy, by CONNECT, where a
// network lets nothing out but through that.
//
// The parent gets the name of the host and resolves it itself, so what address
// it connects to is its own affair: whoever uses this package says on record
// that the addresses were vetted by the parent, and lets no rule through it that
// needs an address of its own. TLS with the host goes through the tunnel, so the
// parent sees names and sizes and nothing else.
//
// The parent's own address is vetted as if a rule had named it: what the
// configuration names, and public addresses.
//
// A [Proxy] may be used by many goroutines.
package parent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"bawn/internal/addr"
	"bawn/internal/codes"
	"bawn/internal/names"
	"bawn/internal/secret"
	"bawn/internal/uptls"
)

// A Resolver asks the configured name servers for the addresses of a name.
type Resolver interface {
	Lookup(ctx context.Context, host names.Host) ([]netip.Addr, error)
}

// A Dialer connects to an address. It calls check with the address that the
// socket is about to be connected to, and connects only if that returns nil.
type Dialer interface {
	Dial(ctx context.Context, to netip.AddrPort, check func(netip.AddrPort) error) (net.Conn, error)
}

// A Config says where the parent is and what it wants.
type Config struct {
	Host      names.Host // zero where the configuration names an address
	Addr      netip.Addr // invalid where it names a host
	Port      uint16
	Addresses []netip.Prefix  // special-purpose ranges that Host may resolve to
	Bypass    []names.Pattern // hosts that are reached without the parent

	TLS      *uptls.Trust // nil: there is no TLS to the parent itself
	Username string       // with Password, for Proxy-Authorization: Basic
	Password secret.Text

	Resolver Resolver
	Dialer   Dialer
	Vet      func() addr.Vet // what the host itself knows of addresses
	Now      func() time.Time
}

// A Proxy is the parent.
type Proxy struct {
	cfg Config
	tls *uptls.Client

	mu     sync.Mutex
	health Health
}

// Health is how the parent did when it was used last.
type Health struct {
	At  time.Time // zero: it has not been used yet
	Err string    // empty: it did what it should
}

// New returns the proxy of cfg. It connects to nothing.
func New(cfg Config) *Proxy {
	p := &Proxy{cfg: cfg}
	if cfg.TLS != nil {
		p.tls = cfg.TLS.Client()
	}
	return p
}

// An Error is why a host cannot be reached through the parent.
type Error struct {
	Code   codes.Code // parent_proxy_refused, parent_proxy_unreachable or upstream_unreachable
	Detail string     // for the operator; may quote the parent
	err    error
}

// Error gives the detail.
func (e *Error) Error() string { return e.Detail }

// Unwrap gives the error of the connection, if there was one.
func (e *Error) Unwrap() error { return e.err }

// Takes reports whether host is reached through the parent.
func (p *Proxy) Takes(host names.Host) bool {
	for _, b := range p.cfg.Bypass {
		if b.Match(host) {
			return false
		}
	}
	return true
}

// Connect returns a connection to host and the address of the parent that it
// goes through. The error is an [*Error].
func (p *Proxy) Connect(ctx context.Context, host names.Host, port uint16) (net.Conn, netip.AddrPort, error) {
	conn, via, err := p.reach(ctx)
	if err != nil {
		p.note(ctx, err)
		return nil, via, err
	}
	tunnel, err := p.ask(ctx, conn, net.JoinHostPort(host.String(), strconv.Itoa(int(port))))
	p.note(ctx, err)
	if err != nil {
		conn.Close()
		return nil, via, err
	}
	return tunnel, via, nil
}

// Check finds out whether the parent can be reached, and asks it for nothing.
func (p *Proxy) Check(ctx context.Context) error {
	conn, _, err := p.reach(ctx)
	p.note(ctx, err)
	if err != nil {
		return err
	}
	return conn.Close()
}

// The times of [Proxy.Watch].
const (
	CheckEvery = 10 * time.Second // the longest time without a use or a check
	CheckTime  = 5 * time.Second  // that a check may take
)

// Watch checks a parent that nobody uses, so that [Proxy.Health] is never old,
// and logs when it fails and when it is back. It blocks until ctx is done.
func (p *Proxy) Watch(ctx context.Context, log *slog.Logger) error {
	told := ""
	for {
		every := CheckEvery
		if told != "" {
			every = CheckEvery / 5
		}
		if p.now().Sub(p.Health().At) >= every {
			once, cancel := context.WithTimeout(ctx, CheckTime)
			p.Check(once) //nolint:errcheck // it shows in the health
			cancel()
		}
		switch now := p.Health().Err; {
		case now != "" && told == "":
			log.Warn("the parent proxy fails, so nothing gets out", "error", now)
			told = now
		case now == "" && told != "":
			log.Info("the parent proxy does what it should again")
			told = now
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

// Health returns how the parent did last.
func (p *Proxy) Health() Health {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.health
}

// note keeps how the parent did. That it refuses one host, or that whoever asked
// went away, says nothing against it; that it does not take the password does.
func (p *Proxy) note(ctx context.Context, err error) {
	h := Health{At: p.now()}
	if e, ok := errors.AsType[*Error](err); ok {
		switch {
		case errors.Is(e, errPassword), e.Code == codes.ParentProxyUnreachable:
			h.Err = e.Detail
		}
	}
	if h.Err != "" && errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.health = h
}

func (p *Proxy) now() time.Time {
	if p.cfg.Now != nil {
		return p.cfg.Now()
	}
	return time.Now()
}

// name is what the parent's certificate has to be for.
func (p *Proxy) name() string {
	if p.cfg.Addr.IsValid() {
		return p.cfg.Addr.String()
	}
	return p.cfg.Host.String()
}

func unreachable(err error, format string, args ...any) *Error {
	return &Error{Code: codes.ParentProxyUnreachable, Detail: "the parent proxy " + fmt.Sprintf(format, args...), err: err}
}

// reach connects to the parent itself.
func (p *Proxy) reach(ctx context.Context) (net.Conn, netip.AddrPort, error) {
	addrs, err := p.resolve(ctx)
	if err != nil {
		return nil, netip.AddrPort{}, err
	}
	conn, to, err := p.dial(ctx, addrs)
	if err != nil || p.tls == nil {
		return conn, to, err
	}
	secured, err := p.tls.Handshake(ctx, conn, uptls.Use{Host: p.name(), ALPN: []string{"http/1.1"}})
	if err == nil {
		return secured, to, nil
	}
	conn.Close()
	if e, ok := errors.AsType[*uptls.Error](err); ok {
		return nil, to, unreachable(err, "%s could not prove who it is: %s: %s", to, e.Code, e.Detail)
	}
	return nil, to, unreachable(err, "%s does not answer: TLS: %v", to, err)
}

func (p *Proxy) resolve(ctx context.Context) ([]netip.Addr, error) {
	addrs := []netip.Addr{p.cfg.Addr}
	if !p.cfg.Addr.IsValid() {
		var err error
		if addrs, err = p.cfg.Resolver.Lookup(ctx, p.cfg.Host); err != nil {
			return nil, unreachable(err, "%s has no address: %v", p.cfg.Host, err)
		}
	}
	for _, a := range addrs {
		if detail, ok := p.vet().Check(a); !ok {
			return nil, unreachable(nil, "%s is at an address that may not be dialled (see parent_proxy addresses): %s", p.name(), detail)
		}
	}
	return addrs, nil
}

// vet is what decides about the parent's addresses: one that the configuration
// names itself is meant.
func (p *Proxy) vet() addr.Vet {
	v := p.cfg.Vet()
	v.Allowed = p.cfg.Addresses
	if a := p.cfg.Addr; a.IsValid() {
		v.Allowed = append(v.Allowed[:len(v.Allowed):len(v.Allowed)], netip.PrefixFrom(a, a.BitLen()))
	}
	return v
}

// dial connects to one of the addresses, in their order. Each gets its share of
// the time that is left.
func (p *Proxy) dial(ctx context.Context, addrs []netip.Addr) (net.Conn, netip.AddrPort, error) {
	var failed []error
	for i, a := range addrs {
		to := netip.AddrPortFrom(a, p.cfg.Port)
		one, cancel := share(ctx, len(addrs)-i)
		conn, err := p.cfg.Dialer.Dial(one, to, func(real netip.AddrPort) error {
			if detail, ok := p.vet().Check(real.Addr()); real != to || !ok {
				return fmt.Errorf("the socket was about to connect to %s, which was not vetted %s", real, detail)
			}
			return nil
		})
		cancel()
		if err == nil {
			return conn, to, nil
		}
		failed = append(failed, err)
	}
	err := errors.Join(failed...)
	return nil, netip.AddrPort{}, unreachable(err, "cannot be reached: %v", err)
}

// share is a part of what is left of ctx: one of n.
func share(ctx context.Context, n int) (context.Context, context.CancelFunc) {
	until, bounded := ctx.Deadline()
	if !bounded {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(until)/time.Duration(n))
}
