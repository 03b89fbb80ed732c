// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"bawn/internal/apitype"
	"bawn/internal/ids"
	"bawn/internal/peercred"
	"bawn/internal/policy"
	"bawn/internal/session"
	"bawn/internal/store"
)

func (s *Server) listAgents(w http.ResponseWriter, q *http.Request, _ peercred.Peer) error {
	agents, err := s.store.Agents(q.Context())
	if err != nil {
		return err
	}
	running := map[string]int{}
	for _, x := range s.sessions.List() {
		running[x.Agent]++
	}
	list := make([]apitype.Agent, 0, len(agents))
	for _, a := range agents {
		if a.Name == session.Doctor {
			continue
		}
		out := apiAgent(a)
		out.Sessions = running[a.Name]
		list = append(list, out)
	}
	writeJSON(w, http.StatusOK, list)
	return nil
}

func apiAgent(a store.Agent) apitype.Agent {
	return apitype.Agent{Name: a.Name, User: a.User, Profile: a.Profile, Placement: a.Placement, UID: a.UID, Created: a.Created}
}

// maxUser bounds the name of a user, in bytes: an address of electronic mail
// (RFC 5321 section 4.5.3.1) fits.
const maxUser = 320

// checkUser wants something that a record can show.
func checkUser(user string) error {
	if user == "" || len(user) > maxUser || !utf8.ValidString(user) {
		return badRequest("user: 1 to %d bytes of text are needed", maxUser)
	}
	for _, r := range user {
		if !unicode.IsPrint(r) {
			return badRequest("user %q: has characters that do not print", user)
		}
	}
	return nil
}

// reserved are names whose accounts, bawn-NAME, are or will be those of Bawn's
// own processes, the self-test's agent, and one that would mislead in a record.
var reserved = []string{"admin", "proxy", "netd", "vault", "tools", "memory", "gateway", session.Doctor, "root"}

// maxAgent bounds the name of an agent: its account is bawn-NAME, and Linux's
// tools take 32 characters (useradd(8)).
const maxAgent = 32 - len("bawn-")

func (s *Server) checkAgent(c *apitype.CreateAgent) error {
	if err := ids.CheckName(c.Name); err != nil {
		return badRequest("agent: %v", err)
	}
	if len(c.Name) > maxAgent {
		return badRequest("agent: name %q: has %d characters, and may have %d, since its account is bawn-NAME", c.Name, len(c.Name), maxAgent)
	}
	if slices.Contains(reserved, c.Name) {
		return badRequest("agent: the name %s is reserved", c.Name)
	}
	if err := checkUser(c.User); err != nil {
		return err
	}
	if c.Profile != "" {
		if err := ids.CheckName(c.Profile); err != nil {
			return badRequest("profile: %v", err)
		}
	}
	if c.Placement == "" {
		c.Placement = s.o.Config.Placement
	}
	if _, err := ids.ParsePlacement(string(c.Placement)); err != nil {
		return badRequest("%v", err)
	}
	return nil
}

func (s *Server) createAgent(w http.ResponseWriter, q *http.Request, peer peercred.Peer) error {
	var c apitype.CreateAgent
	if err := readJSON(q, &c); err != nil {
		return err
	}
	if err := s.checkAgent(&c); err != nil {
		return err
	}
	s.applies.Lock()
	defer s.applies.Unlock()
	ctx := context.WithoutCancel(q.Context())
	a, err := s.register(ctx, c)
	if err != nil {
		return err
	}
	if _, err := s.publish(ctx); err != nil {
		return err
	}
	s.o.Log.Info("agent created", "agent", a.Name, "user", a.User, "account_uid", a.UID, "uid", peer.UID)
	out := apiAgent(a)
	out.Warnings = s.warningsOf(ctx, a.Name)
	writeJSON(w, http.StatusCreated, out)
	return nil
}

// warningsOf are those of the policy in force that name the agent, such as that
// it has no such profile. Without a policy there are none.
func (s *Server) warningsOf(ctx context.Context, agent string) []string {
	p, _, err := s.current(ctx)
	if err != nil {
		return nil
	}
	var list []string
	for _, warn := range p.Warnings(s.o.Now()) {
		if text := warn.Error(); strings.Contains(text, "agent "+agent+":") {
			list = append(list, text)
		}
	}
	if p.Agent(agent) == nil {
		list = append(list, fmt.Sprintf("the policy in force does not name agent %s: everything that it asks for is denied until it does", agent))
	}
	return list
}

// register makes the row and the account, or neither.
func (s *Server) register(ctx context.Context, c apitype.CreateAgent) (store.Agent, error) {
	netd, err := s.netd.client()
	if err != nil {
		return store.Agent{}, &apitype.Error{Status: http.StatusServiceUnavailable, Message: err.Error()}
	}
	a, err := s.store.CreateAgent(ctx, store.Agent{Name: c.Name, User: c.User, Profile: c.Profile, Placement: c.Placement, Created: s.o.Now()})
	if errors.Is(err, store.ErrExists) {
		return a, &apitype.Error{Status: http.StatusConflict, Message: fmt.Sprintf("agent %s exists already", c.Name), Hint: `"bawn agent list" shows it`}
	}
	if err != nil {
		return a, err
	}
	if err := netd.CreateAccount(ctx, a.Name, a.UID); err != nil {
		return a, errors.Join(fmt.Errorf("making the account of agent %s: %w", a.Name, err), s.store.RemoveAgent(ctx, a.Name))
	}
	return a, nil
}

func (s *Server) removeAgent(w http.ResponseWriter, q *http.Request, peer peercred.Peer) error {
	name := q.PathValue("name")
	s.applies.Lock()
	defer s.applies.Unlock()
	ctx := context.WithoutCancel(q.Context())
	a, err := s.agent(ctx, name)
	if err != nil {
		return err
	}
	if err := s.mayRemove(ctx, a); err != nil {
		return err
	}
	netd, err := s.netd.client()
	if err != nil {
		return &apitype.Error{Status: http.StatusServiceUnavailable, Message: err.Error()}
	}
	if err := netd.RemoveAccount(ctx, a.Name, a.UID); err != nil {
		return fmt.Errorf("removing the account of agent %s: %w", a.Name, err)
	}
	if err := s.store.RemoveAgent(ctx, a.Name); err != nil {
		return err
	}
	if _, err := s.publish(ctx); err != nil {
		return err
	}
	s.o.Log.Info("agent removed", "agent", a.Name, "uid", peer.UID)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) agent(ctx context.Context, name string) (store.Agent, error) {
	all, err := s.store.Agents(ctx)
	if err != nil {
		return store.Agent{}, err
	}
	for _, a := range all {
		if a.Name == name && name != session.Doctor {
			return a, nil
		}
	}
	return store.Agent{}, &apitype.Error{Status: http.StatusNotFound, Message: fmt.Sprintf("there is no agent %q", name), Hint: `"bawn agent list" shows those that there are`}
}

// mayRemove refuses while something still relies on the agent: a session, or
// the policy, which would not compile without it.
func (s *Server) mayRemove(ctx context.Context, a store.Agent) error {
	for _, x := range s.sessions.List() {
		if x.Agent == a.Name {
			return &apitype.Error{Status: http.StatusConflict, Message: fmt.Sprintf("agent %s runs session %s", a.Name, x.Session), Hint: "it ends with the \"bawn run\" that started it"}
		}
	}
	snap, err := s.snapshot(ctx)
	if err != nil || snap.YAML == "" {
		return err
	}
	doc, err := policy.Parse([]byte(snap.YAML))
	if err == nil && slices.Contains(doc.Agents(), a.Name) {
		return &apitype.Error{Status: http.StatusConflict, Message: fmt.Sprintf("the policy in force names agent %s", a.Name), Hint: "apply a policy without it first"}
	}
	return nil
}
