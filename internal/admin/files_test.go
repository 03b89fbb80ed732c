// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bawn/internal/ca"
	"bawn/internal/config"
	"bawn/internal/roottest"
)

// TestAgentsTrustTheOperatorsRoots: what is passed on unread is verified by the
// agent, which has to know the roots that the proxy knows. A file that is no good
// leaves the agents what they had, and is told.
func TestAgentsTrustTheOperatorsRoots(t *testing.T) {
	other, err := ca.OpenRoot(t.TempDir(), nil) // any certificate
	if err != nil {
		t.Fatal(err)
	}
	roots := filepath.Join(t.TempDir(), "roots.pem")
	p := config.Paths{Root: t.TempDir()}
	var log bytes.Buffer
	s := &Server{o: Options{Paths: p, Log: slog.New(slog.NewTextHandler(&log, nil))}}
	s.o.Config.UpstreamRoots = roots
	err = errors.Join(os.MkdirAll(p.State("admin"), 0o700), os.MkdirAll(p.Public(), 0o755))
	if err != nil {
		t.Fatal(err)
	}
	own, err := ca.OpenRoot(p.State("admin"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, file string
		trusted    bool
	}{
		{"not there", "", false}, {"no certificate", "words\n", false}, {"a root", string(other.Certificate()), true},
	} {
		log.Reset()
		if c.file != "" {
			if err := os.WriteFile(roots, []byte(c.file), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.openRoot(); errors.Is(err, ca.ErrNoSystemRoots) {
			roottest.Skip(t, err.Error())
		} else if err != nil {
			t.Fatal(err)
		}
		bundle, err := os.ReadFile(p.Bundle())
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(bundle, other.Certificate()) != c.trusted || !bytes.Contains(bundle, own.Certificate()) {
			t.Errorf("%s: the bundle holds it: %v", c.name, !c.trusted)
		}
		want, err := ca.JavaStore(bundle)
		got, err2 := os.ReadFile(p.JavaStore())
		if err := errors.Join(err, err2); err != nil || len(got) != len(want) {
			t.Errorf("%s: the Java store has %d bytes, want %d (%v)", c.name, len(got), len(want), err)
		}
		if told := strings.Contains(log.String(), "agents do not trust the roots of upstream_roots"); told == c.trusted {
			t.Errorf("%s: the log says %q", c.name, log.String())
		}
	}
}
