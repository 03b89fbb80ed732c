// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAHomeIsNoWorkspace(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	within, link := filepath.Join(home, "data"), filepath.Join(t.TempDir(), "link")
	if err := os.Mkdir(within, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(home, link); err != nil {
		t.Fatal(err)
	}
	for dir, good := range map[string]bool{home: false, filepath.Dir(home): false, link: false, within: true, t.TempDir(): true} {
		if err := notHome(dir); (err == nil) != good {
			t.Errorf("%s: %v", dir, err)
		}
	}
	status, _, stderr := call(t, "run", "--work", home, "--", "true")
	if status != 125 || !strings.Contains(stderr, "holds your home") {
		t.Errorf("status %d, %q", status, stderr)
	}
	if _, _, stderr := call(t, "--root", t.TempDir(), "run", "--lend", home, "--", "true"); !strings.Contains(stderr, "holds your home: the agent can read") {
		t.Errorf("lending it: %q", stderr)
	}
}

// TestALinkIsSaid: an agent can have put it into the workspace.
func TestALinkIsSaid(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	keys, link := filepath.Join(dir, "keys"), filepath.Join(dir, "project")
	if err := os.Mkdir(keys, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("keys", link); err != nil {
		t.Fatal(err)
	}
	for arg, said := range map[string]bool{link: true, keys: false} {
		for _, flag := range []string{"--work", "--lend"} {
			_, _, stderr := call(t, "--root", t.TempDir(), "run", flag, arg, "--", "true")
			if strings.Contains(stderr, "bawn: "+link+" leads to "+keys+"\n") != said {
				t.Errorf("%s %s: %q", flag, arg, stderr)
			}
		}
	}
}

func TestOnlyTheTopOfARepositoryIsCloned(t *testing.T) {
	dir := t.TempDir()
	sub := filepath.Join(dir, "repo", "sub")
	bare := filepath.Join(dir, "bare.git")
	for _, d := range []string{sub, filepath.Join(dir, "repo", ".git"), filepath.Join(bare, "objects"), filepath.Join(bare, "refs")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(bare, "HEAD"), "ref: refs/heads/main\n")
	for d, want := range map[string]string{
		filepath.Join(dir, "repo"): "",
		bare:                       "",
		sub:                        "is within the git repository " + filepath.Join(dir, "repo"),
		dir:                        "is not a git repository",
	} {
		err := isRepo(d)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", d, err, want)
		}
	}
	for _, c := range []struct{ flag, dir, want string }{
		{"--repo", dir, "run: --repo: " + dir + " is not a git repository"},
		{"--repo", filepath.Join(dir, "none"), "no such file"},
		{"--work", filepath.Join(bare, "HEAD"), "not a directory"},
		{"--lend", filepath.Join(dir, "none"), "no such file"},
	} {
		if status, _, stderr := call(t, "run", c.flag, c.dir, "--", "true"); status != 125 || !strings.Contains(stderr, c.want) {
			t.Errorf("%s %s: status %d, %q", c.flag, c.dir, status, stderr)
		}
	}
}

// TestOfACheckoutOnlyWhatIsCommittedIsLent: git needs the .git directory, and
// what lies beside it stays outside.
func TestOfACheckoutOnlyWhatIsCommittedIsLent(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"repo/.git", "bare.git/objects", "bare.git/refs", "linked"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, "bare.git/HEAD"), "ref: refs/heads/main\n")
	if err := os.Mkdir(filepath.Join(dir, "worktree"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "worktree/.git"), "gitdir: "+dir+"/repo/.git/worktrees/w\n")
	if err := os.Symlink("../repo/.git", filepath.Join(dir, "linked/.git")); err != nil {
		t.Fatal(err)
	}
	for name, lent := range map[string]string{"repo": "repo/.git", "bare.git": "bare.git", "worktree": "", "linked": ""} {
		d, f, err := openRepo(filepath.Join(dir, name))
		if lent == "" {
			if err == nil || !strings.Contains(err.Error(), "leads to another directory") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !same(f.Name(), filepath.Join(dir, lent)) || d.Path != filepath.Join(dir, name) {
			t.Errorf("%s: lent is %s as %s", name, f.Name(), d.Path)
		}
		f.Close()
	}
}
