// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"bawn/internal/apitype"
	"bawn/internal/audit"
	"bawn/internal/backup"
	"bawn/internal/peercred"
)

// backup answers with admin's part of a backup. The keys of the CA and of the
// record are in it: operators have no right to them, root could read the files.
func (s *Server) backup(w http.ResponseWriter, q *http.Request, peer peercred.Peer) error {
	var ask apitype.MakeBackup
	if err := readJSON(q, &ask); err != nil {
		return err
	}
	if peer.UID != 0 {
		return &apitype.Error{Status: http.StatusForbidden, Message: "a backup holds the keys of the CA and of the record, and is for root alone", Hint: "use sudo"}
	}
	dir := s.o.Paths.State("admin")
	f, err := os.CreateTemp(dir, "backup-") // whole, or an error that can still be told
	if err != nil {
		return fmt.Errorf("making a backup: %w", err)
	}
	defer func() { f.Close(); os.Remove(f.Name()) }()
	bw := backup.NewWriter(f, backup.Manifest{Version: s.o.Version, Made: s.o.Now(), Journals: ask.Journals})
	err = backup.AddAdmin(q.Context(), bw, s.o.Paths, s.store.CopyTo, dir)
	if err == nil {
		err = bw.Close()
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return fmt.Errorf("making a backup: %w", err)
	}
	w.Header().Set("Content-Type", "application/gzip")
	_, err = io.Copy(w, f)
	return err
}

// cleanBackups removes what was being made when an earlier admin ended.
func cleanBackups(dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, "backup-*"))
	if err != nil {
		return err
	}
	for _, name := range left {
		if err := os.RemoveAll(name); err != nil {
			return fmt.Errorf("removing what is left of a backup: %w", err)
		}
	}
	return nil
}

// tellRestored puts on record that the state came from a backup.
func (s *Server) tellRestored() error {
	r, err := backup.Took(s.o.Paths)
	if err != nil || r == nil {
		return err
	}
	a := audit.Act{
		Name: audit.ActBackupRestore, Object: r.SHA256,
		Detail: fmt.Sprintf("at=%s made=%s version=%s record=%t", r.At.Format(timeForm), r.Made.Format(timeForm), r.Version, r.Record),
	}
	if r.By.Login != "" {
		a.Detail += " login:" + r.By.Login
	}
	if err := s.didFor(a, peercred.Peer{UID: r.By.UID, PID: r.By.PID}); err != nil {
		return err
	}
	s.o.Log.Warn("this state was restored from a backup", "made", r.Made, "by_version", r.Version)
	return backup.Told(s.o.Paths)
}

const timeForm = "2006-01-02T15:04:05Z07:00"
