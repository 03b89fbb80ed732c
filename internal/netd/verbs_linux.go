// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netd

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"

	"bawn/internal/ids"
	"bawn/internal/netd/netdapi"
	"bawn/internal/netkern"
)

// A verb is one row of the table below. Who may use it is a column, so that no
// verb is without an answer to that: the zero value is for nobody.
type verb struct {
	admin, proxy bool
	files        bool // may come with descriptors
	do           func(context.Context, *caller, json.RawMessage, []*os.File) (reply, error)
}

var verbs = map[netdapi.Verb]verb{
	netdapi.VerbStatus:        {admin: true, do: bare((*Server).status)},
	netdapi.VerbWatch:         {admin: true, do: bare((*Server).watch)},
	netdapi.VerbAccountCreate: {admin: true, do: with((*Server).createAccount)},
	netdapi.VerbAccountRemove: {admin: true, do: with((*Server).removeAccount)},
	netdapi.VerbStart:         {admin: true, files: true, do: start},
	netdapi.VerbSignal:        {admin: true, do: with((*Server).signal)},
	netdapi.VerbStop:          {admin: true, do: with((*Server).stop)},
	netdapi.VerbDial:          {admin: true, do: with((*Server).dial)},
	netdapi.VerbCounters:      {admin: true, do: with((*Server).counters)},
	netdapi.VerbReach:         {admin: true, do: with((*Server).reach)},
	netdapi.VerbLures:         {admin: true, do: bare((*Server).lures)},
	netdapi.VerbExamine:       {admin: true, do: bare((*Server).examine)},
	netdapi.VerbListeners:     {proxy: true, do: bare((*Server).listeners)},
	netdapi.VerbListenerAck:   {proxy: true, do: with((*Server).acknowledge)},
}

// bare adapts a verb without arguments, with one with arguments of type T.
func bare(do func(*Server, context.Context, *caller) (reply, error)) func(context.Context, *caller, json.RawMessage, []*os.File) (reply, error) {
	return func(ctx context.Context, c *caller, args json.RawMessage, _ []*os.File) (reply, error) {
		if len(args) > 0 {
			return reply{}, netdapi.Errorf(netdapi.CodeBadRequest, "arguments: none are taken")
		}
		return do(c.s, ctx, c)
	}
}

func with[T any](do func(*Server, context.Context, *caller, T) (reply, error)) func(context.Context, *caller, json.RawMessage, []*os.File) (reply, error) {
	return func(ctx context.Context, c *caller, args json.RawMessage, _ []*os.File) (reply, error) {
		v, err := decode[T](args)
		if err != nil {
			return reply{}, err
		}
		return do(c.s, ctx, c, v)
	}
}

func (s *Server) status(context.Context, *caller) (reply, error) {
	st := netdapi.Status{
		Version: s.o.Version, Since: s.since, Firewall: s.wallStatus(),
		Sessions: []netdapi.Session{}, Limits: s.cgroups.Unenforced(),
	}
	if s.firewall != nil {
		if gap := s.firewall.State().Gap; gap != "" {
			st.Warnings = append(st.Warnings, "agents held by uid could reach services of this host for some milliseconds "+
				"should the firewall be flushed: the kernel takes no programs on cgroups: "+gap)
		}
	}
	frozen := s.frozen.isFrozen()
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Proxy = s.feed != nil
	for _, r := range s.sessions {
		if r.child == nil {
			st.Building++
			continue
		}
		st.Proxy = st.Proxy && r.servedBy == s.feed
		st.Sessions = append(st.Sessions, netdapi.Session{
			Identity: r.spec.Identity, Placement: r.spec.Placement, UID: r.spec.UID,
			PID: r.child.PID(), Since: r.since, Frozen: frozen && r.spec.Placement == ids.PlacementUID,
		})
	}
	slices.SortFunc(st.Sessions, func(a, b netdapi.Session) int { return a.Identity.Slot - b.Identity.Slot })
	return reply{result: st}, nil
}

func (s *Server) wallStatus() netdapi.Firewall {
	if s.firewall == nil {
		return netdapi.Firewall{State: "absent", Why: s.noWall.Error()}
	}
	state := s.firewall.State()
	w := netdapi.Firewall{State: "standing", Why: state.Why, Losses: state.Losses, LastLoss: state.LastLoss}
	if !state.Standing {
		w.State = "lost"
	}
	if counters, err := s.firewall.Counters(); err == nil {
		w.Counters = wireCounters(counters)
	}
	return w
}

func wireCounters(in map[string]netkern.Counter) netdapi.Counters {
	out := netdapi.Counters{}
	for name, c := range in {
		out[name] = netdapi.Counter{Packets: c.Packets, Bytes: c.Bytes}
	}
	return out
}

// find gives a session that runs.
func (s *Server) find(name string) (*running, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.sessions[name]
	if r == nil || r.child == nil {
		return nil, netdapi.Errorf(netdapi.CodeNotFound, "session %q: not running", name)
	}
	return r, nil
}

// passable are the signals that a terminal or a service manager sends. SIGSTOP
// is not among them: a stopped session cannot be told from a hung one.
var passable = []syscall.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGKILL,
	syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGCONT, syscall.SIGTSTP,
}

func (s *Server) signal(_ context.Context, _ *caller, a netdapi.SignalArgs) (reply, error) {
	r, err := s.find(a.Session)
	if err != nil {
		return reply{}, err
	}
	sig := syscall.Signal(a.Signal)
	if !slices.Contains(passable, sig) {
		return reply{}, netdapi.Errorf(netdapi.CodeBadRequest, "signal %d: not one that is passed on", a.Signal)
	}
	return reply{}, r.child.Signal(sig)
}

func (s *Server) stop(_ context.Context, _ *caller, a netdapi.SessionRef) (reply, error) {
	r, err := s.find(a.Session)
	if err != nil {
		return reply{}, err
	}
	return reply{}, r.kill()
}

func (s *Server) dial(ctx context.Context, _ *caller, a netdapi.DialArgs) (reply, error) {
	r, err := s.find(a.Session)
	switch {
	case err != nil:
		return reply{}, err
	case a.Port == 0:
		return reply{}, netdapi.Errorf(netdapi.CodeBadRequest, "port 0: not a port")
	case r.ns == nil:
		return reply{}, netdapi.Errorf(netdapi.CodeUnavailable,
			"session %s is held by uid, and its ports cannot be lent: the firewall keeps the host from them too; use the placement netns", a.Session)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	f, err := r.ns.Dial(ctx, a.Port)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return reply{}, netdapi.Errorf(netdapi.CodeUnreachable, "port %d: nobody listens there in session %s", a.Port, a.Session)
	}
	if err != nil {
		return reply{}, err
	}
	return reply{files: []*os.File{f}}, nil
}

func (s *Server) counters(_ context.Context, _ *caller, a netdapi.SessionRef) (reply, error) {
	r, err := s.find(a.Session)
	if err != nil {
		return reply{}, err
	}
	read := func() (map[string]netkern.Counter, error) { return s.firewall.Counters() }
	if r.ns != nil {
		read = r.ns.Counters
	}
	c, err := read()
	if err != nil {
		return reply{}, err
	}
	return reply{result: wireCounters(c)}, nil
}

// reach opens the kernel's bounds of the proxy for what admin names. Where the
// host cannot hold a firewall there are none.
func (s *Server) reach(_ context.Context, _ *caller, a netdapi.Reach) (reply, error) {
	if max(len(a.Resolvers), len(a.Private), len(a.Parents)) > netdapi.MaxReach {
		return reply{}, netdapi.Errorf(netdapi.CodeBadRequest, "reach: more than %d resolvers, ranges or parents", netdapi.MaxReach)
	}
	for _, r := range a.Resolvers {
		if !r.IsValid() || r.Port() == 0 || r.Addr().Zone() != "" {
			return reply{}, netdapi.Errorf(netdapi.CodeBadRequest, "reach: resolver %s is none", r)
		}
	}
	for _, p := range a.Private {
		if !p.IsValid() {
			return reply{}, netdapi.Errorf(netdapi.CodeBadRequest, "reach: range %s is none", p)
		}
	}
	for _, p := range a.Parents {
		if !p.Prefix.IsValid() || p.Port == 0 {
			return reply{}, netdapi.Errorf(netdapi.CodeBadRequest, "reach: parent %s port %d is none", p.Prefix, p.Port)
		}
	}
	if s.noWall != nil {
		return reply{}, nil
	}
	return reply{}, s.firewall.Bound(a.Resolvers, a.Private, a.Parents)
}

// maxUnseen bounds the ends of sessions that are kept for the next admin.
const maxUnseen = 4096

// watch has this caller told of every end from now on.
func (s *Server) watch(_ context.Context, c *caller) (reply, error) {
	s.mu.Lock()
	s.watchers[c] = struct{}{}
	unseen := s.unseen
	s.unseen = nil
	s.mu.Unlock()
	for _, e := range unseen {
		s.tell(e)
	}
	return reply{}, nil
}

// tell sends the end of a session to whoever watches, and keeps it if nobody
// takes it.
func (s *Server) tell(e netdapi.Exit) {
	e.Fault = strings.ToValidUTF8(e.Fault, "\ufffd")
	s.mu.Lock()
	watchers := make([]*caller, 0, len(s.watchers))
	for c := range s.watchers {
		watchers = append(watchers, c)
	}
	s.mu.Unlock()
	told := false
	for _, c := range watchers {
		if err := c.event(netdapi.EventExit, e); err != nil {
			c.conn.Close()
			continue
		}
		told = true
	}
	if told {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.unseen) < maxUnseen {
		s.unseen = append(s.unseen, e)
	}
}
