// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"iter"
	"net/http"
	"slices"

	"bawn/internal/apitype"
	"bawn/internal/audit"
	"bawn/internal/hindsight"
	"bawn/internal/lease"
	"bawn/internal/peercred"
	"bawn/internal/policy"
	"bawn/internal/session"
	"bawn/internal/store"
)

// records are what is on record, oldest first: from the index, or where that is
// behind, from the proxy's journal. The note says in which way it is not all.
func (s *Server) records(ctx context.Context, f audit.Filter) (entries iter.Seq2[audit.Entry, error], note string) {
	f.NoActs = true
	if f.Agent == "" {
		f.Except = session.Doctor
	}
	note, caughtUp := s.note(ctx)
	if !caughtUp {
		return audit.Scan(s.o.Paths.Journal("proxy"), f), note + "; this was read from the journal itself"
	}
	return s.index.Entries(ctx, f), note
}

// looksBack lets one reader of the whole record work at a time: each may take a
// processor for minutes.
func (s *Server) looksBack() (done func(), err error) {
	if !s.lookingBack.TryLock() {
		return nil, &apitype.Error{Status: http.StatusConflict, Message: "another replay or suggestion is under way", Hint: "it ends with the command that asked for it"}
	}
	return s.lookingBack.Unlock, nil
}

func (s *Server) replayPolicy(w http.ResponseWriter, q *http.Request, _ peercred.Peer) error {
	var a apitype.ReplayPolicy
	if err := readJSON(q, &a); err != nil {
		return err
	}
	done, err := s.looksBack()
	if err != nil {
		return err
	}
	defer done()
	ctx := q.Context()
	if err := s.known(ctx, a.Agent); err != nil {
		return err
	}
	c := hindsight.Candidate{Past: s.pastPolicies(ctx), Now: s.o.Now()}
	if c.Policy, err = s.candidate(ctx, a.YAML); err != nil {
		return err
	}
	if c.InForce, c.Agents, err = s.inForceWith(ctx, nil); err != nil {
		return err
	}
	entries, note := s.records(ctx, audit.Filter{Agent: a.Agent, Since: a.Since, Until: a.Until})
	report, err := hindsight.Replay(ctx, c, entries)
	if err != nil {
		return err
	}
	report.Note = note
	writeJSON(w, http.StatusOK, report)
	return nil
}

// known refuses the name of an agent that there is not; none is all of them.
func (s *Server) known(ctx context.Context, agent string) error {
	if agent == "" {
		return nil
	}
	_, err := s.agent(ctx, agent)
	return err
}

// inForceWith compiles what is in force with further rules, as strictly as a
// policy that is applied. Without a policy it is the one that allows nothing.
func (s *Server) inForceWith(ctx context.Context, extra []policy.Grant) (*policy.Policy, map[string]bool, error) {
	snap, err := s.snapshot(ctx)
	if err != nil {
		return nil, nil, err
	}
	if snap.YAML == "" {
		snap.YAML = "version: 1\n"
	}
	agents := lease.Known(snap.Agents).Agents
	delete(agents, session.Doctor)
	if extra == nil {
		p, err := lease.Compile(snap)
		return p, agents, err
	}
	for _, g := range extra {
		snap.Grants = append(snap.Grants, apitype.SnapshotGrant{ID: g.ID, Agent: g.Agent, Rule: g.Rule, Until: g.Until})
	}
	p, err := lease.Check(snap, s.credentials())
	return p, agents, err
}

// pastPolicies finds the policies of old revisions. Agents and credentials may
// have gone since; that a guard judged is what counts.
func (s *Server) pastPolicies(ctx context.Context) func(uint64) *policy.Policy {
	compiled := map[uint64]*policy.Policy{}
	var registry []store.Agent
	return func(n uint64) *policy.Policy {
		if p, have := compiled[n]; have {
			return p
		}
		compiled[n] = nil
		r, err := s.store.Revision(ctx, n)
		if err != nil {
			return nil
		}
		if registry == nil {
			if registry, err = s.store.Agents(ctx); err != nil {
				return nil
			}
		}
		known := policy.Known{AnyAgent: true, AnyCredential: true, Agents: map[string]bool{}, Profiles: map[string]string{}}
		for _, a := range registry {
			known.Agents[a.Name], known.Profiles[a.Name] = true, a.Profile
		}
		p, err := policy.Load([]byte(r.YAML), known)
		if err == nil {
			compiled[n] = p
		}
		return compiled[n]
	}
}

// suggestKeys are the query parameters of suggestions.
var suggestKeys = []string{"agent", "since"}

func (s *Server) suggestPolicy(w http.ResponseWriter, q *http.Request, _ peercred.Peer) error {
	values := q.URL.Query()
	for k := range values {
		if !slices.Contains(suggestKeys, k) || len(values[k]) != 1 {
			return badRequest("suggesting: parameter %q is unknown or given twice", k)
		}
	}
	since, err := filterTime("since", values.Get("since"))
	if err != nil {
		return err
	}
	done, err := s.looksBack()
	if err != nil {
		return err
	}
	defer done()
	ctx := q.Context()
	agent := values.Get("agent")
	if err := s.known(ctx, agent); err != nil {
		return err
	}
	wish := hindsight.Wish{Agent: agent, Since: since, Now: s.o.Now(), With: func(extra []policy.Grant) (*policy.Policy, error) {
		p, _, err := s.inForceWith(ctx, extra)
		return p, err
	}}
	if _, wish.Agents, err = s.inForceWith(ctx, nil); err != nil {
		return err
	}
	// Of all agents, also where suggestions are for one: who has reached a name
	// is not a question of whose it is.
	entries, note := s.records(ctx, audit.Filter{Since: since})
	out, err := hindsight.Suggest(ctx, wish, entries)
	if err != nil {
		return err
	}
	out.Note = note
	writeJSON(w, http.StatusOK, out)
	return nil
}
