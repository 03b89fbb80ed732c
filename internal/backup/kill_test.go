// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"bawn/internal/config"
	"bawn/internal/roottest"
)

func TestMain(m *testing.M) {
	if root := os.Getenv("BACKUP_TEST_ROOT"); root != "" {
		if err := restoreIn(root, os.Getenv("BACKUP_TEST_ARCHIVE")); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// restoreIn is a whole restore, in a process that may be killed.
func restoreIn(root, archive string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	m, err := Verify(f, room)
	if err != nil {
		return err
	}
	if _, err := f.Seek(0, 0); err != nil {
		return err
	}
	me := func(string) (int, int, error) { return os.Geteuid(), os.Getegid(), nil }
	r := &Restore{Paths: config.Paths{Root: root}, Manifest: m, Now: time.Now(), Owner: me, Said: func(string) {}}
	staged, err := r.Stage(f)
	if err != nil {
		return err
	}
	_, err = r.Place(context.Background(), staged)
	return err
}

// TestI13KilledInTheMiddleOfARestore: what is found is all old, or all new, or
// is not started.
func TestI13KilledInTheMiddleOfARestore(t *testing.T) {
	var members []Member
	for i := range 20 {
		members = append(members, file(fmt.Sprintf("admin/f%02d", i)))
	}
	text := archive(t, Manifest{}, members...)
	from := filepath.Join(t.TempDir(), "archive")
	put(t, from, string(text))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	interrupted := 0
	for n := range roottest.Count(12, 300) {
		r := host(t, nil)
		for _, m := range members {
			put(t, r.place(m.Name), "old")
		}
		cmd := exec.CommandContext(t.Context(), self)
		cmd.Env = append(os.Environ(), "BACKUP_TEST_ROOT="+r.Paths.Root, "BACKUP_TEST_ARCHIVE="+from)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for range 5000 { // it unpacks first; then it puts files in their places
			if n%4 == 0 || Interrupted(r.Paths) != nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Duration(n%24) * 200 * time.Microsecond)
		if err := cmd.Process.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
		if Interrupted(r.Paths) != nil {
			interrupted++
		} else if got := states(r, members); len(got) != 1 {
			t.Fatalf("it would start with files of both: %v", got)
		}
		if err := restoreIn(r.Paths.Root, from); err != nil {
			t.Fatalf("once more: %v", err)
		}
		if got := states(r, members); len(got) != 1 || !got["new"] || Interrupted(r.Paths) != nil {
			t.Fatalf("after the second: %v, %v", got, Interrupted(r.Paths))
		}
	}
	if interrupted == 0 {
		t.Error("never killed in the middle")
	}
}

// states says which kinds of files there are.
func states(r *Restore, members []Member) map[string]bool {
	got := map[string]bool{}
	for _, m := range members {
		switch text, err := os.ReadFile(r.place(m.Name)); {
		case err != nil:
			got[err.Error()] = true
		case string(text) == m.Name:
			got["new"] = true
		default:
			got[string(text)] = true
		}
	}
	return got
}
