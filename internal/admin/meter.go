// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"cmp"
	"net/http"
	"slices"
	"sync"
	"time"

	"bawn/internal/apitype"
	"bawn/internal/ids"
	"bawn/internal/metrics"
	"bawn/internal/peercred"
)

// reports keeps what planes said last of what they count.
type reports struct {
	mu      sync.Mutex
	byPlane map[string]reported
}

type reported struct {
	apitype.PlaneReport
	at time.Time
}

// reportLife is how long a report stands. What a plane that is gone has counted
// is no state any more.
const reportLife = 30 * time.Second

// maxSamples bounds a report; there are a few hundred series.
const maxSamples = 4096

// report keeps what a plane counts. It is believed in its numbers and in nothing
// else: names and labels have to be those that metrics have.
func (s *Server) report(w http.ResponseWriter, q *http.Request, _ peercred.Peer) error {
	var r apitype.PlaneReport
	if err := readJSON(q, &r); err != nil {
		return err
	}
	if !slices.Contains(metrics.Reporters(), r.Plane) {
		return badRequest("report: plane %q is unknown", r.Plane)
	}
	if len(r.Samples) > maxSamples {
		return badRequest("report: %d samples", len(r.Samples))
	}
	for _, x := range r.Samples {
		if err := metrics.Check(x); err != nil {
			return badRequest("report: %v", err)
		}
	}
	s.reports.mu.Lock()
	defer s.reports.mu.Unlock()
	if s.reports.byPlane == nil {
		s.reports.byPlane = map[string]reported{}
	}
	s.reports.byPlane[r.Plane] = reported{r, s.o.Now()}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// all lists the reports that stand at the time now.
func (r *reports) all(now time.Time) []reported {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []reported
	for _, one := range r.byPlane {
		if now.Sub(one.at) < reportLife {
			list = append(list, one)
		}
	}
	return list
}

// budgets answers with what agents have used of their budgets.
func (s *Server) budgets(w http.ResponseWriter, q *http.Request, _ peercred.Peer) error {
	agent := q.URL.Query().Get("agent")
	if agent != "" {
		if err := ids.CheckName(agent); err != nil {
			return badRequest("budgets: %v", err)
		}
		if _, err := s.agent(q.Context(), agent); err != nil {
			return err
		}
	}
	out := apitype.Budgets{Budgets: []apitype.BudgetUse{}}
	for _, r := range s.reports.all(s.o.Now()) {
		if r.at.After(out.At) {
			out.At = r.at
		}
		for _, b := range r.Budgets {
			if agent == "" || b.Agent == agent {
				out.Budgets = append(out.Budgets, b)
			}
		}
	}
	slices.SortStableFunc(out.Budgets, func(a, b apitype.BudgetUse) int {
		return cmp.Or(cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.Rule, b.Rule))
	})
	writeJSON(w, http.StatusOK, out)
	return nil
}
