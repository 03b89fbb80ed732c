// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"bawn/internal/apitype"
	"bawn/internal/peercred"
)

// askTime bounds what the status waits for one part.
const askTime = 2 * time.Second

func (s *Server) status(w http.ResponseWriter, q *http.Request, _ peercred.Peer) error {
	ctx, cancel := context.WithTimeout(q.Context(), askTime)
	defer cancel()
	st := apitype.Status{Version: s.o.Version, Planes: s.planes.list(), Sessions: s.visible(), Why: s.closed(s.o.Config.Placement)}
	netd := s.netdPart(ctx)
	db := apitype.Part{Name: "database", OK: true}
	if agents, err := s.store.Agents(ctx); err != nil {
		db.OK, db.Detail = false, err.Error()
	} else {
		st.Agents = countVisible(agents)
	}
	if snap, err := s.snapshot(ctx); err == nil {
		st.Revision = snap.Revision
	}
	st.Parts = []apitype.Part{netd, {Name: "admin", OK: true}, db}
	st.Journals = s.journals()
	s.mu.Lock()
	st.Doctor = s.doctored
	s.mu.Unlock()
	if st.Why == "" {
		st.Why = firstFault(st)
	}
	st.Ready = st.Why == ""
	writeJSON(w, http.StatusOK, st)
	return nil
}

// firstFault says what keeps agents from being served.
func firstFault(st apitype.Status) string {
	for _, p := range st.Parts {
		if !p.OK {
			return p.Name + ": " + p.Detail
		}
	}
	for _, p := range st.Planes {
		if p.Live {
			return ""
		}
	}
	return "no proxy holds a lease"
}

func (s *Server) netdPart(ctx context.Context) apitype.Part {
	p := apitype.Part{Name: "netd"}
	c, err := s.netd.client()
	if err != nil {
		p.Detail = err.Error()
		return p
	}
	st, err := c.Status(ctx)
	if err != nil {
		p.Detail = err.Error()
		return p
	}
	p.OK = st.Proxy && st.Firewall.State != "lost"
	notes := st.Warnings
	if !st.Proxy {
		notes = append(notes, "no proxy serves the listeners")
	}
	if st.Firewall.State != "standing" {
		notes = append(notes, fmt.Sprintf("firewall for placement uid: %s %s", st.Firewall.State, st.Firewall.Why))
	}
	p.Detail = strings.Join(notes, "; ")
	return p
}
