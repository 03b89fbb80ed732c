// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netd

import (
	"context"
	"fmt"
	"slices"

	"bawn/internal/doctor"
	"bawn/internal/ids"
	"bawn/internal/inspect"
	"bawn/internal/netd/netdapi"
	"bawn/internal/netkern"
	"bawn/internal/netplan"
)

// examine looks at the host as only root may, and changes nothing.
func (s *Server) examine(ctx context.Context, c *caller) (reply, error) {
	h := s.o.Inspect
	h.Limits = s.cgroups.Unenforced()
	h.Mark = s.o.Mark
	if root, err := netkern.CgroupRoot(); err == nil {
		h.Cgroups = root
	}
	h.Processes = []inspect.Process{{Name: "admin", PID: int(c.peer.PID), UID: int(c.peer.UID)}}
	s.mu.Lock()
	if s.feed != nil {
		peer := s.feed.caller.peer
		h.Processes = append(h.Processes, inspect.Process{Name: "proxy", PID: int(peer.PID), UID: int(peer.UID)})
	}
	s.mu.Unlock()
	list := append(h.All(), s.examineFirewall(ctx)...)
	return reply{result: netdapi.Examined{Findings: list}}, nil
}

// examineFirewall compares rules with their plan, and looks at those of others.
func (s *Server) examineFirewall(ctx context.Context) []doctor.Finding {
	return append(judgeChains(netkern.OtherChains(nil)), s.stands(), s.namespacesPlanned(ctx), s.hostPlanned())
}

// judgeChains judges what the kernel says of other tables. That it says nothing
// is another failure.
func judgeChains(chains []netkern.OtherChain, err error) []doctor.Finding {
	if err != nil {
		var list []doctor.Finding
		for _, name := range []doctor.Name{doctor.Nftables, doctor.Foreign, doctor.Forward} {
			list = append(list, doctor.Finding{Name: name, State: doctor.Fail, Seen: err.Error()})
		}
		return list
	}
	other := make([]doctor.OtherChain, len(chains))
	for i, c := range chains {
		other[i] = doctor.OtherChain(c)
	}
	return append(doctor.OfOthers(other), doctor.Finding{Name: doctor.Nftables, State: doctor.OK})
}

func (s *Server) stands() doctor.Finding {
	f := doctor.Finding{Name: doctor.RulesStand, State: doctor.OK}
	w := s.wallStatus()
	switch w.State {
	case "standing":
		if w.Losses > 0 {
			f.State, f.Seen = doctor.Warn, fmt.Sprintf("it was lost %d times since netd started, last at %s; agents were held still meanwhile", w.Losses, w.LastLoss.Format("15:04:05"))
		}
	case "absent":
		f = doctor.Finding{Name: doctor.RulesStand, State: doctor.NotApplicable, Seen: "no agent can be held by uid: " + w.Why}
	default:
		f.State, f.Seen = doctor.Fail, w.Why
	}
	return f
}

func (s *Server) hostPlanned() doctor.Finding {
	f := doctor.Finding{Name: doctor.RulesPlanned, Placement: ids.PlacementUID, State: doctor.OK}
	if s.noWall != nil {
		return doctor.Finding{Name: doctor.RulesPlanned, Placement: ids.PlacementUID, State: doctor.NotApplicable, Seen: s.noWall.Error()}
	}
	if err := s.firewall.Check(); err != nil {
		f.State, f.Seen = doctor.Fail, err.Error()
	}
	return f
}

// namespacesPlanned compares the namespace of every session with one that is
// built from the same plan for the purpose.
func (s *Server) namespacesPlanned(ctx context.Context) doctor.Finding {
	f := doctor.Finding{Name: doctor.RulesPlanned, Placement: ids.PlacementNetns, State: doctor.Fail}
	fresh, err := netkern.Build(ctx, netplan.ForAgent())
	if err != nil {
		f.Seen = err.Error()
		return f
	}
	defer fresh.Close()
	s.mu.Lock()
	var all []*running
	for _, r := range s.sessions {
		if r.ns != nil && r.child != nil {
			all = append(all, r)
		}
	}
	s.mu.Unlock()
	var bad []string
	for _, r := range all {
		if err := r.ns.Same(fresh); err != nil && s.runs(r) {
			bad = append(bad, fmt.Sprintf("session %s: %v", r.spec.Identity.Session, err))
		}
	}
	if len(bad) > 0 {
		slices.Sort(bad)
		f.Seen = doctor.Summary(bad)
		f.Fix = "end the sessions that are named, and find what changes the tables of their namespaces: it has root's rights"
		return f
	}
	f.State, f.Seen = doctor.OK, fmt.Sprintf("%d namespaces", len(all))
	return f
}

// runs reports whether a session has not ended meanwhile.
func (s *Server) runs(r *running) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[r.spec.Identity.Session] == r
}
