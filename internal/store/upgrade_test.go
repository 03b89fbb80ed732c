// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"bawn/internal/roottest"
)

// versionFile writes the database of an earlier version as a program of then
// did, with an agent in it.
func versionFile(t *testing.T, path string, version int) {
	t.Helper()
	execRaw(t, path, strings.Join(migrations[:version], "\n")+
		fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d;", applicationID, version))
	insert := "INSERT INTO agents (name, user, profile, placement, uid, created) VALUES ('old', 'ann', '', 'uid', 1900000007, 0); UPDATE counters SET value = 40 WHERE name = 'epoch'"
	execRaw(t, path, insert)
}

func rawVersion(t *testing.T, path string) (version, agents int) {
	t.Helper()
	db, err := sql.Open("sqlite", dsn(path, "_pragma=query_only(1)"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRow("PRAGMA user_version").Scan(&version); err != nil {
		t.Fatal(err)
	}
	if err := db.QueryRow("SELECT count(*) FROM agents").Scan(&agents); err != nil {
		t.Fatal(err)
	}
	return version, agents
}

// TestEveryEarlierVersionIsBroughtUpAndCopied: and the copy is what an older
// program can use.
func TestEveryEarlierVersionIsBroughtUpAndCopied(t *testing.T) {
	for version := 1; version < len(migrations); version++ {
		path := filepath.Join(t.TempDir(), "bawn.db")
		versionFile(t, path, version)
		s := reopen(t, path)
		if agents, err := s.Agents(t.Context()); err != nil || len(agents) != 1 || agents[0].Name != "old" {
			t.Errorf("version %d: agents %v, %v", version, agents, err)
		}
		if got, agents := rawVersion(t, copyName(path, version)); got != version || agents != 1 {
			t.Errorf("the copy of version %d has version %d and %d agents", version, got, agents)
		}
		info, err := os.Stat(copyName(path, version))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the copy: %v, %v", info.Mode(), err)
		}
		if epoch, err := s.NextEpoch(t.Context()); err != nil || epoch != 41 {
			t.Errorf("version %d: epoch %d, %v", version, epoch, err)
		}
	}
}

func TestTheNewestTwoCopiesAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bawn.db")
	for _, v := range []int{1, 2, 3, 11} {
		if err := os.WriteFile(copyName(path, v), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	other := path + ".v3.mine"
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := removeOldCopies(path); err != nil {
		t.Fatal(err)
	}
	if got, err := copies(path); err != nil || len(got) != 2 || got[0] != 11 || got[1] != 3 {
		t.Errorf("kept %v, %v", got, err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("somebody's file: %v", err)
	}
}

// TestI13AFailedMigrationLeavesTheOld: the file is what the older program left,
// and the error says so.
func TestI13AFailedMigrationLeavesTheOld(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bawn.db")
	versionFile(t, path, 1)
	execRaw(t, path, "CREATE TABLE agents_id (x)") // in the way of a later step
	for range 2 {
		if _, err := Open(t.Context(), path); err == nil || !strings.Contains(err.Error(), "the older program can still use it") {
			t.Fatalf("opened, or: %v", err)
		}
		if version, agents := rawVersion(t, path); version != 1 || agents != 1 {
			t.Errorf("the file has version %d and %d agents", version, agents)
		}
	}
}

// TestI13KilledInTheMiddleOfAMigration has a process bring a file up to date
// and kills it at some moment: what is found is the old or the new, and the next
// one goes on.
func TestI13KilledInTheMiddleOfAMigration(t *testing.T) {
	for n := range roottest.Count(8, 200) {
		path := filepath.Join(t.TempDir(), "bawn.db")
		versionFile(t, path, 1)
		cmd := runChild(t.Context(), path, "epochs")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(n%16) * 2 * time.Millisecond)
		if err := cmd.Process.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
		if version, agents := rawVersion(t, path); (version != 1 && version != len(migrations)) || agents != 1 {
			t.Fatalf("found version %d with %d agents", version, agents)
		}
		s := reopen(t, path)
		if agents, err := s.Agents(t.Context()); err != nil || len(agents) != 1 {
			t.Fatalf("after the next start: %v, %v", agents, err)
		}
		if version, _ := rawVersion(t, copyName(path, 1)); version != 1 {
			t.Fatalf("the copy has version %d", version)
		}
		s.Close()
	}
}

// TestAnOlderProgramSaysHowToGoBack.
func TestAnOlderProgramSaysHowToGoBack(t *testing.T) {
	s, path := tempStore(t)
	if err := s.CopyTo(t.Context(), copyName(path, len(migrations))); err != nil {
		t.Fatal(err)
	}
	s.Close()
	execRaw(t, path, fmt.Sprintf("PRAGMA user_version = %d", len(migrations)+1))
	_, err := Open(t.Context(), path)
	if err == nil || !strings.Contains(err.Error(), copyName(path, len(migrations))+" is a copy that this program can use") {
		t.Fatalf("error %v", err)
	}
	for _, side := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(path + side); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	if err := os.Rename(copyName(path, len(migrations)), path); err != nil {
		t.Fatal(err)
	}
	reopen(t, path) // as it said
}

// TestI8NumbersDoNotRepeatAfterAnOlderCopy comes into the database's place.
func TestI8NumbersDoNotRepeatAfterAnOlderCopy(t *testing.T) {
	s, path := tempStore(t)
	older := filepath.Join(t.TempDir(), "older")
	if err := s.CopyTo(t.Context(), older); err != nil {
		t.Fatal(err)
	}
	var epoch, revision uint64
	for range 5 {
		var err error
		if epoch, err = s.NextEpoch(t.Context()); err != nil {
			t.Fatal(err)
		}
		if revision, err = s.AddRevision(t.Context(), Revision{YAML: "x", At: at, BasedOn: revision}); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	for _, side := range []string{"-wal", "-shm"} {
		if err := os.Remove(path + side); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	if err := os.Rename(older, path); err != nil {
		t.Fatal(err)
	}
	again := reopen(t, path)
	if got, err := again.NextEpoch(t.Context()); err != nil || got != epoch+1 {
		t.Errorf("epoch %d, %v, want %d", got, err, epoch+1)
	}
	if got, err := again.AddRevision(t.Context(), Revision{YAML: "y", At: at}); err != nil || got != revision+1 {
		t.Errorf("revision %d, %v, want %d", got, err, revision+1)
	}
	if err := os.WriteFile(FloorFile(path), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), path); err == nil || !strings.Contains(err.Error(), "keeps numbers from being used again") {
		t.Errorf("a floor that cannot be read: %v", err)
	}
}
