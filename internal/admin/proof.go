// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"net/http"

	"bawn/internal/apitype"
	"bawn/internal/audit"
	"bawn/internal/peercred"
	"bawn/internal/proof"
)

// openSigner opens what covers the journals with checkpoints: the proxy's and
// admin's own. The key is made on the first start, on record.
func (s *Server) openSigner() (*proof.Signer, error) {
	p := s.o.Paths
	making := func() error {
		return s.did(audit.Act{Name: audit.ActKeyMake, Detail: "signs checkpoints, since there is none"})
	}
	key, err := proof.OpenKey(p.AuditKey(), p.AuditPub(), making)
	if err != nil {
		return nil, err
	}
	s.auditKey = key.Key
	return proof.OpenSigner(proof.Options{
		Dir: p.Checkpoints(), Journals: []string{p.Journal("proxy"), p.Journal("admin")}, Key: key, Log: s.o.Log, Now: s.o.Now,
		Broken: func(series, what string) { s.found(audit.ActAuditBreak, series, what) },
		Pruned: func(series, what string) { s.found(audit.ActAuditPruned, series, what) },
	})
}

// found records what was found of a journal. It is in admin's log as well.
func (s *Server) found(name audit.ActName, series, what string) {
	if err := s.did(audit.Act{Name: name, Object: series, Detail: what}); err != nil {
		s.o.Log.Error("what was found of a journal is not on record", "series", series, "found", what, "error", err)
	}
}

// journals says how far each journal is covered.
func (s *Server) journals() []apitype.JournalState {
	var list []apitype.JournalState
	for _, st := range s.signer.States() {
		list = append(list, apitype.JournalState{
			Series: st.Series, Record: st.Record, File: st.File, Signed: st.Signed, Waiting: st.Waiting,
			Broken: st.Broken, BrokenAt: st.BrokenAt, Fault: st.Fault,
		})
	}
	return list
}

// anchors answers with the newest checkpoints, of everything that is on record.
func (s *Server) anchors(w http.ResponseWriter, _ *http.Request, _ peercred.Peer) error {
	if err := s.signer.SignNow(); err != nil {
		return err
	}
	notes, err := proof.Anchors(s.o.Paths.Checkpoints(), s.auditKey)
	if err != nil {
		return err
	}
	out := apitype.Anchors{Key: s.auditKey.String()}
	for _, n := range notes {
		out.Notes = append(out.Notes, string(n.Text))
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}
