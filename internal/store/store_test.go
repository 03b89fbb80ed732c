// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"bawn/internal/ids"
	"bawn/internal/netplan"

	"github.com/google/go-cmp/cmp"
)

// A child of this test binary does one thing to a database and ends: the tests
// of several processes and of other accounts need it.
func TestMain(m *testing.M) {
	if path := os.Getenv("STORE_TEST_DATABASE"); path != "" {
		os.Exit(child(path, os.Getenv("STORE_TEST_DO")))
	}
	os.Exit(m.Run())
}

func child(path, do string) int {
	ctx := context.Background()
	s, err := Open(ctx, path)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer s.Close()
	switch do {
	case "epochs":
		for range 50 {
			n, err := s.NextEpoch(ctx)
			if err != nil {
				fmt.Println(err)
				return 1
			}
			fmt.Println(n)
		}
	case "die": // with a session open and a write half done
		if err := s.StartSession(ctx, testSession(1)); err != nil {
			fmt.Println(err)
			return 1
		}
		tx, err := s.writer.Begin()
		if err == nil {
			_, err = tx.Exec("DELETE FROM sessions")
		}
		if err != nil {
			fmt.Println(err)
			return 1
		}
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	return 0
}

func runChild(ctx context.Context, path, do string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), "STORE_TEST_DATABASE="+path, "STORE_TEST_DO="+do)
	return cmd
}

var at = time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)

func testSession(n int) Session {
	return Session{
		Identity: ids.Identity{
			Slot: n, Gen: ids.Generation{Epoch: 1, Count: uint64(n)}, Session: fmt.Sprintf("s-%d", n), Agent: "dev", User: "ann",
		},
		Placement: ids.PlacementNetns, Argv: []string{"sh", "-c", "true"}, Started: at.Add(time.Duration(n) * time.Second),
	}
}

func tempStore(t *testing.T) (*Store, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "with space?#%.db")
	return reopen(t, path), path
}

func reopen(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestAgents(t *testing.T) {
	s, path := tempStore(t)
	ctx := t.Context()
	var want []Agent
	for i, name := range []string{"a", "b", "c"} {
		a, err := s.CreateAgent(ctx, Agent{Name: name, User: "ann", Profile: "coder", Placement: ids.PlacementUID, Created: at})
		if err != nil {
			t.Fatal(err)
		}
		if a.UID != netplan.FirstUID+uint32(i) {
			t.Errorf("agent %s has uid %d", name, a.UID)
		}
		want = append(want, a)
	}
	if _, err := s.CreateAgent(ctx, Agent{Name: "a"}); !errors.Is(err, ErrExists) {
		t.Errorf("a second agent a: %v", err)
	}
	got, err := reopen(t, path).Agents(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err := s.RemoveAgent(ctx, "b"); err != nil {
		t.Fatal(err)
	}
	if err := s.RemoveAgent(ctx, "b"); !errors.Is(err, ErrNotFound) {
		t.Errorf("removing b again: %v", err)
	}
	again, err := s.CreateAgent(ctx, Agent{Name: "b"})
	if err != nil || again.UID != netplan.FirstUID+3 {
		t.Errorf("got %+v, %v: the uid of a removed agent came back at once", again, err)
	}
	if again.ID == "" || again.ID == want[1].ID || want[0].ID == want[1].ID {
		t.Errorf("ids %q, %q and %q, of two agents and one that was made again", want[0].ID, want[1].ID, again.ID)
	}
}

func TestUIDsComeRoundAndRunOut(t *testing.T) {
	s, _ := tempStore(t)
	ctx := t.Context()
	const size = netplan.LastUID - netplan.FirstUID + 1
	err := s.write(ctx, func(tx *sql.Tx) error {
		for i := range size - 2 {
			if _, err := tx.Exec("INSERT INTO agents VALUES (?, '', '', '', ?, 0, ?)", "x"+strconv.Itoa(i), netplan.FirstUID+1+i, strconv.Itoa(i)); err != nil {
				return err
			}
		}
		_, err := tx.Exec("UPDATE counters SET value = ? WHERE name = 'uid'", size-1)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []uint32{netplan.LastUID, netplan.FirstUID} {
		a, err := s.CreateAgent(ctx, Agent{Name: fmt.Sprint(want)})
		if err != nil || a.UID != want {
			t.Errorf("got %d, %v, want %d", a.UID, err, want)
		}
	}
	if _, err := s.CreateAgent(ctx, Agent{Name: "full"}); !errors.Is(err, ErrFull) {
		t.Errorf("got %v", err)
	}
}

func TestRevisions(t *testing.T) {
	s, path := tempStore(t)
	ctx := t.Context()
	if _, err := s.LatestRevision(ctx); !errors.Is(err, ErrNotFound) {
		t.Errorf("before the first: %v", err)
	}
	var want []Revision
	for i := range 3 {
		r := Revision{YAML: fmt.Sprintf("version: 1 # %d", i), UID: 4_000_000_000, Account: "ann", Why: "because", At: at, BasedOn: uint64(i)}
		n, err := s.AddRevision(ctx, r)
		if err != nil || n != uint64(i)+1 {
			t.Fatalf("got %d, %v", n, err)
		}
		r.Number, r.Hash = n, hashOf(r.YAML)
		want = append([]Revision{r}, want...)
	}
	for _, base := range []uint64{0, 2, 4} {
		if _, err := s.AddRevision(ctx, Revision{BasedOn: base}); !errors.Is(err, ErrConflict) {
			t.Errorf("based on %d: %v", base, err)
		}
	}
	s = reopen(t, path)
	got, err := s.Revisions(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if r, err := s.LatestRevision(ctx); err != nil || r.Number != 3 {
		t.Errorf("newest: %+v, %v", r, err)
	}
	if r, err := s.Revision(ctx, 2); err != nil || r.YAML != "version: 1 # 1" {
		t.Errorf("second: %+v, %v", r, err)
	}
	if _, err := s.Revision(ctx, 4); !errors.Is(err, ErrNotFound) {
		t.Errorf("fourth: %v", err)
	}
}

func TestPolicyChangedBehindOurBackIsNotEnforced(t *testing.T) {
	s, _ := tempStore(t)
	if _, err := s.AddRevision(t.Context(), Revision{YAML: "version: 1", At: at}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.writer.Exec("UPDATE revisions SET yaml = 'version: 2'"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.LatestRevision(t.Context()); err == nil || !strings.Contains(err.Error(), "its hash does not fit") {
		t.Errorf("got %v", err)
	}
}

func TestSessions(t *testing.T) {
	s, path := tempStore(t)
	ctx := t.Context()
	for i := 1; i <= 3; i++ {
		if err := s.StartSession(ctx, testSession(i)); err != nil {
			t.Fatal(err)
		}
	}
	again := testSession(1)
	again.Identity.Session = "s-other"
	if err := s.StartSession(ctx, again); err == nil {
		t.Error("a slot's generation was used twice")
	}
	if err := s.EndSession(ctx, "s-2", at.Add(time.Hour), 3, "why"); err != nil {
		t.Fatal(err)
	}
	if err := s.EndSession(ctx, "s-2", at, 0, ""); !errors.Is(err, ErrNotFound) {
		t.Errorf("ending again: %v", err)
	}
	s = reopen(t, path)
	open, err := s.OpenSessions(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Session{testSession(1), testSession(3)}, open); diff != "" {
		t.Error(diff)
	}
	ended := testSession(2)
	ended.Ended, ended.Status, ended.Fault = at.Add(time.Hour), 3, "why"
	all, err := s.Sessions(ctx, 2)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Session{testSession(3), ended}, all); diff != "" {
		t.Error(diff)
	}
}

func TestI13KilledHalfwayThroughAWrite(t *testing.T) {
	s, path := tempStore(t)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := runChild(t.Context(), path, "die")
	out, err := cmd.Output()
	if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("%v\n%s", err, out)
	}
	open, err := reopen(t, path).OpenSessions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Session{testSession(1)}, open); diff != "" {
		t.Error(diff)
	}
}

func TestEpochsNeverRepeatOverProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db") // the children race to make it
	var outs [4]bytes.Buffer
	var cmds [4]*exec.Cmd
	for i := range cmds {
		cmds[i] = runChild(t.Context(), path, "epochs")
		cmds[i].Stdout = &outs[i]
		if err := cmds[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	seen := make(map[string]bool)
	for i := range cmds {
		if err := cmds[i].Wait(); err != nil {
			t.Fatalf("%v\n%s", err, outs[i].String())
		}
		for _, n := range strings.Fields(outs[i].String()) {
			if seen[n] {
				t.Errorf("epoch %s was given out twice", n)
			}
			seen[n] = true
		}
	}
	if len(seen) != 200 || !seen["200"] {
		t.Errorf("got %d epochs, want 1 to 200", len(seen))
	}
}

func TestFileIsForItsOwner(t *testing.T) {
	_, path := tempStore(t)
	for _, suffix := range []string{"", "-wal", "-shm"} {
		info, err := os.Stat(path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %04o", info.Name(), info.Mode().Perm())
		}
	}
}

func TestFilesThatAreRefused(t *testing.T) {
	cases := map[string]struct {
		spoil func(t *testing.T, path string)
		want  string
	}{
		"no database": {func(t *testing.T, path string) {
			if err := os.WriteFile(path, bytes.Repeat([]byte("journal "), 1000), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "damaged or no database"},
		"a damaged page": {func(t *testing.T, path string) {
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.WriteAt(bytes.Repeat([]byte{0xff}, 4096), 4096); err != nil {
				t.Fatal(err)
			}
		}, "damaged"},
		"a newer version": {func(t *testing.T, path string) { execRaw(t, path, "PRAGMA user_version = 99") }, fmt.Sprint("version 99, and this program knows up to ", len(migrations))},
		"another program's": {func(t *testing.T, path string) {
			execRaw(t, path, "PRAGMA application_id = 7; PRAGMA user_version = 0")
		}, "another program's database"},
		"a directory": {func(t *testing.T, path string) {
			os.Remove(path)
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}, "is a directory"},
		"no parent": {func(t *testing.T, path string) { os.RemoveAll(filepath.Dir(path)) }, "no such file"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s, path := tempStore(t)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			c.spoil(t, path)
			before, _ := os.ReadFile(path)
			_, err := Open(t.Context(), path)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v, want %q and the path in it", err, c.want)
			}
			if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
				t.Error("the file was changed")
			}
		})
	}
}

// execRaw runs statements on the file behind the Store's back.
func execRaw(t *testing.T, path, statements string) {
	t.Helper()
	db, err := sql.Open("sqlite", dsn(path, ""))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(statements); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		t.Fatal(err)
	}
}

// TestFileOfAnotherAccount opens the file as somebody who may only read it.
func TestFileOfAnotherAccount(t *testing.T) {
	dir, err := os.MkdirTemp("", "store")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "db")
	if err := reopen(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{path: 0o444, dir: 0o555} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	cmd := runChild(t.Context(), path, "")
	if os.Geteuid() == 0 {
		// The test binary may lie where nobody else can read it.
		self, err := os.Open("/proc/self/exe")
		if err != nil {
			t.Fatal(err)
		}
		defer self.Close()
		cmd.Path, cmd.ExtraFiles, cmd.Dir = "/proc/self/fd/3", []*os.File{self}, "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "cannot be written: admin's account must own it") || !strings.Contains(string(out), path) {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestPing(t *testing.T) {
	s, path := tempStore(t)
	if err := s.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Ping(ctx); err == nil {
		t.Error("fine although the time was over")
	}
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	if err := s.Ping(t.Context()); err == nil {
		t.Error("fine although the file is gone")
	}
	reopen(t, path)
	if err := s.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "was replaced") {
		t.Errorf("after the file was replaced: %v", err)
	}
	s.Close()
	if err := s.Close(); err != nil {
		t.Errorf("closing again: %v", err)
	}
	if err := s.Ping(t.Context()); err == nil {
		t.Error("fine although it is closed")
	}
}

func TestEveryMigrationStepIsAtomic(t *testing.T) {
	s, path := tempStore(t)
	if _, err := s.CreateAgent(t.Context(), Agent{Name: "a", Created: at}); err != nil {
		t.Fatal(err)
	}
	// An older program's file: nothing yet but an empty database.
	old := filepath.Join(t.TempDir(), "old")
	if err := os.WriteFile(old, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var version int
	if err := reopen(t, old).reader.QueryRow("PRAGMA user_version").Scan(&version); err != nil || version != len(migrations) {
		t.Errorf("got version %d, %v", version, err)
	}
	// A file of the first version: its agents have no ids.
	first := filepath.Join(t.TempDir(), "first")
	execRaw(t, first, migrations[0]+fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = 1;", applicationID)+
		"INSERT INTO agents VALUES ('a', '', '', 'uid', 1900000000, 0), ('b', '', '', 'uid', 1900000001, 0)")
	agents, err := reopen(t, first).Agents(t.Context())
	if err != nil || len(agents) != 2 || len(agents[0].ID) != len(ids.NewAgent()) || agents[0].ID == agents[1].ID {
		t.Errorf("agents of the first version: %+v, %v", agents, err)
	}
	// Opening again changes nothing.
	if agents, err := reopen(t, path).Agents(t.Context()); err != nil || len(agents) != 1 {
		t.Errorf("got %v, %v", agents, err)
	}
}
