// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"bawn/internal/inspect"
	"bawn/internal/netd/netdapi"
	"bawn/internal/netkern"
	"bawn/internal/netplan"
	"bawn/internal/peercred"
	"bawn/internal/proc"
)

// Options says what a Server works on.
type Options struct {
	State       string       // Bawn's state directory, absolute: agents and public lie below it
	Mark        string       // names what is made in the kernel: "bawn", or "bawn-" and 8 hex digits
	AdminUID    uint32       // who may use admin's verbs, besides root
	ProxyUID    uint32       // who may take listeners, besides root
	OperatorGID uint32       // the group of operators, who may lend directories
	Hide        []string     // directories of the host that no agent sees: configuration and sockets
	Inspect     inspect.Host // where the self-test looks at the host
	Version     string
	Log         *slog.Logger
	Now         func() time.Time

	// check is called before each step of a build; tests use it to fail one.
	check func(step string) error
}

// A Server keeps the sessions of one host.
type Server struct {
	o        Options
	since    time.Time
	cgroups  *proc.Cgroups
	frozen   freezer
	firewall *netkern.Firewall // nil where it could not be set up
	noWall   error             // why not
	left     []string          // temporary directories of the last run

	accounts sync.Mutex // one change of the account files at a time

	mu       sync.Mutex
	sessions map[string]*running
	slots    map[int]*running
	seq      uint64
	feed     *feed // the proxy's connection
	watchers map[*caller]struct{}
	unseen   []netdapi.Exit // nobody has been told yet
	ending   bool           // no new session
	live     sync.WaitGroup // sessions that are not taken apart yet
}

// Open takes apart what an earlier run left and prepares the host. What the
// host cannot do is no error: sessions that would need it are refused, and
// [netdapi.Status] says why.
func Open(ctx context.Context, o Options) (*Server, error) {
	if !filepath.IsAbs(o.State) {
		return nil, fmt.Errorf("opening netd: state directory %q is not absolute", o.State)
	}
	if o.check == nil {
		o.check = func(string) error { return nil }
	}
	s := &Server{
		o: o, since: o.Now(),
		sessions: map[string]*running{}, slots: map[int]*running{}, watchers: map[*caller]struct{}{},
		frozen: freezer{groups: map[int]*proc.Cgroup{}, log: o.Log},
	}
	var err error
	if s.cgroups, err = proc.OpenCgroups(o.Mark); err != nil {
		return nil, fmt.Errorf("opening netd: %w", err)
	}
	// First the processes, then what held them.
	if err := s.cgroups.Leftovers(); err != nil {
		return nil, fmt.Errorf("opening netd: taking apart what the last run left: %w", err)
	}
	if s.left, err = proc.LeftTemps(o.State); err != nil {
		return nil, fmt.Errorf("opening netd: taking apart what the last run left: %w", err)
	}
	s.firewall, s.noWall = netkern.OpenFirewall(ctx, netkern.FirewallConfig{
		Plan:     netplan.Host{Table: o.Mark, Cgroup: o.Mark, Processes: netplan.Processes{Admin: o.AdminUID, Proxy: o.ProxyUID}},
		Lost:     func(string) { s.frozen.set(true) },
		Standing: func() { s.frozen.set(false) },
		Log:      o.Log,
	})
	if s.noWall != nil {
		o.Log.Warn("no agent can be held by uid", "error", s.noWall)
	}
	return s, nil
}

// maxCallers bounds the connections of one account: its own, and those that are
// just being replaced. Neither admin nor the proxy can keep the other out.
const maxCallers = 16

// Serve answers on l until ctx is done, then ends every session and takes apart
// what Open and the sessions made.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The firewall is watched until the last session is gone.
	watching, unwatch := context.WithCancel(context.WithoutCancel(ctx))
	defer unwatch()
	watcher := make(chan error, 1)
	go func() {
		var err error
		if s.firewall != nil {
			if err = s.firewall.Run(watching); err != nil {
				cancel() // without a watcher nothing may run
			}
		}
		watcher <- err
	}()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	var cleaning sync.WaitGroup
	cleaning.Go(func() { s.clean(ctx) })
	err := s.accept(ctx, l)
	if ctx.Err() != nil {
		err = nil
	}
	cancel()
	s.endAll()
	cleaning.Wait()
	unwatch()
	return errors.Join(err, <-watcher, s.takeApart())
}

// clean removes the temporary directories of the last run. Nobody waits for it:
// an agent that left millions of files must not keep the next start waiting.
// What is not gone by the end is left to the next run.
func (s *Server) clean(ctx context.Context) {
	if err := proc.RemoveTemps(ctx, s.left); err != nil && ctx.Err() == nil {
		s.o.Log.Error("what the last run left is still there", "error", err)
	}
}

// accept takes connections until l is closed, and waits for their ends.
func (s *Server) accept(ctx context.Context, l net.Listener) error {
	var callers sync.WaitGroup
	defer callers.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l = peercred.Bound(l, maxCallers)
	for {
		c, err := l.Accept()
		if short(err) {
			s.o.Log.Warn("callers wait", "error", err)
			sleep(ctx, acceptPause)
			continue
		}
		if err != nil {
			return fmt.Errorf("accepting callers: %w", err)
		}
		callers.Go(func() {
			defer c.Close()
			s.serve(ctx, c.(*peercred.Conn).UnixConn)
		})
	}
}

// acceptPause is waited when the process or the machine is short of something,
// so that sessions outlive it.
const acceptPause = 100 * time.Millisecond

// short reports whether an accept failed for want of descriptors or memory, or
// because the caller has gone (accept(2)).
func short(err error) bool {
	for _, e := range []error{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// takeApart removes what Open made. The sessions are gone.
func (s *Server) takeApart() error {
	var errs []error
	if s.firewall != nil {
		errs = append(errs, s.firewall.Close())
	}
	return errors.Join(append(errs, s.cgroups.Remove())...)
}
