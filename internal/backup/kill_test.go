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
	if err := r.Stage(f); err != nil {
		return err
	}
	_, err = r.Place(context.Background())
	return err
}

// TestI13KilledInTheMiddleOfARestore: what is found is all old, or all new, or
// is not started.
func TestI13KilledInTheMiddleOfARestore(t *testing.T) {
	var members []Member
	for i := range 20 {
		members = append(members, file(fmt.Sprintf("admin/f%02d", i)))
	}
	killed(t, members, func(*Restore) {}, roottest.Count(12, 300))
}

// TestI13KilledBetweenFileSystems is the same where parts of the installation are
// file systems of their own.
func TestI13KilledBetweenFileSystems(t *testing.T) {
	apart(t)
	members := []Member{file("etc/config.yaml")}
	for i := range 8 {
		theirs := file(fmt.Sprintf("agents/a%02d/home/x", i))
		home := theirs
		home.Name, home.Kind, home.Mode = fmt.Sprintf("agents/a%02d/home", i), Directory, 0o700
		members = append(members, file(fmt.Sprintf("admin/f%02d", i)), file(fmt.Sprintf("proxy/f%02d", i)), home, theirs)
	}
	for _, name := range []string{"etc", "agents", "all"} {
		killed(t, members, func(r *Restore) { layouts(r.Paths)[name].mount(t) }, roottest.Count(6, 150))
	}
}

func killed(t *testing.T, members []Member, mount func(*Restore), rounds int) {
	t.Helper()
	text := archive(t, Manifest{}, members...)
	from := filepath.Join(t.TempDir(), "archive")
	put(t, from, string(text))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	interrupted := 0
	for n := range rounds {
		r := host(t, nil)
		mount(r)
		for _, m := range members {
			if m.Kind == File {
				put(t, r.place(m.Name), "old")
			}
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
		keptOld(t, r, members)
	}
	if interrupted == 0 {
		t.Error("never killed in the middle")
	}
}

// keptOld wants each file of before to be kept, once killed and once not.
func keptOld(t *testing.T, r *Restore, members []Member) {
	t.Helper()
	bases, err := Bases(r.Paths)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range members {
		found := 0
		for _, base := range bases {
			for _, form := range []string{"before-restore-*", ".before-restore-*"} {
				dirs, _ := filepath.Glob(filepath.Join(base, form))
				for _, dir := range dirs {
					if text, err := os.ReadFile(filepath.Join(dir, m.Name)); err == nil && string(text) == "old" {
						found++
					}
				}
			}
			if there(filepath.Join(base, stageName)) {
				t.Errorf("%s still has what was unpacked", base)
			}
		}
		if m.Kind == File && found != 1 {
			t.Errorf("what %s was is kept %d times", m.Name, found)
		}
	}
}

// states says which kinds of files there are.
func states(r *Restore, members []Member) map[string]bool {
	got := map[string]bool{}
	for _, m := range members {
		if m.Kind != File {
			continue
		}
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
