// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package session runs agents: it checks what an operator asks for, gives the
// run a slot that no other has, has netd build it, and keeps what runs.
//
// A [Manager] belongs to admin. A run is bound to the connection that asked
// for it: when the operator's end is gone, so is the program. A Manager may be
// used by many goroutines.
package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"bawn/internal/apitype"
	"bawn/internal/config"
	"bawn/internal/ids"
	"bawn/internal/netd/netdapi"
	"bawn/internal/peercred"
	"bawn/internal/store"
)

// A Netd builds and ends sessions; netdapi.Client is the real one.
type Netd interface {
	Start(ctx context.Context, spec netdapi.StartSpec, files []*os.File) ([]*os.File, error)
	Signal(ctx context.Context, session string, signal syscall.Signal) error
	Stop(ctx context.Context, session string) error
	DialSession(ctx context.Context, session string, port uint16) (*os.File, error)
}

// A Registry knows the agents and remembers the runs; store.Store is the real
// one.
type Registry interface {
	Agents(ctx context.Context) ([]store.Agent, error)
	StartSession(ctx context.Context, s store.Session) error
	EndSession(ctx context.Context, session string, at time.Time, status int, fault string) error
}

// Options are what a Manager works with.
type Options struct {
	Netd     func() (Netd, error) // the connection of the moment
	Registry Registry
	Epoch    uint64 // of the generations; never used before
	Limits   config.Limits
	Closed   func(ids.Placement) string // why no agent is handed out there, or nothing
	Log      *slog.Logger
	Now      func() time.Time
}

// A Manager keeps the sessions of one host.
type Manager struct {
	o Options

	mu      sync.Mutex
	count   uint64 // generations handed out in this epoch
	slots   map[int]bool
	running map[string]*Running
}

// A Running is one session.
type Running struct {
	apitype.Session
	ports []uint16
	m     *Manager
	exit  chan apitype.Exit
}

// New returns a Manager without sessions.
func New(o Options) *Manager {
	return &Manager{o: o, slots: map[int]bool{}, running: map[string]*Running{}}
}

// maxSlots bounds the sessions of one host. The uid placement's proxy
// addresses have room for 65,536.
const maxSlots = 4096

// reserve takes the lowest free slot above the one given, under a generation of
// its own.
func (m *Manager) reserve(r *Running, above int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for n := above + 1; n <= maxSlots; n++ {
		if !m.slots[n] {
			m.count++
			m.slots[n] = true
			r.Slot, r.Gen = n, ids.Generation{Epoch: m.o.Epoch, Count: m.count}
			m.running[r.Session.Session] = r
			return nil
		}
	}
	return &apitype.Error{Status: 429, Code: "concurrency_exceeded", Message: fmt.Sprintf("all %d slots of this host are in use", maxSlots), Hint: "end a session, or try again later"}
}

// release gives the slot of r back. It reports false where that was done
// before: the end of a session is told once.
func (m *Manager) release(r *Running) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running[r.Session.Session] != r {
		return false
	}
	delete(m.slots, r.Slot)
	delete(m.running, r.Session.Session)
	return true
}

// Start builds a session for caller and returns it with the descriptors of its
// terminal or pipes, which are the caller's to close. files are those that came
// with the request; they stay the caller's.
func (m *Manager) Start(ctx context.Context, caller peercred.Peer, start apitype.StartSession, files []*os.File) (*Running, []*os.File, error) {
	agent, err := m.choose(ctx, start.Agent)
	if err != nil {
		return nil, nil, err
	}
	spec, err := m.spec(caller, agent, start, files)
	if err != nil {
		return nil, nil, err
	}
	if why := m.o.Closed(spec.Placement); why != "" {
		return nil, nil, unavailable(errors.New(why))
	}
	return m.launch(ctx, agent, spec, start.Ports, files)
}

// maxTaken is how many slots in a row are tried whose proxy's address somebody
// else of the host has taken, which any account can do in placement uid.
const maxTaken = 64

// launch starts the session in the first slot that can be had.
func (m *Manager) launch(ctx context.Context, agent store.Agent, spec netdapi.StartSpec, ports []uint16, files []*os.File) (*Running, []*os.File, error) {
	above := 0
	for try := 1; ; try++ {
		r, got, err := m.launchAbove(ctx, above, agent, spec, ports, files)
		e, ok := errors.AsType[*netdapi.Error](err)
		if err == nil || !ok || e.Code != netdapi.CodeAddressTaken || try == maxTaken {
			return r, got, refused(err)
		}
		m.o.Log.Warn("a slot is passed over", "slot", r.Slot, "error", err)
		above = r.Slot
	}
}

// launchAbove reserves, records and starts; on failure it leaves nothing
// reserved. The error may be netd's own.
func (m *Manager) launchAbove(ctx context.Context, above int, agent store.Agent, spec netdapi.StartSpec, ports []uint16, files []*os.File) (*Running, []*os.File, error) {
	r := &Running{m: m, ports: ports, exit: make(chan apitype.Exit, 1)}
	r.Identity = ids.Identity{Session: ids.NewSession(), Agent: agent.Name, User: agent.User}
	r.Placement, r.Argv, r.Started = spec.Placement, spec.Argv, m.o.Now()
	netd, err := m.o.Netd()
	if err != nil {
		return nil, nil, unavailable(err)
	}
	if err := m.reserve(r, above); err != nil {
		return nil, nil, err
	}
	place(&spec, r, agent.Name)
	row := store.Session{Identity: r.Identity, Placement: r.Placement, Argv: spec.Argv, Started: r.Started}
	if err := m.o.Registry.StartSession(ctx, row); err != nil {
		m.release(r)
		return nil, nil, fmt.Errorf("recording session %s: %w", r.Session.Session, err)
	}
	got, err := netd.Start(ctx, spec, files)
	if err != nil {
		if m.release(r) {
			m.end(r, apitype.Exit{Status: 125, Fault: err.Error()})
		}
		return r, nil, err
	}
	m.o.Log.Log(ctx, r.level(), "session started", "session", r.Session.Session, "agent", r.Agent, "user", r.User, "slot", r.Slot, "gen", r.Gen, "placement", r.Placement)
	return r, got, nil
}

// refused turns netd's answer into admin's; admin's own stay what they are.
func refused(err error) error {
	if _, own := errors.AsType[*apitype.Error](err); err == nil || own {
		return err
	}
	e, ok := errors.AsType[*netdapi.Error](err)
	if !ok {
		return unavailable(err)
	}
	status := 500
	switch e.Code {
	case netdapi.CodeBadRequest, netdapi.CodeExists, netdapi.CodeNotFound:
		status = 400
	case netdapi.CodeNotPermitted:
		status = 403
	case netdapi.CodeUnavailable:
		status = 503
	}
	return &apitype.Error{Status: status, Message: e.Message}
}

func unavailable(err error) error {
	return &apitype.Error{Status: 503, Message: "no agent can be handed out: " + err.Error(), Hint: `"bawn status" shows what is missing`}
}

// Exited is called when netd says that a session has ended.
func (m *Manager) Exited(e netdapi.Exit) {
	m.mu.Lock()
	r := m.running[e.Session]
	m.mu.Unlock()
	if r == nil {
		return
	}
	if m.release(r) {
		m.end(r, apitype.Exit{Status: e.Status, Fault: e.Fault})
	}
}

// Lost is called when netd is gone: everything that it held has died with it.
func (m *Manager) Lost() {
	m.mu.Lock()
	all := make([]*Running, 0, len(m.running))
	for _, r := range m.running {
		all = append(all, r)
	}
	m.mu.Unlock()
	for _, r := range all {
		if m.release(r) {
			m.end(r, apitype.Exit{Status: 125, Fault: "netd ended, and the agent with it"})
		}
	}
}

// end records how r ended and tells whoever waits.
func (m *Manager) end(r *Running, e apitype.Exit) {
	err := m.o.Registry.EndSession(context.Background(), r.Session.Session, m.o.Now(), e.Status, e.Fault)
	if err != nil {
		m.o.Log.Error("the end of a session could not be recorded", "session", r.Session.Session, "error", err)
	}
	attrs := []any{"session", r.Session.Session, "agent", r.Agent, "status", e.Status}
	if e.Fault != "" {
		attrs = append(attrs, "fault", e.Fault)
	}
	m.o.Log.Log(context.Background(), r.level(), "session ended", attrs...)
	r.exit <- e
}

// level is that of the session's lines in admin's own log. Those of the
// self-test say nothing that its result does not.
func (r *Running) level() slog.Level {
	if r.Agent == Doctor {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// List returns the running sessions, by slot.
func (m *Manager) List() []apitype.Session {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]apitype.Session, 0, len(m.running))
	for _, r := range m.running {
		list = append(list, r.Session)
	}
	slices.SortFunc(list, func(a, b apitype.Session) int { return a.Slot - b.Slot })
	return list
}

// Exit delivers the end of the session, once.
func (r *Running) Exit() <-chan apitype.Exit { return r.exit }

// signals are what an operator may send by name.
var signals = map[string]syscall.Signal{
	"SIGINT": syscall.SIGINT, "SIGQUIT": syscall.SIGQUIT, "SIGTERM": syscall.SIGTERM, "SIGHUP": syscall.SIGHUP,
	"SIGUSR1": syscall.SIGUSR1, "SIGUSR2": syscall.SIGUSR2, "SIGKILL": syscall.SIGKILL,
}

// Signal sends a signal by name to the session's program.
func (r *Running) Signal(ctx context.Context, name string) error {
	sig, ok := signals[name]
	if !ok {
		return fmt.Errorf("signal %q: not one that may be sent", name)
	}
	netd, err := r.m.o.Netd()
	if err != nil {
		return err
	}
	return netd.Signal(ctx, r.Session.Session, sig)
}

// Dial connects to a port of the agent's own loopback. Only ports named at the
// start can be reached, so that a connection cannot be talked into more.
func (r *Running) Dial(ctx context.Context, port uint16) (*os.File, error) {
	if !slices.Contains(r.ports, port) {
		return nil, fmt.Errorf("port %d was not published", port)
	}
	netd, err := r.m.o.Netd()
	if err != nil {
		return nil, err
	}
	return netd.DialSession(ctx, r.Session.Session, port)
}

// Stop ends everything of the session.
func (r *Running) Stop(ctx context.Context) error {
	netd, err := r.m.o.Netd()
	if err != nil {
		return err
	}
	return netd.Stop(ctx, r.Session.Session)
}
