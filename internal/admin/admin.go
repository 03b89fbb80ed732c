// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admin is the process that decides who and what there is: agents,
// policy, sessions and the record's readers. It owns the database and the CA's
// root, answers operators and planes on admin.sock, and has netd do what needs
// root.
//
// It runs without root and without a capability. It hands out no agent until
// the self-test has shown that nothing gets out.
package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"bawn/internal/apitype"
	"bawn/internal/audit"
	"bawn/internal/ca"
	"bawn/internal/config"
	"bawn/internal/ids"
	"bawn/internal/index"
	"bawn/internal/lease"
	"bawn/internal/lifecycle"
	"bawn/internal/netd/netdapi"
	"bawn/internal/peercred"
	"bawn/internal/proof"
	"bawn/internal/session"
	"bawn/internal/store"
)

// Options are what a Server works with.
type Options struct {
	Paths       config.Paths
	Config      config.Config
	Version     string
	Log         *slog.Logger
	Built       time.Time        // when the program was; zero: not known
	ProxyUID    uint32           // whose beats are a plane's
	OperatorGID uint32           // the group of operators
	Now         func() time.Time // the wall clock, for what is written down; leases and certificates have their own
	Ready       func()           // called once requests are answered
}

// A Server is admin.
type Server struct {
	o         Options
	store     *store.Store
	root      *ca.Root
	acts      *audit.Journal // what was done to this installation, and by whom
	signer    *proof.Signer
	index     *index.Index
	auditKey  proof.Key
	planes    *planes
	planeActs pace
	netd      *netdLink
	sessions  *session.Manager

	resolvers []netip.AddrPort // that the proxy asks

	base    context.Context // of connections that were taken over
	runs    sync.WaitGroup  // such connections
	applies sync.Mutex      // one policy or registry change at a time

	reports reports
	began   time.Time // of this process, or nearly so

	grantNews chan struct{} // one was added

	lookingBack sync.Mutex // held by who reads the whole record

	testing chan struct{} // holds one while a self-test runs
	clock   clock         // of the self-test
	retest  chan string   // cause of a self-test that is wanted

	mu       sync.Mutex
	shut     map[ids.Placement]string // why no agent is handed out there; absent: it is
	doctored *apitype.Doctor          // newest result
	tested   time.Time                // when that came, on the clock that nobody sets
	lacking  bool                     // it shut a placement that agents are in
}

// Open opens what admin owns and brings it up to date: the database, the root,
// the public files. Nothing listens yet.
func Open(ctx context.Context, o Options) (*Server, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Server{
		o: o, began: o.Now(), planes: newPlanes(time.Now), base: ctx, grantNews: make(chan struct{}, 1), shut: map[ids.Placement]string{},
		clock: clock{now: sinceBoot}, retest: make(chan string, 1), testing: make(chan struct{}, 1),
	}
	for _, p := range placements {
		s.shut[p] = "the self-test has not run yet"
	}
	var err error
	if s.resolvers, err = o.Config.Nameservers(); err != nil {
		return nil, err
	}
	if s.acts, err = openActs(o); err != nil {
		return nil, err
	}
	if err := s.openOwn(ctx); err != nil {
		return nil, errors.Join(err, s.acts.Close())
	}
	return s, nil
}

// openOwn opens what admin owns, each thing on record.
func (s *Server) openOwn(ctx context.Context) error {
	if err := s.did(audit.Act{Name: audit.ActAdminStart, Detail: "version " + s.o.Version}); err != nil {
		return err
	}
	if err := s.tellRestored(); err != nil {
		s.o.Log.Error("a restore is not on record yet; the next start tries again", "error", err)
	}
	if err := cleanBackups(s.o.Paths.State("admin")); err != nil {
		s.o.Log.Error("cleaning up", "error", err)
	}
	var err error
	if s.signer, err = s.openSigner(); err != nil {
		return err
	}
	s.index = s.openIndex(ctx)
	if s.root, err = s.openRoot(); err != nil {
		return err
	}
	if s.store, err = store.Open(ctx, s.o.Paths.Database()); err != nil {
		return err
	}
	if err := s.openState(ctx); err != nil {
		return errors.Join(err, s.store.Close())
	}
	return nil
}

// openState reads what is in force and ends what a crash left open.
func (s *Server) openState(ctx context.Context) error {
	epoch, err := s.store.NextEpoch(ctx)
	if err != nil {
		return err
	}
	if err := s.endLeftovers(ctx); err != nil {
		return err
	}
	snap, err := s.snapshot(ctx)
	if err != nil {
		return err
	}
	s.planes.set(snap)
	if _, err := lease.Check(snap, s.credentials()); err != nil {
		s.o.Log.Warn("the policy in force does not fit the configuration any more; what needs it is refused", "error", err)
	}
	s.netd = newNetdLink(s.o.Paths.NetdSock(), s.o.Log)
	s.sessions = session.New(session.Options{
		Netd: s.netd.session, Registry: s.store, Epoch: epoch, Limits: s.o.Config.Limits,
		Closed: s.closed, Log: s.o.Log, Now: s.o.Now,
	})
	s.netd.onExit, s.netd.onLost = s.sessions.Exited, s.sessions.Lost
	s.netd.greet = func(ctx context.Context, c *netdapi.Client) error {
		return c.Reach(ctx, s.reachOf(s.planes.snapshot()))
	}
	return nil
}

// Run answers on l until ctx is done.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	defer s.store.Close()
	defer s.closeActs()
	defer s.index.Close() //nolint:errcheck // what is lost is read again
	return lifecycle.Run(ctx,
		lifecycle.Service{Name: "checkpoints", Run: s.signer.Run},
		lifecycle.Service{Name: "audit index", Run: s.index.Run},
		lifecycle.Service{Name: "old records", Run: s.prune},
		lifecycle.Service{Name: "netd link", Run: s.netd.run},
		lifecycle.Service{Name: "grants", Run: s.watchGrants},
		lifecycle.Service{Name: "doctor", Run: s.keepTesting},
		lifecycle.Service{Name: "api", Run: func(ctx context.Context) error { return s.serve(ctx, l) }},
	)
}

// The bounds of one API connection. A stream (log) has no bound on writing.
const (
	headTimeout = 5 * time.Second
	idleTimeout = time.Minute
	maxHead     = 16 << 10
	maxConns    = 2048 // of one account
)

func (s *Server) serve(ctx context.Context, l net.Listener) error {
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	s.base = inner
	srv := &http.Server{
		Handler: s.handler(), ConnContext: withPeer, ReadHeaderTimeout: headTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHead,
		BaseContext: func(net.Listener) context.Context { return inner },
		ErrorLog:    slog.NewLogLogger(s.o.Log.Handler(), slog.LevelWarn),
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(peercred.Bound(l, maxConns)) }()
	s.o.Ready()
	select {
	case err := <-ended:
		return fmt.Errorf("serving the API: %w", err)
	case <-ctx.Done():
	}
	cancel() // ends streams and sessions, which Shutdown does not know
	stop, done := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer done()
	if err := srv.Shutdown(stop); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("stopping the API: %w", err)
	}
	s.runs.Wait() // each has netd end its program, which takes stopTime at most
	return srv.Close()
}

// placements are those that this build knows.
var placements = []ids.Placement{ids.PlacementNetns, ids.PlacementUID}

// closed says why no agent is handed out in placement p, or nothing.
func (s *Server) closed(p ids.Placement) string {
	s.mu.Lock()
	why := s.shut[p]
	s.mu.Unlock()
	if why != "" {
		return why
	}
	if _, err := s.netd.client(); err != nil {
		return err.Error()
	}
	return ""
}
