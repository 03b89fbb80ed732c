// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"bawn/internal/apitype"
	"bawn/internal/audit"
	"bawn/internal/ca"
	"bawn/internal/session"
	"bawn/internal/store"
)

// openRoot loads or makes the CA's root and publishes what agents trust.
func (s *Server) openRoot() (*ca.Root, error) {
	o := s.o
	if _, err := os.Stat(filepath.Join(o.Paths.State("admin"), ca.RootCertFile)); errors.Is(err, fs.ErrNotExist) {
		if err := s.did(audit.Act{Name: audit.ActCAMake, Detail: "a root, since there is none"}); err != nil {
			return nil, err
		}
	}
	root, err := ca.OpenRoot(o.Paths.State("admin"), nil)
	if err != nil {
		return nil, err
	}
	_, system, err := ca.SystemRoots("/")
	if err != nil {
		return nil, fmt.Errorf("making the bundle for agents: %w", err)
	}
	bundle, err := ca.Bundle(system, s.operatorsRoots(), root.Certificate())
	if err != nil {
		return nil, fmt.Errorf("making the bundle for agents: %w", err)
	}
	java, err := ca.JavaStore(bundle)
	if err != nil {
		return nil, err
	}
	if err := publishFile(o.Paths.CACert(), root.Certificate()); err != nil {
		return nil, err
	}
	if err := publishFile(o.Paths.JavaStore(), java); err != nil {
		return nil, err
	}
	return root, publishFile(o.Paths.Bundle(), bundle)
}

// operatorsRoots are those of upstream_roots: an agent whose TLS is passed on unread
// has to know them as the proxy does. Without them agents trust less, so that this is
// no reason not to start; the proxy says it, too, and does not.
func (s *Server) operatorsRoots() []byte {
	path := s.o.Config.UpstreamRoots
	if path == "" {
		return nil
	}
	roots, err := os.ReadFile(path)
	if err == nil {
		roots, err = ca.Bundle(roots)
	}
	if err != nil {
		s.o.Log.Warn("agents do not trust the roots of upstream_roots", "file", path, "error", err)
		return nil
	}
	return roots
}

// publishFile writes a file that everybody may read, unless it says the same
// already.
func publishFile(path string, content []byte) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, content) {
		return nil
	}
	return ca.WriteFile(path, content, 0o644)
}

// endLeftovers closes the books on sessions that were running when the last
// admin ended: netd is told to stop them as soon as it answers.
func (s *Server) endLeftovers(ctx context.Context) error {
	open, err := s.store.OpenSessions(ctx)
	if err != nil {
		return err
	}
	for _, x := range open {
		if err := s.store.EndSession(ctx, x.Identity.Session, s.o.Now(), 125, "admin was started again"); err != nil {
			return err
		}
	}
	return nil
}

// visible lists the sessions that are the operators' business: not the
// self-test's.
func (s *Server) visible() []apitype.Session {
	var list []apitype.Session
	for _, x := range s.sessions.List() {
		if x.Agent != session.Doctor {
			list = append(list, x)
		}
	}
	return list
}

func countVisible(agents []store.Agent) int {
	n := 0
	for _, a := range agents {
		if a.Name != session.Doctor {
			n++
		}
	}
	return n
}
