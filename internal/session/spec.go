// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path"

	"bawn/internal/agentenv"
	"bawn/internal/apitype"
	"bawn/internal/ids"
	"bawn/internal/netd/netdapi"
	"bawn/internal/netplan"
	"bawn/internal/peercred"
	"bawn/internal/proc"
	"bawn/internal/store"
)

// Doctor is the name of the self-test's agent. Operators neither see nor name
// it.
const Doctor = "doctor"

// spec turns what a caller asks for into what netd builds. It has no slot yet,
// and so no environment: see [Manager.place].
func (m *Manager) spec(caller peercred.Peer, agent store.Agent, start apitype.StartSession, files []*os.File) (netdapi.StartSpec, error) {
	var s netdapi.StartSpec
	if err := checkStart(start, len(files)); err != nil {
		return s, err
	}
	for _, kv := range start.Env {
		if err := agentenv.CheckGiven(kv); err != nil {
			return s, bad("environment: %v", err)
		}
	}
	placement, err := placementOf(start, agent)
	if err != nil {
		return s, err
	}
	s = netdapi.StartSpec{
		Placement: placement, UID: agent.UID, Argv: start.Argv, Env: start.Env,
		TTY: start.TTY, Rows: start.Rows, Cols: start.Cols, Limits: m.limits(),
	}
	s.Operator = start.Proof
	return s, mounts(&s, caller, start, files)
}

func (m *Manager) limits() netdapi.Limits {
	l := m.o.Limits
	return netdapi.Limits{PIDs: l.PIDs, MemoryBytes: int64(l.MemoryMiB) << 20, CPUPercent: l.CPUPercent}
}

func mounts(s *netdapi.StartSpec, caller peercred.Peer, start apitype.StartSession, files []*os.File) (err error) {
	if start.Work != nil {
		if s.Work, err = mount(caller, *start.Work, files, true); err != nil {
			return err
		}
	}
	if start.Repo != nil {
		if s.Repo, err = mount(caller, *start.Repo, files, false); err != nil {
			return err
		}
	}
	for _, l := range start.Lends {
		lent, err := mount(caller, l, files, false)
		if err != nil {
			return err
		}
		s.Lends = append(s.Lends, *lent)
	}
	return nil
}

// place completes s for the slot of r: the environment names the slot's proxy.
func place(s *netdapi.StartSpec, r *Running, agent string) {
	s.Identity = r.Identity
	work := proc.WorkPath
	if s.Work != nil {
		work = s.Work.Path
	}
	e := agentenv.Spec{
		Agent: agent, Session: r.Session.Session, Home: path.Join(proc.HomeRoot, agent), Work: work, Temp: "/tmp",
		Runtime: fmt.Sprintf("/run/user/%d", s.UID),
		Shell:   "/bin/bash", Proxy: proxyOf(s.Placement, r.Slot), Given: s.Env,
		CA: path.Join(proc.PublicPath, proc.CAFile), Bundle: path.Join(proc.PublicPath, proc.BundleFile),
	}
	for _, l := range s.Lends {
		e.Lends = append(e.Lends, l.Path)
	}
	s.Env = agentenv.Env(e)
}

func proxyOf(p ids.Placement, slot int) string {
	if p == ids.PlacementUID {
		return netplan.UIDProxy(slot).String()
	}
	return netip.AddrPortFrom(netplan.Gateway, netplan.ProxyPort).String()
}

// Probe runs Bawn's own binary with args as the self-test's agent in placement
// p, whether or not agents are handed out there. It returns the pipes to
// standard input and from standard output and error.
func (m *Manager) Probe(ctx context.Context, agent store.Agent, p ids.Placement, args ...string) (*Running, []*os.File, error) {
	s := netdapi.StartSpec{Placement: p, UID: agent.UID, Exec: args, Limits: m.limits()}
	return m.launch(ctx, agent, s, nil, nil)
}
