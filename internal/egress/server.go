// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"bawn/internal/addr"
	"bawn/internal/audit"
	"bawn/internal/budget"
	"bawn/internal/h2conn"
	"bawn/internal/httpwire"
	"bawn/internal/ids"
	"bawn/internal/names"
	"bawn/internal/policy"
	"bawn/internal/uptls"
	"bawn/internal/verdict"
	"bawn/internal/wswire"
)

// Policies gives the policy in force and its revision, or the refusal that
// stands for it, and a channel that is closed when that has changed.
type Policies interface {
	Current() (*policy.Policy, uint64, verdict.Verdict)
	Changed() <-chan struct{}
}

// A Recorder puts decisions on record before they are acted on. After an error
// of Decide the request is refused; so it is after one of SyncNow, which returns
// once what was decided is on the disk.
type Recorder interface {
	Decide(*audit.Decision) error
	Dial(*audit.Dial) error
	Outcome(*audit.Outcome) error
	SyncNow() error
}

// A Keyring has the certificates that rules name. What it returns is for TLS
// with that host only.
type Keyring interface {
	ClientCertificate(ctx context.Context, credential string, host names.Host) (*tls.Certificate, error)
}

// Names says which name an address stands for that the agent's resolver gave
// it.
type Names interface {
	Name(agent string, a netip.Addr) (names.Host, bool)
}

// A Resolver asks the configured name servers for the addresses of a name.
type Resolver interface {
	Lookup(ctx context.Context, host names.Host) ([]netip.Addr, error)
}

// A Minter makes the certificates that agents see.
type Minter interface {
	Certificate(name string) (*tls.Certificate, error)
}

// A Dialer connects to an address. It calls check with the address that the
// socket is about to be connected to, and connects only if that returns nil.
type Dialer interface {
	Dial(ctx context.Context, to netip.AddrPort, check func(netip.AddrPort) error) (net.Conn, error)
}

// A Parent is another proxy, through which hosts are reached that it takes. It
// resolves their names itself, and so vets their addresses or does not.
type Parent interface {
	Takes(names.Host) bool
	// Connect returns a connection to a host, and the address of the parent that
	// it goes through. Its error is a [parent.Error].
	Connect(context.Context, names.Host, uint16) (net.Conn, netip.AddrPort, error)
}

// A Config is what a Server is made of. Policies, Recorder, Resolver and
// Minter must be set.
type Config struct {
	Policies Policies
	Recorder Recorder
	Resolver Resolver
	Minter   Minter
	Names    Names           // nil: redirected connections are refused
	Budget   Budget          // nil: names under wildcards are not counted
	Meter    *budget.Meter   // nil: budgets are counted in memory, by this server
	Dialer   Dialer          // nil: the host's network
	Parent   Parent          // nil: every host is reached directly
	Keys     Keyring         // nil: rules with a credential are refused
	Roots    *x509.CertPool  // that upstreams are verified by; nil: the system's
	Vet      func() addr.Vet // the host's own addresses and ranges; nil: public addresses only

	// OriginalDst says where a redirected connection went; nil asks the kernel.
	OriginalDst func(net.Conn) (netip.AddrPort, error)

	Limits Limits
	Log    *slog.Logger     // nil: none
	Now    func() time.Time // nil: time.Now

	// Judged is called when a request was let through, with the time that it took
	// to judge it. nil: nobody wants to know.
	Judged func(time.Duration)

	// Stages is called when a connection or request reaches a stage: accepted,
	// judged, journaled, resolved, dialled, first_byte, outcome. Tests stop or
	// kill the process there. nil in production.
	Stages func(stage string)
}

// Limits bound what one agent may use. A zero field means its default.
type Limits struct {
	Connections int // open connections of one lease; 256
	Streams     int // of HTTP/2, served at a time, of all connections of one lease; 1024

	Handshake time.Duration // from accept, or the CONNECT, to the end of TLS; 15 s
	Idle      time.Duration // of a connection between requests; 5 min
	Head      time.Duration // from the first octet of a head to its last; 30 s
	Resolve   time.Duration // 10 s
	Dial      time.Duration // for all addresses of a name, TLS included; 15 s
	Response  time.Duration // from the request to the response; 15 min
	Stall     time.Duration // a body that does not move; 15 min
	Silence   time.Duration // of both ends of a tunnel that is not looked into; 4 h
	Total     time.Duration // of one request, or of one such tunnel; 24 h
	Continue  time.Duration // how long the upstream's 100 is waited for before the agent gets one anyway; 300 ms
	Linger    time.Duration // for an agent to read an answer that came before its request ended; 2 s

	IdleUpstream  time.Duration // of an upstream connection between requests; 90 s
	IdlePerHost   int           // upstream connections that wait, for one rule, name and port; as Connections, lest parallel requests dial anew each time
	IdleUpstreams int           // and for one lease in all; twice that

	MessageIdle time.Duration // of a WebSocket on which nothing comes, pings included; 30 min
	MessageLife time.Duration // of a WebSocket; 24 h
	Closing     time.Duration // from the first close frame of a WebSocket to its end; 5 s
	Keepalive   time.Duration // that pings of one end of a WebSocket make Bawn ping the other, at most once in; 15 s
	Controls    int           // pings and pongs that may come at once; 100, and 10 more a second

	GuardBody int64 // octets of a body, or of a WebSocket message, that a guard asks for; 10 MiB
	Held      int64 // octets of all of these that one lease may have kept at a time; 12 times as many
	Waiting   int64 // octets of bodies that HTTP/2 lets wait in memory, of one lease, beyond 64 KiB for each connection; 96 MiB
	Wire      httpwire.Limits
	WebSocket wswire.Limits // of a message
	H2        h2conn.Limits // its Wire is always the one above, its Room that of the lease
}

func (l Limits) orDefault() Limits {
	or(&l.Connections, 256)
	or(&l.Streams, 1024)
	or(&l.Handshake, 15*time.Second)
	or(&l.Idle, 5*time.Minute)
	or(&l.Head, 30*time.Second)
	or(&l.Resolve, 10*time.Second)
	or(&l.Dial, 15*time.Second)
	or(&l.Response, 15*time.Minute)
	or(&l.Stall, 15*time.Minute)
	or(&l.Silence, 4*time.Hour)
	or(&l.Total, 24*time.Hour)
	or(&l.Continue, 300*time.Millisecond)
	or(&l.Linger, 2*time.Second)
	or(&l.IdleUpstream, 90*time.Second)
	or(&l.IdlePerHost, l.Connections)
	or(&l.IdleUpstreams, 2*l.Connections)
	or(&l.MessageIdle, 30*time.Minute)
	or(&l.MessageLife, 24*time.Hour)
	or(&l.Closing, 5*time.Second)
	or(&l.Keepalive, 15*time.Second)
	or(&l.Controls, 100)
	or(&l.GuardBody, 10<<20)
	or(&l.Held, 12*l.GuardBody)
	or(&l.Waiting, 96<<20)
	l.H2.Wire = l.Wire
	return l
}

func or[T comparable](have *T, otherwise T) {
	var zero T
	if *have == zero {
		*have = otherwise
	}
}

// A Server serves the connections of agents. It may be used by many
// goroutines.
type Server struct {
	cfg      Config
	lim      Limits
	tlsDown  *tls.Config
	trust    *uptls.Trust
	writers  sync.Pool // *bufio.Writer, of heads and small bodies
	copies   sync.Pool // *[]byte, for bodies on their way
	readers  sync.Pool // *bufio.Reader, of agents' connections
	messages sync.Pool // *bufio.Reader, of WebSockets over TLS
	live     live

	mu      sync.Mutex
	tenants map[leaseKey]*tenant
}

// New returns a Server. It serves nothing until [Server.Serve] is called.
func New(cfg Config) *Server {
	if cfg.Dialer == nil {
		cfg.Dialer = NetDialer{}
	}
	if cfg.Vet == nil {
		cfg.Vet = func() addr.Vet { return addr.Vet{} }
	}
	if cfg.OriginalDst == nil {
		cfg.OriginalDst = originalDst
	}
	if cfg.Meter == nil {
		cfg.Meter = budget.NewMeter()
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Server{cfg: cfg, lim: cfg.Limits.orDefault(), tenants: map[leaseKey]*tenant{}}
	s.writers.New = func() any { return bufio.NewWriterSize(nil, writeBuffer) }
	s.readers.New = func() any { return bufio.NewReader(nil) }
	s.messages.New = func() any { return bufio.NewReaderSize(nil, messageBuffer) }
	s.copies.New = func() any { b := make([]byte, copyBuffer); return &b }
	s.tlsDown = s.downConfig()
	s.trust = uptls.New(cfg.Roots, nil)
	s.live.init(s)
	return s
}

func (s *Server) stage(name string) {
	if s.cfg.Stages != nil {
		s.cfg.Stages(name)
	}
}

// A leaseKey is what never repeats: slots and names do.
type leaseKey struct {
	slot int
	gen  ids.Generation
}

// A tenant is one lease's share of a Server: what its connections, on all of
// its listeners, have in common and share with no other.
type tenant struct {
	key     leaseKey
	uses    int          // calls of Serve; guarded by Server.mu
	conns   counter      // open ones, within the bound
	streams counter      // of HTTP/2, being served
	open    *budget.Open // connections of the agent, of all leases
	refused counter      // of either, ones beyond the bound that are being told so
	held    store
	turns   chan struct{} // one for each that is judged now
	room    *h2conn.Room
	pool    pool
	tlsUp   *uptls.Client
}

func (s *Server) enterTenant(id ids.Identity) *tenant {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := leaseKey{id.Slot, id.Gen}
	t := s.tenants[key]
	if t == nil {
		t = &tenant{key: key, tlsUp: s.trust.Client(), turns: make(chan struct{}, judging), room: h2conn.NewRoom(s.lim.Waiting)}
		t.open = s.cfg.Meter.Connections(id.Agent)
		t.held.left.Store(s.lim.Held)
		t.pool.init(s)
		s.tenants[key] = t
	}
	t.uses++
	return t
}

func (s *Server) leaveTenant(t *tenant) {
	s.mu.Lock()
	t.uses--
	last := t.uses == 0
	if last {
		delete(s.tenants, t.key)
	}
	s.mu.Unlock()
	if last {
		t.pool.close()
	}
}

// h2Limits are those of each connection that speaks HTTP/2.
func (c *conn) h2Limits() h2conn.Limits {
	lim := c.s.lim.H2
	lim.Room, lim.Panicked = c.t.room, c.panicked
	return lim
}

// allTenants returns those that are served now.
func (s *Server) allTenants() []*tenant {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*tenant, 0, len(s.tenants))
	for _, t := range s.tenants {
		all = append(all, t)
	}
	return all
}

// Open says how much is open: connections of agents, and flows, which are these
// and streams of HTTP/2.
func (s *Server) Open() (connections, flows int) {
	s.live.mu.Lock()
	defer s.live.mu.Unlock()
	for f := range s.live.flows {
		if f.parent == nil {
			connections++
		}
	}
	return connections, len(s.live.flows)
}
