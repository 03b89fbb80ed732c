// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"time"

	"bawn/internal/apitype"
	"bawn/internal/peercred"
)

// tag names a snapshot by its content.
func tag(s apitype.Snapshot) string {
	s.Tag = ""
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // plain strings and numbers
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

var planeName = regexp.MustCompile(`^[a-z]{1,16}$`)

// lease answers one beat: at once when the plane has something to learn, else
// after a while. Every answer comes after a read of the database, so a lease
// cannot outlive it.
func (s *Server) lease(w http.ResponseWriter, q *http.Request, peer peercred.Peer) error {
	var ask apitype.LeaseAsk
	if err := readJSON(q, &ask); err != nil {
		return err
	}
	if !planeName.MatchString(ask.Plane) {
		return badRequest("plane %q is not a name", ask.Plane)
	}
	if ask.Parent != nil {
		s.planes.reported(*ask.Parent)
	}
	if ask.Resolvers != nil {
		s.planes.resolversReported(*ask.Resolvers)
	}
	snap, changed := s.planes.asked(ask.Plane, peer.PID, ask.Have)
	if snap.Tag == ask.Have {
		select {
		case <-changed:
			snap = s.planes.snapshot()
		case <-time.After(apitype.LeaseBeat):
		case <-q.Context().Done():
			return q.Context().Err()
		}
	}
	if err := s.store.Ping(q.Context()); err != nil {
		return fmt.Errorf("reading the database: %w", err)
	}
	answer := apitype.LeaseAnswer{Tag: snap.Tag, Check: s.planes.checkAsked(), Through: s.through(ask.Plane)}
	if snap.Tag != ask.Have {
		answer.Snapshot = &snap
	}
	writeJSON(w, http.StatusOK, answer)
	return nil
}

// signIntermediate signs the key of a plane. The certificate says nothing of
// what the plane may do; it only lets agents trust its leaves.
func (s *Server) signIntermediate(w http.ResponseWriter, q *http.Request, peer peercred.Peer) error {
	var ask apitype.SignIntermediate
	if err := readJSON(q, &ask); err != nil {
		return err
	}
	chain, err := s.root.SignIntermediate(ask.CSR)
	if err != nil {
		return badRequest("signing an intermediate: %v", err)
	}
	s.o.Log.Info("intermediate signed", "uid", peer.UID, "pid", peer.PID)
	writeJSON(w, http.StatusOK, apitype.Signed{Chain: chain})
	return nil
}
