// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bawn/internal/config"
	"bawn/internal/roottest"
)

// apart puts this test into a mount namespace of its own, for good: its thread
// ends with it.
func apart(t testing.TB) {
	t.Helper()
	roottest.Require(t)
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
}

// A layout says which directories of an installation are mounted by themselves:
// "tmpfs", or "bind" for the same file system, mounted once more.
type layout map[string]string

func layouts(p config.Paths) map[string]layout {
	return map[string]layout{
		"etc":     {p.Etc(): "tmpfs"},
		"agents":  {p.Agents(): "tmpfs"},
		"record":  {p.Journal("proxy"): "tmpfs", p.State("admin"): "tmpfs"},
		"agent":   {filepath.Join(p.Agents(), "dev"): "tmpfs"},
		"all":     {p.Etc(): "tmpfs", p.State("admin"): "tmpfs", p.State("proxy"): "tmpfs", p.Agents(): "tmpfs"},
		"by bind": {p.Agents(): "bind", p.Etc(): "bind"},
	}
}

func (l layout) mount(t testing.TB) {
	t.Helper()
	for dir, kind := range l {
		source, flags := "none", uintptr(0)
		if kind == "bind" {
			source, flags, kind = t.TempDir(), unix.MS_BIND, ""
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount(source, dir, kind, flags, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.unmount(t, dir) })
	}
}

func (layout) unmount(t testing.TB, dir string) {
	if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
		t.Error(err)
	}
}

// TestPartsMayBeFileSystemsOfTheirOwn: nothing can be renamed from one to
// another.
func TestPartsMayBeFileSystemsOfTheirOwn(t *testing.T) {
	apart(t)
	home := Member{Name: "agents/dev/home", Kind: Directory, Owner: "bawn-dev", Group: "bawn-dev", Mode: 0o700}
	members := []Member{file("admin/ca.key"), file("proxy/names/dev"), file("proxy/budgets/dev.a-1.used"), file("etc/config.yaml"), home, file("agents/dev/home/x")}
	members[5].Owner, members[5].Group = "bawn-dev", "bawn-dev"
	text := archive(t, Manifest{Homes: true}, members...)
	for name := range layouts(config.Paths{}) {
		r := host(t, verified(t, text))
		layouts(r.Paths)[name].mount(t)
		for _, m := range members {
			if m.Kind == File && !counted(m.Name) {
				put(t, r.place(m.Name), "old")
			}
		}
		if err := r.Stage(bytes.NewReader(text)); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		before, err := r.Place(t.Context())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, m := range members {
			if m.Kind != File {
				continue
			}
			wantFile(t, r.place(m.Name), m.Name)
			kept := 0
			for _, dir := range before {
				if text, err := os.ReadFile(filepath.Join(dir, m.Name)); err == nil && string(text) == "old" {
					kept++
				}
			}
			if want := 1; !counted(m.Name) && kept != want {
				t.Errorf("%s: %s of before is in %d of %v", name, m.Name, kept, before)
			}
		}
		left := ""
		for _, dir := range []string{r.Paths.Lib(), r.Paths.Etc(), r.Paths.State("admin"), r.Paths.State("proxy"), r.Paths.Agents(), filepath.Join(r.Paths.Agents(), "dev")} {
			if there(filepath.Join(dir, stageName)) {
				left += dir
			}
		}
		if left != "" || Interrupted(r.Paths) != nil {
			t.Errorf("%s: left in %s; %v", name, left, Interrupted(r.Paths))
		}
	}
}

// TestAPlaceThatCannotBeMovedIsRefusedBeforeAnything is.
func TestAPlaceThatCannotBeMovedIsRefusedBeforeAnything(t *testing.T) {
	apart(t)
	text := archive(t, Manifest{}, file("admin/ca.key"), file("proxy/names/dev"))
	r := host(t, verified(t, text))
	put(t, r.place("admin/ca.key"), "old")
	layout{r.place("proxy/names"): "tmpfs"}.mount(t)
	if err := r.Stage(bytes.NewReader(text)); err == nil || !strings.Contains(err.Error(), r.place("proxy/names")+" is a file system of its own") {
		t.Errorf("%v", err)
	}
	wantFile(t, r.place("admin/ca.key"), "old")
	if err := Interrupted(r.Paths); err != nil {
		t.Error(err)
	}
}

// TestTheRecordIsNotHalfBrought: a host that had no record, and was interrupted
// while it got the archive's, gets the rest of it.
func TestTheRecordIsNotHalfBrought(t *testing.T) {
	text := archive(t, Manifest{Journals: true}, file("journal/admin/admin-000000001-20260101.jsonl"), file("admin/audit.key"), file("admin/checkpoints/1"))
	r := host(t, verified(t, text))
	if err := r.Stage(bytes.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(r.Paths.Lib(), stageName, "admin/audit.key")); err != nil { // where it will fail
		t.Fatal(err)
	}
	if _, err := r.Place(t.Context()); err == nil {
		t.Fatal("placed what is not there")
	}
	r.run(t, text)
	wantFile(t, r.Paths.AuditKey(), "admin/audit.key")
	wantFile(t, filepath.Join(r.Paths.Checkpoints(), "1"), "admin/checkpoints/1")
}
