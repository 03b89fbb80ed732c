// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime/debug"

	"bawn/internal/apitype"
	"bawn/internal/audit"
	"bawn/internal/codes"
	"bawn/internal/peercred"
	"bawn/internal/wirejson"
)

// A scope is a set of callers. The zero scope is nobody.
type scope uint8

const (
	operator scope = iota + 1 // root and members of group bawn
	plane                     // the account of the proxy
)

// A route is one thing that the API can do. Each has a scope; one without
// would be open to nobody, which [Server.handler] reports as a bug at start.
// Each that changes something has an act.
type route struct {
	pattern string
	scope   scope
	act     act // what a change is on record as; see [does]
	serve   func(*Server, http.ResponseWriter, *http.Request, peercred.Peer) error
}

// routes is the whole API.
var routes = []route{
	{"GET /status", operator, act{}, (*Server).status},
	{"POST /doctor", operator, does(audit.ActDoctorRun), (*Server).doctor},
	{"GET /agents", operator, act{}, (*Server).listAgents},
	{"POST /agents", operator, does(audit.ActAgentCreate).toAgent("name").with("user", "profile", "placement"), (*Server).createAgent},
	{"DELETE /agents/{name}", operator, does(audit.ActAgentRemove).toAgent("name"), (*Server).removeAgent},
	{"GET /policy", operator, act{}, (*Server).showPolicy},
	{"POST /policy", operator, does(audit.ActPolicyApply).with("why", "base").offering("yaml"), (*Server).applyPolicy},
	{"POST /policy/rollback", operator, does(audit.ActPolicyRollback).to("revision").with("why"), (*Server).rollbackPolicy},
	{"POST /policy/replay", operator, changesNothing("judges requests that are over"), (*Server).replayPolicy},
	{"GET /policy/suggest", operator, act{}, (*Server).suggestPolicy},
	{"POST /policy/check", operator, changesNothing("checks a policy that is not applied"), (*Server).checkPolicy},
	{"GET /policy/revisions", operator, act{}, (*Server).listRevisions},
	{"GET /policy/effective", operator, act{}, (*Server).effectivePolicy},
	{"POST /policy/explain", operator, changesNothing("judges a request that is not made"), (*Server).explainPolicy},
	{"GET /grants", operator, act{}, (*Server).listGrants},
	{"POST /grants", operator, does(audit.ActGrantAdd).toAgent("agent").with("rule", "seconds", "reason"), (*Server).addGrant},
	{"DELETE /grants/{id}", operator, does(audit.ActGrantEnd).to("id"), (*Server).removeGrant},
	{"GET /budgets", operator, act{}, (*Server).budgets},
	{"GET /metrics", operator, act{}, (*Server).metrics},
	{"GET /log", operator, act{}, (*Server).log},
	{"GET /log/totals", operator, act{}, (*Server).logTotals},
	{"GET /who", operator, act{}, (*Server).who},
	{"GET /usage", operator, act{}, (*Server).usage},
	{"GET /report", operator, act{}, (*Server).auditReport},
	{"GET /acts", operator, act{}, (*Server).listActs},
	{"GET /audit/anchors", operator, act{}, (*Server).anchors},
	{"POST /audit/export", operator, does(audit.ActAuditExport).with("format", "agent", "user", "since", "until"), (*Server).exportAudit},
	{"POST /sessions", operator, does(audit.ActSessionStart).begunByItself(), (*Server).session},
	{"POST /backup", operator, does(audit.ActBackupMake).with("journals"), (*Server).backup},
	{"POST /plane/lease", plane, changesNothing("a beat, once a second"), (*Server).lease},
	{"POST /plane/report", plane, changesNothing("counts, once a second"), (*Server).report},
	{"POST /plane/intermediate", plane, does(audit.ActIntermediateSign).offering("csr"), (*Server).signIntermediate},
}

// may reports whether peer is within s. Root is an operator, and no plane.
func (s *Server) may(sc scope, peer peercred.Peer) bool {
	switch sc {
	case operator:
		return peer.UID == 0 || peer.InGroup(s.o.OperatorGID)
	case plane:
		return peer.UID == s.o.ProxyUID
	}
	return false
}

// handler builds the one handler that all requests pass: who asks is decided
// before the route's own code runs.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	for _, r := range routes {
		method, path := cutPattern(r.pattern)
		if r.scope == 0 {
			panic("route without a scope: " + r.pattern)
		}
		if r.act.missing(method) {
			panic("route without an act: " + r.pattern)
		}
		mux.HandleFunc(method+" "+apitype.Prefix+path, func(w http.ResponseWriter, q *http.Request) {
			s.guard(r, w, q)
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, q *http.Request) {
		writeError(w, &apitype.Error{Status: http.StatusNotFound, Message: fmt.Sprintf("no route %s %s", q.Method, q.URL.Path), Hint: "client and server may be of different versions"})
	})
	return mux
}

func cutPattern(p string) (method, path string) {
	for i := range p {
		if p[i] == ' ' {
			return p[:i], p[i+1:]
		}
	}
	return "", p
}

// maxBody bounds a request's body, in bytes: a policy and its JSON escaping.
const maxBody = 4 << 20

func (s *Server) guard(r route, w http.ResponseWriter, q *http.Request) {
	defer func() {
		if p := recover(); p != nil {
			s.o.Log.Error("a request ended in a panic", "route", r.pattern, "panic", p, "stack", string(debug.Stack()))
			writeError(w, &apitype.Error{Status: http.StatusInternalServerError, Code: string(codes.InternalError), Message: "internal error; admin's log has it"})
		}
	}()
	peer, ok := q.Context().Value(peerKey{}).(peercred.Peer)
	if !ok || !s.may(r.scope, peer) {
		writeError(w, &apitype.Error{Status: http.StatusForbidden, Message: fmt.Sprintf("uid %d may not use %s", peer.UID, r.pattern), Hint: "operators are root and the members of group bawn"})
		return
	}
	q.Body = http.MaxBytesReader(w, q.Body, maxBody)
	if err := s.paced(r, func() error { return s.perform(r, w, q, peer) }); err != nil {
		s.fail(w, r, err)
	}
}

// fail turns an error into an answer. What is not meant for the caller goes to
// the log.
func (s *Server) fail(w http.ResponseWriter, r route, err error) {
	if errors.Is(err, context.Canceled) {
		return // the caller has gone
	}
	if e, ok := errors.AsType[*apitype.Error](err); ok {
		writeError(w, e)
		return
	}
	if _, told := errors.AsType[*exportError](err); told {
		return
	}
	s.o.Log.Error("a request failed", "route", r.pattern, "error", err)
	writeError(w, &apitype.Error{Status: http.StatusInternalServerError, Message: err.Error()})
}

func writeError(w http.ResponseWriter, e *apitype.Error) {
	status := e.Status
	if status == 0 {
		status = http.StatusInternalServerError
	}
	writeJSON(w, status, e)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}

// readJSON reads a body strictly: one value, known fields only.
func readJSON(q *http.Request, into any) error {
	body, err := io.ReadAll(q.Body)
	if err == nil {
		err = wirejson.Decode(body, into)
	}
	if err != nil {
		return badRequest("reading the request: %v", err)
	}
	return nil
}

func badRequest(format string, args ...any) *apitype.Error {
	return &apitype.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf(format, args...)}
}

type peerKey struct{}

// withPeer keeps who connected with the connection. One whose peer is not known
// may do nothing.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	if p, ok := c.(*peercred.Conn); ok {
		return context.WithValue(ctx, peerKey{}, p.Peer)
	}
	return ctx
}
