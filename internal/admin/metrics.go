// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"net/http"

	"bawn/internal/apitype"
	"bawn/internal/doctor"
	"bawn/internal/ids"
	"bawn/internal/metrics"
	"bawn/internal/peercred"
)

// metrics answers with everything that is counted.
func (s *Server) metrics(w http.ResponseWriter, q *http.Request, _ peercred.Peer) error {
	ctx, cancel := context.WithTimeout(q.Context(), askTime)
	defer cancel()
	text := metrics.Write(s.samples(ctx))
	w.Header().Set("Content-Type", metrics.ContentType)
	w.WriteHeader(http.StatusOK)
	_, err := w.Write(text)
	return err
}

// samples are those of all planes, and admin's own.
func (s *Server) samples(ctx context.Context) []apitype.Sample {
	var list []apitype.Sample
	for _, r := range s.reports.all(s.o.Now()) {
		list = append(list, r.Samples...)
		list = append(list, metrics.Value("bawn_report_timestamp_seconds", metrics.Time(r.at), r.Plane))
	}
	list = append(list, metrics.OfJournal("admin", s.acts.Stats())...)
	list = append(list, s.proofSamples()...)
	list = append(list, s.indexSamples()...)
	list = append(list, s.processSamples(ctx)...)
	list = append(list, s.leaseSamples()...)
	list = append(list, s.doctorSamples()...)
	return append(list, s.storeSamples(ctx)...)
}

func (s *Server) proofSamples() []apitype.Sample {
	var list []apitype.Sample
	for _, st := range s.signer.States() {
		list = append(list,
			metrics.Value("bawn_checkpoint_timestamp_seconds", metrics.Time(st.Signed), st.Series),
			metrics.Value("bawn_checkpoint_waiting_records", float64(st.Waiting), st.Series),
			metrics.Value("bawn_journal_broken", metrics.Yes(st.Broken != ""), st.Series))
	}
	return list
}

// processSamples says which processes answer, and since when they run.
func (s *Server) processSamples(ctx context.Context) []apitype.Sample {
	up := func(name string, yes bool) apitype.Sample {
		return metrics.Value("bawn_process_up", metrics.Yes(yes), name)
	}
	list := []apitype.Sample{
		up("admin", true), metrics.Value("bawn_process_start_time_seconds", metrics.Time(s.began), "admin"),
		metrics.Value("bawn_ready", metrics.Yes(s.closed(s.o.Config.Placement) == "")),
	}
	c, err := s.netd.client()
	if err == nil {
		st, asked := c.Status(ctx)
		if err = asked; err == nil {
			list = append(list, metrics.Value("bawn_process_start_time_seconds", metrics.Time(st.Since), "netd"))
		}
	}
	list = append(list, up("netd", err == nil))
	proxy := false
	for _, p := range s.planes.list() {
		proxy = proxy || p.Live
	}
	return append(list, up("proxy", proxy))
}

func (s *Server) leaseSamples() []apitype.Sample {
	var list []apitype.Sample
	for _, p := range s.planes.list() { // the newest last, which counts
		list = append(list,
			metrics.Value("bawn_lease_held", metrics.Yes(p.Live), p.Name),
			metrics.Value("bawn_lease_beat_timestamp_seconds", metrics.Time(p.Asked), p.Name),
			metrics.Value("bawn_lease_revision", float64(p.Revision), p.Name))
	}
	if len(list) == 0 {
		list = append(list, metrics.Value("bawn_lease_held", 0, "proxy"))
	}
	return list
}

// doctorSamples says how the newest self-test ended, whoever asked for it.
func (s *Server) doctorSamples() []apitype.Sample {
	s.mu.Lock()
	d := s.doctored
	s.mu.Unlock()
	if d == nil {
		return nil
	}
	count := map[[3]string]int{}
	for _, l := range d.Lines {
		at := [3]string{l.Group, "host", l.State}
		if l.Placement != "" {
			at[1] = string(l.Placement)
		}
		if metrics.Check(metrics.Value("bawn_doctor_checks", 1, at[:]...)) != nil {
			at[0] = "other"
		}
		for _, state := range []doctor.State{doctor.OK, doctor.Warn, doctor.Fail} {
			count[[3]string{at[0], at[1], string(state)}] += 0
		}
		count[at]++
	}
	list := []apitype.Sample{metrics.Value("bawn_doctor_run_timestamp_seconds", metrics.Time(d.At))}
	for at, n := range count {
		list = append(list, metrics.Value("bawn_doctor_checks", float64(n), at[:]...))
	}
	return list
}

// storeSamples counts what there is. While the database cannot be read there is
// nothing to say, and bawn_ready or the lease shows it.
func (s *Server) storeSamples(ctx context.Context) []apitype.Sample {
	var list []apitype.Sample
	if agents, err := s.store.Agents(ctx); err == nil {
		list = append(list, metrics.Value("bawn_agents", float64(countVisible(agents))))
	}
	if r, err := s.store.LatestRevision(ctx); err == nil {
		list = append(list,
			metrics.Value("bawn_policy_revision", float64(r.Number)),
			metrics.Value("bawn_policy_applied_timestamp_seconds", metrics.Time(r.At)))
	} else if snap := s.planes.snapshot(); snap.Revision == 0 {
		list = append(list, metrics.Value("bawn_policy_revision", 0))
	}
	sessions := map[ids.Placement]int{ids.PlacementNetns: 0, ids.PlacementUID: 0}
	for _, x := range s.visible() {
		sessions[x.Placement]++
	}
	for placement, n := range sessions {
		list = append(list, metrics.Value("bawn_sessions", float64(n), string(placement)))
	}
	return list
}

// indexSamples says how far the audit index is behind.
func (s *Server) indexSamples() []apitype.Sample {
	h := s.index.Health()
	return []apitype.Sample{
		metrics.Value("bawn_index_lag_seconds", h.Lag.Seconds()),
		metrics.Value("bawn_index_behind_bytes", float64(h.Behind)),
		metrics.Value("bawn_index_bytes", float64(h.Bytes)),
		metrics.Value("bawn_index_damages", float64(h.Damages)),
	}
}
