// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/user"
	"strconv"
	"strings"

	"bawn/internal/apitype"
	"bawn/internal/lease"
	"bawn/internal/peercred"
	"bawn/internal/policy"
	"bawn/internal/store"
)

// snapshot reads what planes are to enforce from the database.
func (s *Server) snapshot(ctx context.Context) (apitype.Snapshot, error) {
	var snap apitype.Snapshot
	rev, err := s.store.LatestRevision(ctx)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return snap, err
	}
	agents, err := s.store.Agents(ctx)
	if err != nil {
		return snap, err
	}
	snap.Revision, snap.YAML = rev.Number, rev.YAML
	for _, a := range agents {
		snap.Agents = append(snap.Agents, apitype.SnapshotAgent{Name: a.Name, ID: a.ID, Profile: a.Profile})
	}
	if snap.Grants, err = s.snapshotGrants(ctx, agents); err != nil {
		return snap, err
	}
	snap.Tag = tag(snap)
	return snap, nil
}

// publish makes the planes enforce what the database holds now, and returns
// when they do or hold no lease any more.
func (s *Server) publish(ctx context.Context) (apitype.Snapshot, error) {
	snap, err := s.snapshot(ctx)
	if err != nil {
		return snap, err
	}
	if err := s.widen(ctx, snap); err != nil {
		return snap, err
	}
	s.planes.set(snap)
	if err := s.planes.settle(ctx, snap.Tag); err != nil {
		return snap, err
	}
	s.wantTest(causePolicy)
	return snap, s.narrow(ctx)
}

func (s *Server) applyPolicy(w http.ResponseWriter, q *http.Request, peer peercred.Peer) error {
	var a apitype.ApplyPolicy
	if err := readJSON(q, &a); err != nil {
		return err
	}
	return s.apply(w, q, peer, a)
}

func (s *Server) rollbackPolicy(w http.ResponseWriter, q *http.Request, peer peercred.Peer) error {
	var r apitype.RollbackPolicy
	if err := readJSON(q, &r); err != nil {
		return err
	}
	old, err := s.revision(q.Context(), r.Revision)
	if err != nil {
		return err
	}
	why := r.Why
	if why == "" {
		why = fmt.Sprintf("rollback to revision %d", r.Revision)
	}
	return s.apply(w, q, peer, apitype.ApplyPolicy{YAML: old.YAML, Why: why})
}

// apply checks, stores and puts in force, in this order; a policy with a
// problem changes nothing.
func (s *Server) apply(w http.ResponseWriter, q *http.Request, peer peercred.Peer, a apitype.ApplyPolicy) error {
	s.applies.Lock()
	defer s.applies.Unlock()
	// Whoever asked may go away; what is stored is put in force all the same.
	ctx := context.WithoutCancel(q.Context())
	candidate, err := s.snapshot(ctx)
	if err != nil {
		return err
	}
	if a.Base != 0 && a.Base != candidate.Revision {
		return &apitype.Error{Status: http.StatusConflict, Message: fmt.Sprintf("revision %d is in force, not %d", candidate.Revision, a.Base), Hint: "look at what changed, then apply again"}
	}
	candidate.YAML = a.YAML
	p, err := lease.Check(candidate, s.credentials())
	if err != nil || p == nil {
		return invalid(err)
	}
	n, err := s.store.AddRevision(ctx, store.Revision{YAML: a.YAML, UID: peer.UID, Account: accountOf(peer.UID), Why: a.Why, At: s.o.Now(), BasedOn: candidate.Revision})
	if err != nil {
		return err
	}
	s.o.Log.Info("policy applied", "revision", n, "uid", peer.UID, "why", a.Why)
	if _, err := s.publish(ctx); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, apitype.Applied{Revision: n, Planes: s.planes.list(), Warnings: s.warnings(p)})
	return nil
}

// checkPolicy says what apply would, and does nothing.
func (s *Server) checkPolicy(w http.ResponseWriter, q *http.Request, _ peercred.Peer) error {
	var c apitype.CheckPolicy
	if err := readJSON(q, &c); err != nil {
		return err
	}
	p, err := s.candidate(q.Context(), c.YAML)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, apitype.Checked{Warnings: s.warnings(p)})
	return nil
}

// candidate compiles a policy as it would be enforced now.
func (s *Server) candidate(ctx context.Context, yaml string) (*policy.Policy, error) {
	snap, err := s.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	snap.YAML = yaml
	p, err := lease.Check(snap, s.credentials())
	if err != nil || p == nil {
		return nil, invalid(err)
	}
	return p, nil
}

func (s *Server) warnings(p *policy.Policy) []string {
	var list []string
	for _, warn := range p.Warnings(s.o.Now()) {
		list = append(list, warn.Error())
	}
	return append(list, s.parentWarnings(p)...)
}

// credentials are those that policy may name, without what is secret of them.
func (s *Server) credentials() map[string]policy.Credential {
	m := map[string]policy.Credential{}
	for name, c := range s.o.Config.Credentials {
		m[name] = policy.Credential{Kind: policy.CredentialKind(c.Kind), Hosts: c.HostNames()}
	}
	return m
}

func invalid(err error) error {
	if err == nil {
		return &apitype.Error{Status: http.StatusUnprocessableEntity, Code: "policy_invalid", Message: "the policy is empty", Hint: "a policy that allows nothing is: version: 1"}
	}
	return &apitype.Error{Status: http.StatusUnprocessableEntity, Code: "policy_invalid", Message: "the policy is refused, and nothing was changed:\n" + err.Error()}
}

// accountOf names an account for the record; the uid is what counts.
func accountOf(uid uint32) string {
	u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return ""
	}
	return u.Username
}

func (s *Server) revision(ctx context.Context, n uint64) (store.Revision, error) {
	var r store.Revision
	var err error
	if n == 0 {
		r, err = s.store.LatestRevision(ctx)
	} else {
		r, err = s.store.Revision(ctx, n)
	}
	if errors.Is(err, store.ErrNotFound) {
		return r, &apitype.Error{Status: http.StatusNotFound, Message: noRevision(n), Hint: `"bawn policy apply FILE" makes one; "bawn policy revisions" lists them`}
	}
	return r, err
}

func noRevision(n uint64) string {
	if n == 0 {
		return "no policy was applied yet"
	}
	return fmt.Sprintf("there is no revision %d", n)
}

func (s *Server) showPolicy(w http.ResponseWriter, q *http.Request, _ peercred.Peer) error {
	var n uint64
	if text := q.URL.Query().Get("revision"); text != "" {
		var err error
		if n, err = strconv.ParseUint(text, 10, 64); err != nil {
			return badRequest("revision %q is not a number", text)
		}
	}
	r, err := s.revision(q.Context(), n)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, apiRevision(r))
	return nil
}

func apiRevision(r store.Revision) apitype.Revision {
	return apitype.Revision{Number: r.Number, At: r.At, UID: r.UID, Account: r.Account, Why: r.Why, YAML: r.YAML}
}

func (s *Server) listRevisions(w http.ResponseWriter, q *http.Request, _ peercred.Peer) error {
	revs, err := s.store.Revisions(q.Context())
	if err != nil {
		return err
	}
	list := make([]apitype.Revision, 0, len(revs))
	for _, r := range revs {
		list = append(list, apiRevision(r))
	}
	writeJSON(w, http.StatusOK, list)
	return nil
}

// current compiles the policy in force.
func (s *Server) current(ctx context.Context) (*policy.Policy, uint64, error) {
	snap, err := s.snapshot(ctx)
	if err != nil {
		return nil, 0, err
	}
	p, err := lease.Compile(snap)
	if err != nil {
		return nil, 0, invalid(err)
	}
	if p == nil {
		_, err := s.revision(ctx, 0)
		return nil, 0, err
	}
	return p, snap.Revision, nil
}

func (s *Server) effectivePolicy(w http.ResponseWriter, q *http.Request, _ peercred.Peer) error {
	p, n, err := s.current(q.Context())
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, apitype.Text{Revision: n, Text: p.Effective()})
	return nil
}

func (s *Server) explainPolicy(w http.ResponseWriter, q *http.Request, _ peercred.Peer) error {
	var e apitype.ExplainPolicy
	if err := readJSON(q, &e); err != nil {
		return err
	}
	p, n, err := s.current(q.Context())
	if err != nil {
		return err
	}
	if _, err := s.agent(q.Context(), e.Agent); err != nil {
		return err
	}
	if !strings.Contains(e.URL, "://") && e.Method != "" && e.Method != http.MethodConnect {
		return &apitype.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("explaining: reading %q: begins with none of https://, http://, wss:// and ws://", e.URL), Hint: "with method CONNECT, HOST[:PORT] asks about name and port alone"}
	}
	x, err := p.Explain(e.Agent, e.Method, e.URL, s.o.Now())
	if err != nil {
		return badRequest("explaining: %v", err)
	}
	if !e.All {
		x = x.About()
	}
	v := x.Decision.Verdict
	writeJSON(w, http.StatusOK, apitype.Explained{Effect: v.Effect.String(), Code: string(v.Code), Rule: v.Rule, Revision: n, Text: x.String()})
	return nil
}
