// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"bawn/internal/apitype"
	"bawn/internal/audit"
	"bawn/internal/codes"
	"bawn/internal/peercred"
)

// An act says how a route is put on record. The zero act is that of a route
// which only reads; one that changes something and has none does not serve.
type act struct {
	name   audit.ActName
	object string   // member of the body, or part of the path, that names what it is done to
	agent  string   // the same, for whom it concerns
	detail []string // members that go on record; what is not named here does not
	offers string   // member whose SHA-256 goes on record
	later  bool     // what is asked comes later: the route's own code begins the act
	reads  string   // why a route that is no GET has no act: it changes nothing
}

// does is the act of a route; about names what is put on record of the request.
func does(name audit.ActName) act { return act{name: name} }

// changesNothing marks a route that is no GET and yet has no act.
func changesNothing(why string) act { return act{reads: why} }

func (a act) to(member string) act       { a.object = member; return a }
func (a act) toAgent(member string) act  { a.object, a.agent = member, member; return a }
func (a act) with(members ...string) act { a.detail = members; return a }
func (a act) offering(member string) act { a.offers = member; return a }
func (a act) begunByItself() act         { a.later = true; return a }
func (a act) recorded() bool             { return a.name != "" && !a.later }
func (a act) missing(method string) bool {
	return a.name == "" && a.reads == "" && method != http.MethodGet
}
func (s *Server) inForce() (uint64, string) {
	snap := s.planes.snapshot()
	if snap.YAML == "" {
		return snap.Revision, ""
	}
	return snap.Revision, hashOf(snap.YAML)
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// openActs opens admin's own journal. Without it nothing can be done, so
// admin does not start.
func openActs(o Options) (*audit.Journal, error) {
	dir := o.Paths.Journal("admin")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making admin's journal: %w", err)
	}
	return audit.OpenJournal(dir, audit.Options{Plane: "admin", Log: o.Log, Now: o.Now})
}

// own is the peer of what admin does by itself.
func own() peercred.Peer { return peercred.Peer{UID: uint32(os.Geteuid()), PID: int32(os.Getpid())} }

// begin puts the act on record. Where that cannot be, the act is refused.
func (s *Server) begin(a *audit.Act, peer peercred.Peer) error {
	a.ID, a.UID, a.PID, a.Account = rand.Text(), peer.UID, peer.PID, accountOf(peer.UID)
	a.Revision, a.Policy = s.inForce()
	if err := s.acts.Act(a); err != nil {
		s.o.Log.Error("an act is refused, since it cannot be put on record", "act", a.Name, "uid", peer.UID, "error", err)
		return &apitype.Error{
			Status: http.StatusServiceUnavailable, Code: string(codes.JournalUnavailable),
			Message: fmt.Sprintf("%s is refused: it cannot be put on record: %v", a.Name, err),
			Hint:    "is the disk of " + s.o.Paths.Journal("admin") + " full or read-only?",
		}
	}
	return nil
}

// end puts on record what came of an act that was begun.
func (s *Server) end(a *audit.Act, err error) {
	r := *a
	r.Time, r.Seq = s.o.Now(), 0
	r.Result, r.Code, r.Error = resultOf(err)
	r.Revision, r.Policy = s.inForce()
	if err := s.acts.Act(&r); err != nil {
		s.o.Log.Error("what came of an act is not on record yet", "act", a.Name, "result", r.Result, "error", err)
	}
}

// resultOf tells a refusal, which changed nothing, from what went wrong on the
// way.
func resultOf(err error) (audit.ActResult, codes.Code, string) {
	if err == nil {
		return audit.ActDone, "", ""
	}
	e, ok := errors.AsType[*apitype.Error](err)
	if ok && e.Status < http.StatusInternalServerError {
		return audit.ActRefused, codes.Code(e.Code), e.Message
	}
	if ok {
		return audit.ActFailed, codes.Code(e.Code), e.Message
	}
	return audit.ActFailed, "", err.Error()
}

// did records what admin does by itself, in one step. The caller does it only
// when the error is nil.
func (s *Server) did(a audit.Act) error { return s.didFor(a, own()) }

// didFor records what somebody else has done already, in one step.
func (s *Server) didFor(a audit.Act, who peercred.Peer) error {
	err := s.begin(&a, who)
	if err == nil {
		s.end(&a, nil)
	}
	return err
}

// closeActs ends the journal, behind everything else.
func (s *Server) closeActs() {
	if err := s.did(audit.Act{Name: audit.ActAdminStop}); err != nil {
		s.o.Log.Error("the end of admin is not on record", "error", err)
	}
	if err := s.acts.Close(); err != nil {
		s.o.Log.Error("closing admin's journal", "error", err)
	}
	s.signer.SignNow() // what it says of the end, too; a failure is in the log
}

type deedKey struct{}

// deed returns the act of a request, which its route may complete: what is set
// in it goes on record with the result.
func deed(q *http.Request) *audit.Act {
	if a, ok := q.Context().Value(deedKey{}).(*audit.Act); ok {
		return a
	}
	return new(audit.Act)
}

// perform serves a route between the two records of its act.
func (s *Server) perform(r route, w http.ResponseWriter, q *http.Request, peer peercred.Peer) (err error) {
	if method, _ := cutPattern(r.pattern); r.act.missing(method) {
		return fmt.Errorf("route %s changes something and names no act", r.pattern)
	}
	if !r.act.recorded() {
		return r.serve(s, w, q, peer)
	}
	a, err := r.act.describe(q)
	if err != nil {
		return err
	}
	if err := s.begin(a, peer); err != nil {
		return err
	}
	defer func() {
		if p := recover(); p != nil {
			s.end(a, fmt.Errorf("panic: %v", p))
			panic(p)
		}
		s.end(a, err)
	}()
	return r.serve(s, w, q.WithContext(context.WithValue(q.Context(), deedKey{}, a)), peer)
}

// describe says what a request is about, as far as the request says it. The
// body can be read again afterwards.
func (a act) describe(q *http.Request) (*audit.Act, error) {
	out := &audit.Act{Name: a.name}
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return nil, badRequest("reading the request: %v", err)
	}
	q.Body = io.NopCloser(bytes.NewReader(body))
	var members map[string]any
	json.Unmarshal(body, &members) // what is no object is refused by the route
	text := func(name string) string {
		if name == "" {
			return ""
		}
		return cmp.Or(q.PathValue(name), member(members[name]))
	}
	out.Object, out.Agent = text(a.object), text(a.agent)
	var list []string
	for _, name := range a.detail {
		if t := text(name); t != "" {
			list = append(list, name+"="+t)
		}
	}
	out.Detail = strings.Join(list, " ")
	if t := text(a.offers); t != "" {
		out.Offered = hashOf(t)
	}
	return out, nil
}

// member gives one member of a request as text, without quotes where it has
// none of its own.
func member(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	}
	text, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(text)
}

// listActs streams the acts as JSON lines, oldest first.
func (s *Server) listActs(w http.ResponseWriter, q *http.Request, _ peercred.Peer) error {
	f, follow, err := parseFilter(q.URL.Query())
	if err != nil {
		return err
	}
	dir := s.o.Paths.Journal("admin")
	entries := audit.Scan(dir, f)
	if follow {
		entries = audit.Follow(q.Context(), dir, f)
	}
	return stream(w, q, entries)
}
