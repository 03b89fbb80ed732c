// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"path/filepath"
	"testing"
	"time"
)

func TestGrantsAreKeptAndEndOnce(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "bawn.db")
	s, err := Open(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.CreateAgent(ctx, Agent{Name: "dev", User: "alice", Placement: "netns", Created: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now().Truncate(time.Microsecond).UTC()
	one, err := s.AddGrant(ctx, Grant{Agent: "dev", AgentID: a.ID, Rule: "{host: a.example}", Reason: "why", UID: 7, Account: "ann", At: at, Until: at.Add(time.Hour)})
	if err != nil || one.Number != 1 {
		t.Fatalf("%+v, %v", one, err)
	}
	if _, err := s.AddGrant(ctx, Grant{Agent: "dev", AgentID: "another", At: at, Until: at}); !errors.Is(err, ErrNotFound) {
		t.Errorf("for another registration: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(ctx, path); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if list, err := s.Grants(ctx, at); err != nil || len(list) != 1 || list[0] != one {
		t.Fatalf("after a restart: %+v, %v, want %+v", list, err, one)
	}
	if err := s.EndGrant(ctx, 1, at.Add(time.Minute), "revoked"); err != nil {
		t.Fatal(err)
	}
	if err := s.EndGrant(ctx, 1, at, "again"); !errors.Is(err, ErrNotFound) {
		t.Errorf("ended twice: %v", err)
	}
	if list, _ := s.Grants(ctx, at.Add(2*time.Minute)); len(list) != 0 {
		t.Errorf("in force: %+v", list)
	}
	if list, _ := s.Grants(ctx, time.Time{}); len(list) != 1 || !list[0].Ended.Equal(at.Add(time.Minute)) || list[0].Why != "revoked" {
		t.Errorf("all: %+v", list)
	}
	two, err := s.AddGrant(ctx, Grant{Agent: "dev", AgentID: a.ID, Rule: "{host: b.example}", At: at, Until: at.Add(time.Hour)})
	if err != nil || two.Number != 2 {
		t.Fatalf("%+v, %v", two, err)
	}
	if err := s.RemoveAgent(ctx, "dev"); err != nil {
		t.Fatal(err)
	}
	if list, _ := s.Grants(ctx, time.Now().Add(time.Minute)); len(list) != 0 {
		t.Errorf("the agent has gone, and in force is %+v", list)
	}
}
