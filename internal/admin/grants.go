// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"bawn/internal/apitype"
	"bawn/internal/audit"
	"bawn/internal/lease"
	"bawn/internal/peercred"
	"bawn/internal/policy"
	"bawn/internal/store"
)

const (
	// maxGrants is how many grants of one agent may be in force.
	maxGrants = 64
	// A grant that has ended stays with the planes for as long, so that what only
	// it allowed is refused with rule_expired, and what it let through is cut so.
	rememberGrant = time.Hour
)

// snapshotGrants are the grants that planes have to know of.
func (s *Server) snapshotGrants(ctx context.Context, agents []store.Agent) ([]apitype.SnapshotGrant, error) {
	now := s.o.Now()
	all, err := s.store.Grants(ctx, now.Add(-rememberGrant))
	if err != nil {
		return nil, err
	}
	registered := map[string]bool{}
	for _, a := range agents {
		registered[a.ID] = true
	}
	var list []apitype.SnapshotGrant
	for _, g := range all {
		if !registered[g.AgentID] || now.Sub(g.Until) > rememberGrant {
			continue
		}
		list = append(list, apitype.SnapshotGrant{
			ID: ruleOfGrant(g.Number), Agent: g.Agent, Rule: g.Rule, Until: g.Until,
			Ended: !inForce(g, now), By: byWhom(g), Reason: g.Reason,
		})
	}
	return list, nil
}

func inForce(g store.Grant, now time.Time) bool { return g.Ended.IsZero() && now.Before(g.Until) }

func byWhom(g store.Grant) string { return cmp.Or(g.Account, fmt.Sprintf("uid %d", g.UID)) }

func ruleOfGrant(n uint64) string { return policy.GrantPrefix + strconv.FormatUint(n, 10) }

// idPrefix begins the id of a grant as operators say it; the rule's id is it with
// something in front.
const idPrefix = "g"

func apiGrant(g store.Grant, now time.Time) apitype.Grant {
	out := apitype.Grant{
		ID: idPrefix + strconv.FormatUint(g.Number, 10), Rule: ruleOfGrant(g.Number), Agent: g.Agent, Allows: g.Rule,
		By: byWhom(g), UID: g.UID, At: g.At, Until: g.Until, InForce: inForce(g, now), Why: g.Why, Reason: g.Reason,
	}
	switch {
	case !g.Ended.IsZero():
		out.Ended = &g.Ended
	case !out.InForce:
		out.Ended, out.Why = &g.Until, grantOver
	}
	return out
}

const grantOver = "its time was over"

// parseGrantID reads g7 or grant.g7, as the record has it.
func parseGrantID(text string) (uint64, error) {
	digits, ok := strings.CutPrefix(text, policy.GrantPrefix)
	if !ok {
		digits, ok = strings.CutPrefix(text, idPrefix)
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if !ok || err != nil || n == 0 {
		return 0, &apitype.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("grant: %q is no id of a grant", text), Hint: `"bawn grants" shows them`}
	}
	return n, nil
}

func (s *Server) listGrants(w http.ResponseWriter, q *http.Request, _ peercred.Peer) error {
	since := s.o.Now()
	if q.URL.Query().Get("all") == "true" {
		since = time.Time{}
	}
	all, err := s.store.Grants(q.Context(), since)
	if err != nil {
		return err
	}
	list := make([]apitype.Grant, 0, len(all))
	for _, g := range all {
		if out := apiGrant(g, s.o.Now()); out.InForce || since.IsZero() {
			list = append(list, out)
		}
	}
	writeJSON(w, http.StatusOK, list)
	return nil
}

func (s *Server) addGrant(w http.ResponseWriter, q *http.Request, peer peercred.Peer) error {
	var a apitype.AddGrant
	if err := readJSON(q, &a); err != nil {
		return err
	}
	s.applies.Lock()
	defer s.applies.Unlock()
	ctx := context.WithoutCancel(q.Context())
	g, err := s.newGrant(ctx, a, peer)
	if err != nil {
		return err
	}
	p, err := s.checkGrant(ctx, g)
	if err != nil {
		return err
	}
	if g, err = s.store.AddGrant(ctx, g); err != nil {
		return err
	}
	out := apiGrant(g, s.o.Now())
	act := deed(q)
	act.Object, act.Detail = out.ID, fmt.Sprintf("%s until %s: %s", g.Rule, g.Until.UTC().Format(time.RFC3339), g.Reason)
	s.o.Log.Info("grant added", "grant", out.ID, "agent", g.Agent, "until", g.Until, "uid", peer.UID)
	if _, err := s.publish(ctx); err != nil {
		return err
	}
	s.grantsChanged()
	out.Warnings = s.grantWarnings(p, g)
	writeJSON(w, http.StatusCreated, out)
	return nil
}

// grantWarnings says where a grant gives its agent nothing, since a rule denies it.
func (s *Server) grantWarnings(p *policy.Policy, g store.Grant) []string {
	for _, ru := range p.Agent(g.Agent).Rules() {
		if ru.Deny && ru.Methods == nil && ru.Paths == nil && ru.Ports == nil && (ru.Expires.IsZero() || ru.Expires.After(s.o.Now())) {
			for _, granted := range p.Agent(g.Agent).Rules() {
				if granted.ID == candidateGrant && ru.Host.Covers(granted.Host) {
					return []string{fmt.Sprintf("rule %s denies %s, and a rule that denies wins: the grant allows nothing", ru.ID, granted.Host)}
				}
			}
		}
	}
	return nil
}

// short writes a time without the parts that are nothing: 24h, not 24h0m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// newGrant reads what is asked for.
func (s *Server) newGrant(ctx context.Context, a apitype.AddGrant, peer peercred.Peer) (store.Grant, error) {
	agent, err := s.agent(ctx, a.Agent)
	if err != nil {
		return store.Grant{}, err
	}
	longest := s.o.Config.Grants.Max
	if a.Seconds < 1 || a.Seconds > int64(longest/time.Second) {
		return store.Grant{}, &apitype.Error{Status: http.StatusBadRequest,
			Message: fmt.Sprintf("grant: a time from 1s to %s is needed", short(longest)),
			Hint:    "grants: max: in the configuration bounds it; what is to stay belongs in the policy"}
	}
	rule, err := policy.ParseRule(a.Rule)
	if err != nil {
		return store.Grant{}, badRequest("grant: %v", err)
	}
	now := s.o.Now()
	return store.Grant{
		Agent: agent.Name, AgentID: agent.ID, Rule: rule, Reason: strings.TrimSpace(a.Reason),
		UID: peer.UID, Account: accountOf(peer.UID), At: now, Until: now.Add(time.Duration(a.Seconds) * time.Second),
	}, nil
}

// candidateGrant is what a grant is called before it has a number.
const candidateGrant = policy.GrantPrefix + "new"

// checkGrant judges a grant as a rule of the policy would be.
func (s *Server) checkGrant(ctx context.Context, g store.Grant) (*policy.Policy, error) {
	snap, err := s.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	live := 0
	for _, other := range snap.Grants {
		if other.Agent == g.Agent && !other.Ended {
			live++
		}
	}
	if live >= maxGrants {
		return nil, &apitype.Error{Status: http.StatusConflict, Message: fmt.Sprintf("agent %s has %d grants, the most that it may have", g.Agent, live), Hint: `"bawn revoke ID" ends one`}
	}
	snap.Grants = append(snap.Grants, apitype.SnapshotGrant{ID: candidateGrant, Agent: g.Agent, Rule: g.Rule, Until: g.Until, Reason: g.Reason})
	p, err := lease.Check(snap, s.credentials())
	switch {
	case err != nil:
		return nil, &apitype.Error{Status: http.StatusUnprocessableEntity, Code: "policy_invalid", Message: "the grant is refused:\n" + err.Error()}
	case p == nil:
		return nil, &apitype.Error{Status: http.StatusConflict, Message: "no policy was applied yet, and a grant stands beside one", Hint: `a policy that allows nothing is: version: 1`}
	}
	return p, nil
}

func (s *Server) removeGrant(w http.ResponseWriter, q *http.Request, peer peercred.Peer) error {
	n, err := parseGrantID(q.PathValue("id"))
	if err != nil {
		return err
	}
	s.applies.Lock()
	defer s.applies.Unlock()
	ctx := context.WithoutCancel(q.Context())
	why := "revoked by " + cmp.Or(accountOf(peer.UID), fmt.Sprintf("uid %d", peer.UID))
	if err := s.store.EndGrant(ctx, n, s.o.Now(), why); err != nil {
		if errors.Is(err, store.ErrNotFound) {
			return &apitype.Error{Status: http.StatusNotFound, Message: fmt.Sprintf("there is no grant %s%d that has not ended", idPrefix, n), Hint: `"bawn grants" shows those that there are`}
		}
		return err
	}
	s.o.Log.Info("grant revoked", "grant", n, "uid", peer.UID)
	if _, err := s.publish(ctx); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// grantsChanged tells [Server.watchGrants] to look again.
func (s *Server) grantsChanged() {
	select {
	case s.grantNews <- struct{}{}:
	default: // it will look anyway
	}
}

// watchGrants puts the end of grants on record and takes what stood on them
// back. That they end is not its doing: each plane sees that by itself.
func (s *Server) watchGrants(ctx context.Context) error {
	for {
		wait, err := s.endGrants(ctx)
		if err != nil && ctx.Err() == nil {
			s.o.Log.Error("a grant whose time is over is not put away yet", "error", err)
			wait = time.Second
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.grantNews:
		case <-time.After(wait):
		}
	}
}

// lookAgain bounds how long watchGrants sleeps: the clock may be set.
const lookAgain = time.Minute

// endGrants ends those whose time is over, and returns how long it is to the
// next.
func (s *Server) endGrants(ctx context.Context) (time.Duration, error) {
	s.applies.Lock()
	defer s.applies.Unlock()
	now := s.o.Now()
	all, err := s.store.Grants(ctx, now)
	if err != nil {
		return 0, err
	}
	next, over := lookAgain, false
	for _, g := range all {
		switch {
		case !g.Ended.IsZero():
		case now.Before(g.Until):
			next = min(next, g.Until.Sub(now))
		default:
			over = true
			if err := s.did(audit.Act{Name: audit.ActGrantEnd, Object: idPrefix + strconv.FormatUint(g.Number, 10), Agent: g.Agent, Detail: grantOver}); err != nil {
				return 0, err
			}
			if err := s.store.EndGrant(ctx, g.Number, g.Until, grantOver); err != nil {
				return 0, err
			}
		}
	}
	if over {
		_, err = s.publish(ctx)
	}
	return next, err
}
