// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dnsclient resolves names for the proxy.
//
// It asks the configured servers and nothing else: no hosts file, no search
// list, no library of the system, so that a name means the same to everybody who
// judged it. It resolves; it does not judge. Whoever calls it has decided that
// the name may be resolved (I3), and vets every address before dialling one
// (I6).
//
// [Client.Lookup] asks for IPv4 and IPv6 addresses at once. Each question goes
// to one server after the other until one gives an answer that can be believed,
// first by UDP, and by TCP where the answer was cut. Answers are kept as long as
// their TTL says, but never longer than [MaxTTL]. Lookups of one name at one
// time share one set of questions.
package dnsclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"bawn/internal/codes"
	"bawn/internal/dnswire"
	"bawn/internal/names"
)

// The bounds of the cache.
const (
	MaxTTL      = 60 * time.Second // longest that an answer is used, whatever its TTL says
	negativeTTL = 5 * time.Second  // how long "no such name" is used
	cacheNames  = 4096             // names kept; beyond, the oldest make room
)

// A Reason says what kind of failure an [Error] is.
type Reason uint8

// The reasons.
const (
	Unanswered Reason = iota // no server gave an answer that could be used
	NoName                   // a server says that the name does not exist
	NoAddress                // the name exists and has no address
)

// String gives the reason in words.
func (r Reason) String() string {
	switch r {
	case NoName:
		return "no such name"
	case NoAddress:
		return "the name has no address"
	default:
		return "no usable answer"
	}
}

// An Error says why a name has no addresses. No answer is a refusal, never a
// permission: [Error.Code] is always address_unresolved.
type Error struct {
	Host   names.Host
	Reason Reason
	Err    error // of the servers asked, where there was no usable answer
}

// Error names the host and the reason.
func (e *Error) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("resolving %s: %s: %v", e.Host, e.Reason, e.Err)
	}
	return fmt.Sprintf("resolving %s: %s", e.Host, e.Reason)
}

// Unwrap gives the errors of the servers asked.
func (e *Error) Unwrap() error { return e.Err }

// Code is the code of the refusal that follows.
func (e *Error) Code() codes.Code { return codes.AddressUnresolved }

// Options configure a [Client]. The zero value of a field means its default.
type Options struct {
	// Servers are asked in order, beginning with the one that last answered.
	Servers []netip.AddrPort

	// Timeout bounds one exchange with one server: 2 s.
	Timeout time.Duration

	// Patience is how long addresses of one family wait for those of the
	// other, once they are there: 500 ms.
	Patience time.Duration

	// Log takes failures of servers: slog.DiscardHandler.
	Log *slog.Logger

	// Now is the clock of the cache: time.Now.
	Now func() time.Time
}

// A Client asks the configured servers. It may be used by many goroutines.
type Client struct {
	opt    Options
	flight singleflight.Group
	good   atomic.Uint32 // index of the server that last answered
	cache  cache
}

// rounds is how often the list of servers is gone through: a UDP packet can get
// lost.
const rounds = 2

// New returns a client. It sends nothing.
func New(opt Options) *Client {
	if opt.Timeout == 0 {
		opt.Timeout = 2 * time.Second
	}
	if opt.Patience == 0 {
		opt.Patience = 500 * time.Millisecond
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	return &Client{opt: opt, cache: cache{most: cacheNames}}
}

// Lookup returns the addresses of h, at least one. The slice is the caller's.
// The error is an [*Error], or that of ctx.
//
// The questions themselves do not end with ctx, since others may wait for them
// too; they end within the timeouts of [Options].
func (c *Client) Lookup(ctx context.Context, h names.Host) ([]netip.Addr, error) {
	if h.IsZero() {
		return nil, &Error{Host: h, Reason: NoName}
	}
	if res, ok := c.cache.get(h, c.opt.Now()); ok {
		return res.list(h)
	}
	done := c.flight.DoChan(h.String(), func() (any, error) {
		return c.resolve(context.WithoutCancel(ctx), h)
	})
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case got := <-done:
		if got.Err != nil {
			return nil, got.Err
		}
		return got.Val.(result).list(h)
	}
}

// resolve asks for both families at once and keeps the result.
func (c *Client) resolve(ctx context.Context, h names.Host) (result, error) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	families := make(chan family, 2) // room for both: neither sender waits
	for _, t := range []dnswire.Type{dnswire.TypeA, dnswire.TypeAAAA} {
		wg.Go(func() { families <- c.safely(ctx, h, t) })
	}
	res, err := join(c.collect(families))
	if err != nil {
		return result{}, &Error{Host: h, Reason: Unanswered, Err: err}
	}
	c.cache.put(h, res, c.opt.Now())
	return res, nil
}

// A family is what became of one of the two questions.
type family struct {
	answer dnswire.Answer
	err    error
}

// safely is ask, and makes an error of a panic: what a server sends must not end
// the process.
func (c *Client) safely(ctx context.Context, h names.Host, t dnswire.Type) (f family) {
	defer func() {
		if p := recover(); p != nil {
			c.opt.Log.LogAttrs(ctx, slog.LevelError, "panic", slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
			f = family{err: fmt.Errorf("asking for %s: panic", t)}
		}
	}()
	answer, err := c.ask(ctx, h, t)
	return family{answer, err}
}

// collect waits for both families. Once one has addresses the other has no more
// than Patience: a server that never answers for IPv6 must not hold up IPv4.
func (c *Client) collect(families <-chan family) []family {
	first := <-families
	if len(first.answer.Addrs) == 0 {
		return []family{first, <-families}
	}
	timer := time.NewTimer(c.opt.Patience)
	defer timer.Stop()
	select {
	case second := <-families:
		return []family{first, second}
	case <-timer.C:
		return []family{first}
	}
}

// join makes one result of the families. Addresses of either are a result. A
// failure of either without addresses of the other is a failure: "no such name"
// is said only by an answer.
func join(families []family) (result, error) {
	res := result{ttl: MaxTTL, reason: NoAddress}
	var errs []error
	for _, f := range families {
		switch {
		case f.err != nil:
			errs = append(errs, f.err)
		case f.answer.RCode == dnswire.NXDomain:
			res.reason = NoName
		case len(f.answer.Addrs) > 0:
			res.addrs = append(res.addrs, f.answer.Addrs...)
			res.ttl = min(res.ttl, f.answer.TTL)
		}
	}
	if len(res.addrs) > 0 {
		return res, nil
	}
	if len(errs) > 0 {
		return result{}, errors.Join(errs...)
	}
	res.ttl = negativeTTL
	return res, nil
}

// ask asks the servers one after the other for one type, beginning with the one
// that last answered.
func (c *Client) ask(ctx context.Context, h names.Host, t dnswire.Type) (dnswire.Answer, error) {
	n := uint32(len(c.opt.Servers))
	if n == 0 {
		return dnswire.Answer{}, errors.New("no servers are configured")
	}
	var errs []error
	begin := c.good.Load()
	for i := range rounds * n {
		at := (begin + i) % n
		server := c.opt.Servers[at]
		answer, err := c.exchange(ctx, server, h, t)
		if err == nil {
			c.good.Store(at)
			return answer, nil
		}
		if ctx.Err() != nil {
			return dnswire.Answer{}, ctx.Err()
		}
		err = fmt.Errorf("asking %s for %s: %w", server, t, err)
		c.opt.Log.LogAttrs(ctx, slog.LevelDebug, "resolver failed", slog.String("host", h.String()), slog.Any("err", err))
		errs = append(errs, err)
	}
	return dnswire.Answer{}, errors.Join(errs...)
}

// exchange asks one server, by UDP and, where the answer was cut, by TCP. The
// answer is NOERROR or NXDOMAIN; other response codes are errors, for which the
// next server may know better.
func (c *Client) exchange(ctx context.Context, server netip.AddrPort, h names.Host, t dnswire.Type) (dnswire.Answer, error) {
	answer, err := c.over(ctx, "udp", server, h, t)
	if err == nil && answer.Truncated {
		answer, err = c.over(ctx, "tcp", server, h, t)
	}
	switch {
	case err != nil:
		return dnswire.Answer{}, err
	case answer.Truncated:
		return dnswire.Answer{}, errors.New("answer over TCP is cut")
	case answer.RCode != dnswire.Success && answer.RCode != dnswire.NXDomain:
		return dnswire.Answer{}, fmt.Errorf("server answers %s", answer.RCode)
	}
	return answer, nil
}

// over does one exchange on a socket of its own, whose port the kernel picks at
// random. A connected UDP socket takes packets of the server alone.
func (c *Client) over(ctx context.Context, network string, server netip.AddrPort, h names.Host, t dnswire.Type) (dnswire.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opt.Timeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, server.String())
	if err != nil {
		return dnswire.Answer{}, err
	}
	defer conn.Close()
	// A done context, by time or by cancel, ends reads and writes at once.
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	q := newQuestion(h, t)
	if network == "tcp" {
		return q.overTCP(conn)
	}
	return q.overUDP(conn)
}
