// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"bawn/internal/ids"
	"bawn/internal/netd/netdapi"
	"bawn/internal/netkern"
	"bawn/internal/netplan"
	"bawn/internal/proc"
	"bawn/internal/undo"
)

// Bounds of single waits. None of them is on the path of a healthy session.
const (
	ackTime   = 2 * time.Second  // the proxy takes over new listeners
	startTime = 30 * time.Second // the program's view stands
	dialTime  = 5 * time.Second
)

// Limits of a session that names none.
const (
	defaultPIDs   = 4096
	defaultMemory = 8 << 30 // bytes
)

// A running is one session. What it is built of is its own until built has
// run.
type running struct {
	s     *Server
	spec  netdapi.StartSpec
	since time.Time
	built undo.Stack

	group *proc.Cgroup
	ns    *netkern.Namespace // netns placement
	own   []netkern.Listener // uid placement

	// Guarded by s.mu.
	child    *proc.Child // nil while it is being built
	seq      uint64      // of the announcement to the proxy; 0: none
	servedBy *feed       // the proxy that has acknowledged

	acked   chan struct{}
	ackOnce sync.Once
}

// listeners are the session's sockets, whatever its placement.
func (r *running) listeners() []netkern.Listener {
	if r.ns != nil {
		return r.ns.Listeners()
	}
	return r.own
}

// start is the verb: it builds a session and hands out its terminal or pipes.
func start(ctx context.Context, c *caller, args json.RawMessage, files []*os.File) (reply, error) {
	spec, err := decode[netdapi.StartSpec](args)
	if err != nil {
		return reply{}, err
	}
	s := c.s
	if err := s.checkSpec(&spec, files); err != nil {
		return reply{}, err
	}
	r := &running{s: s, spec: spec, since: s.o.Now(), acked: make(chan struct{})}
	if err := s.reserve(r); err != nil {
		return reply{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	child, err := r.build(ctx, files)
	if err != nil {
		err = errors.Join(fmt.Errorf("starting session %s: %w", spec.Identity.Session, err), r.built.Run(ctx))
		s.release(r)
		return reply{}, err
	}
	s.mu.Lock()
	r.child = child
	s.mu.Unlock()
	out := []*os.File{child.Stdin, child.Stdout, child.Stderr}
	if spec.TTY {
		out = []*os.File{child.Master}
	}
	// Admin's log has it too, for people; this is for looking at netd alone.
	s.o.Log.Debug("session started", "session", spec.Identity.Session, "agent", spec.Identity.Agent,
		"slot", spec.Identity.Slot, "placement", string(spec.Placement), "pid", child.PID())
	return reply{result: netdapi.Started{Session: spec.Identity.Session}, files: out, after: r.live}, nil
}

// reserve takes the session's name and slot.
func (s *Server) reserve(r *running) error {
	id := r.spec.Identity
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ending:
		return netdapi.Errorf(netdapi.CodeUnavailable, "starting session %s: netd is stopping", id.Session)
	case s.sessions[id.Session] != nil:
		return netdapi.Errorf(netdapi.CodeExists, "starting session %s: it runs already", id.Session)
	case s.slots[id.Slot] != nil:
		return netdapi.Errorf(netdapi.CodeExists, "starting session %s: slot %d is held by session %s",
			id.Session, id.Slot, s.slots[id.Slot].spec.Identity.Session)
	}
	s.sessions[id.Session], s.slots[id.Slot] = r, r
	s.live.Add(1)
	return nil
}

func (s *Server) release(r *running) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, r.spec.Identity.Session)
	delete(s.slots, r.spec.Identity.Slot)
	s.live.Done()
}

// build makes the session's parts in order. On an error the caller runs
// r.built.
func (r *running) build(ctx context.Context, files []*os.File) (child *proc.Child, err error) {
	steps := []struct {
		name string
		do   func() error
	}{
		{"cgroups", r.makeCgroups},
		{"network", func() error { return r.makeNetwork(ctx) }},
		{"proxy", func() error { return r.handOver(ctx) }},
		{"program", func() (err error) { child, err = r.launch(ctx, files); return err }},
		{"last look", func() error { return ctx.Err() }},
	}
	for _, s := range steps {
		err := r.s.o.check(s.name)
		if err == nil {
			err = s.do()
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return child, nil
}

func (r *running) makeCgroups() error {
	l := proc.Limits{PIDs: r.spec.Limits.PIDs, MemoryBytes: r.spec.Limits.MemoryBytes, CPUPercent: r.spec.Limits.CPUPercent}
	if l.PIDs == 0 {
		l.PIDs = defaultPIDs
	}
	if l.MemoryBytes == 0 {
		l.MemoryBytes = defaultMemory
	}
	group, err := r.s.cgroups.New(r.spec.Identity.Slot, l)
	if err != nil {
		return err
	}
	r.group = group
	r.built.Push("cgroups", func(context.Context) error { return errors.Join(group.Kill(), group.Remove()) })
	return nil
}

func (r *running) makeNetwork(ctx context.Context) error {
	if r.spec.Placement == ids.PlacementUID {
		return r.makeUIDNetwork()
	}
	ns, err := netkern.Build(ctx, netplan.ForAgent())
	if err != nil {
		return err
	}
	r.ns = ns
	r.built.Push("namespace", func(context.Context) error { return ns.Close() })
	return nil
}

// makeUIDNetwork opens the session's proxy in the host's network, and the
// firewall for it. From before that the session is frozen whenever the
// firewall is lost.
func (r *running) makeUIDNetwork() error {
	s, slot := r.s, r.spec.Identity.Slot
	if s.firewall == nil {
		return netdapi.Errorf(netdapi.CodeUnavailable, "agents cannot be held by uid on this host: %v", s.noWall)
	}
	l, err := netkern.OpenUIDListener(slot)
	if err != nil {
		return err
	}
	r.own = []netkern.Listener{l}
	r.built.Push("listener", func(context.Context) error { return l.File.Close() })
	if err := s.frozen.add(slot, r.group); err != nil {
		return err
	}
	r.built.Push("freezer", func(context.Context) error { s.frozen.remove(slot); return nil })
	err = s.firewall.Add(netplan.UIDSlot{Slot: slot, UID: r.spec.UID})
	if errors.Is(err, netkern.ErrFirewallLost) {
		return netdapi.Errorf(netdapi.CodeUnavailable, "%v", err)
	}
	if err != nil {
		return err
	}
	r.built.Push("firewall", func(context.Context) error {
		return errors.Join(r.group.Kill(), s.firewall.Remove(slot))
	})
	return nil
}

// handOver gives the listeners to the proxy and waits until it serves them: an
// agent that starts without it would only see errors.
func (r *running) handOver(ctx context.Context) error {
	if err := r.s.announce(r); err != nil {
		return err
	}
	r.built.Push("proxy", func(context.Context) error { r.s.withdraw(r); return nil })
	timer := time.NewTimer(ackTime)
	defer timer.Stop()
	select {
	case <-r.acked:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return netdapi.Errorf(netdapi.CodeUnavailable, "the proxy does not take over the session's listeners; is it running?")
	}
}

func (r *running) launch(ctx context.Context, files []*os.File) (*proc.Child, error) {
	var ns *os.File
	spec := r.procSpec(files)
	if r.ns != nil {
		ns = r.ns.File()
		spec.Nameservers = []string{netplan.Gateway.String()}
	}
	child, err := proc.Start(ctx, spec, ns, r.group)
	if err != nil {
		return nil, err
	}
	r.built.Push("program", func(context.Context) error { return child.Close() })
	return child, nil
}

func (r *running) procSpec(files []*os.File) proc.Spec {
	s := r.spec
	mount := func(m *netdapi.Mount) *proc.Mount {
		if m == nil {
			return nil
		}
		return &proc.Mount{Dir: files[m.FD], Path: m.Path, OwnerUID: m.OwnerUID, OwnerGID: m.OwnerGID}
	}
	out := proc.Spec{
		Session: s.Identity.Session, Agent: s.Identity.Agent, UID: s.UID, GID: s.UID,
		Argv: s.Argv, Exec: s.Exec, Env: s.Env, Dir: s.Dir, TTY: s.TTY, Rows: s.Rows, Cols: s.Cols,
		State: r.s.o.State, Hide: r.s.o.Hide, Work: mount(s.Work), Repo: mount(s.Repo),
	}
	for i := range s.Lends {
		out.Lends = append(out.Lends, *mount(&s.Lends[i]))
	}
	return out
}

// kill ends everything that runs in the session.
func (r *running) kill() error { return errors.Join(r.child.Kill(), r.group.Kill()) }

// live follows the session to its end. A session that nobody could be told of
// is ended at once.
func (r *running) live(sent error) {
	if sent != nil {
		r.s.o.Log.Warn("session ended: its caller is gone", "session", r.spec.Identity.Session, "error", sent)
		r.child.Kill()
	}
	go r.follow()
}

func (r *running) follow() {
	exit := r.child.Wait()
	id := r.spec.Identity
	if err := r.built.Run(context.Background()); err != nil {
		r.s.o.Log.Error("taking apart a session", "session", id.Session, "slot", id.Slot, "error", err)
	}
	r.s.o.Log.Debug("session ended", "session", id.Session, "agent", id.Agent, "slot", id.Slot, "status", exit.Status)
	r.s.release(r)
	r.s.tell(netdapi.Exit{Session: id.Session, Status: exit.Status, Fault: exit.Fault})
}

// endAll ends every session and waits until all are taken apart.
func (s *Server) endAll() {
	s.mu.Lock()
	s.ending = true
	var all []*running
	for _, r := range s.sessions {
		if r.child != nil {
			all = append(all, r)
		}
	}
	s.mu.Unlock()
	for _, r := range all {
		if err := r.kill(); err != nil {
			s.o.Log.Error("ending a session", "session", r.spec.Identity.Session, "error", err)
		}
	}
	s.live.Wait()
}
