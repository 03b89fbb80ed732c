// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netd_test

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"bawn/internal/netd"
	"bawn/internal/netd/netdapi"
	"bawn/internal/netplan"
)

// accounts is the text of all account files.
func accounts(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, f := range []string{"passwd", "group", "shadow", "gshadow", "subuid", "subgid"} {
		text, _ := os.ReadFile("/etc/" + f)
		fmt.Fprintf(&all, "== %s\n%s", f, text)
	}
	return all.String()
}

func TestAccountsComeAndGo(t *testing.T) {
	r := newRig(t)
	c := r.admin()
	before := accounts(t)
	for range 2 { // a name and a number can be used again
		if err := c.CreateAccount(t.Context(), "coder", netplan.FirstUID); err != nil {
			t.Fatal(err)
		}
		made := accounts(t)
		u, err := user.Lookup("bawn-coder")
		if err != nil || u.Uid != "1900000000" || u.Gid != "1900000000" || u.HomeDir != "/home/coder" {
			t.Errorf("account %+v, %v", u, err)
		}
		passwd, _ := exec.Command("getent", "passwd", "bawn-coder").Output()
		if !strings.HasSuffix(strings.TrimSpace(string(passwd)), ":/usr/sbin/nologin") {
			t.Errorf("passwd: %s", passwd)
		}
		if text, _ := os.ReadFile("/etc/subuid"); strings.Contains(string(text), "coder") {
			t.Error("the account has subordinate uids")
		}
		base := filepath.Join(r.o.State, "agents", "coder")
		for dir, want := range map[string]string{
			base:           "0 drwx--x--x",
			base + "/home": "1900000000 drwx------",
			base + "/work": "1900000000 drwx------",
			base + "/tmp":  "0 drwx------",
		} {
			info, err := os.Lstat(dir)
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(info.Sys().(*syscall.Stat_t).Uid, " ", info.Mode()); got != want {
				t.Errorf("%s: %s, not %s", dir, got, want)
			}
		}
		if _, err := os.Stat("/home/coder"); err == nil {
			t.Error("a home was made outside of Bawn's directory")
		}
		// Asked again, as after a crash in between: nothing changes.
		if err := c.CreateAccount(t.Context(), "coder", netplan.FirstUID); err != nil {
			t.Errorf("again: %v", err)
		}
		if got := accounts(t); got != made {
			t.Errorf("making it again changed\n%s\ninto\n%s", made, got)
		}
		if err := c.RemoveAccount(t.Context(), "coder", netplan.FirstUID); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(base); err == nil {
			t.Error("the directories are left")
		}
		if got := accounts(t); got != before {
			t.Errorf("removing left\n%s\nnot\n%s", got, before)
		}
		if err := c.RemoveAccount(t.Context(), "coder", netplan.FirstUID); err != nil {
			t.Errorf("removing what is gone: %v", err)
		}
	}
}

func TestAccountCollisions(t *testing.T) {
	r := newRig(t)
	c := r.admin()
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %v: %s", name, args, err, out)
		}
	}
	run("groupadd", "-g", "4711", "bawn-taken")
	run("useradd", "-u", "4712", "-g", "4711", "-M", "bawn-human")
	run("useradd", "-l", "-u", "1900000050", "-g", "4711", "-M", "-K", "SUB_UID_COUNT=0", "somebody")
	run("groupadd", "-g", "1900000051", "something")
	defer func() {
		run("userdel", "bawn-human")
		run("userdel", "somebody")
		run("groupdel", "bawn-taken")
		run("groupdel", "something")
	}()
	if err := os.Symlink("/etc", filepath.Join(r.o.State, "agents", "linked")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(r.o.State, "agents", "used"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(r.o.State, "agents", "used", "home"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(filepath.Join(r.o.State, "agents", "used", "home"), 1000, 1000); err != nil {
		t.Fatal(err)
	}
	before := accounts(t)
	for name, want := range map[string]struct {
		agent string
		uid   uint32
		code  netdapi.Code
	}{
		"a group of the name":      {"taken", devUID, netdapi.CodeExists},
		"an account of the name":   {"human", devUID, netdapi.CodeExists},
		"an account of the number": {"fresh", 1900000050, netdapi.CodeExists},
		"a group of the number":    {"fresh", 1900000051, netdapi.CodeExists},
		"root's number":            {"fresh", 0, netdapi.CodeNotPermitted},
		"a person's number":        {"fresh", 1000, netdapi.CodeNotPermitted},
		"beyond the range":         {"fresh", netplan.LastUID + 1, netdapi.CodeNotPermitted},
		"no name":                  {"", devUID, netdapi.CodeBadRequest},
		"a path":                   {"../x", devUID, netdapi.CodeBadRequest},
		"an option":                {"-o", devUID, netdapi.CodeBadRequest},
		"a colon":                  {"a:b", devUID, netdapi.CodeBadRequest},
		"a line break":             {"a\nroot", devUID, netdapi.CodeBadRequest},
		"too long for the tools":   {strings.Repeat("a", 28), devUID, netdapi.CodeBadRequest},
		"a link in its place":      {"linked", devUID, netdapi.CodeExists},
		"another's home":           {"used", devUID, netdapi.CodeExists},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.CreateAccount(t.Context(), want.agent, want.uid); code(err) != want.code {
				t.Errorf("making it: %v", err)
			}
			if got := accounts(t); got != before {
				t.Errorf("left\n%s", got)
			}
		})
	}
	for agent, uid := range map[string]uint32{"human": 4712, "taken": devUID, "fresh": 1900000050} {
		if err := c.RemoveAccount(t.Context(), agent, uid); err == nil {
			t.Errorf("removed agent %s with uid %d", agent, uid)
		}
	}
	if got := accounts(t); got != before {
		t.Errorf("removing what is not Bawn's left\n%s", got)
	}
	if _, err := os.Stat("/etc/passwd"); err != nil {
		t.Error(err)
	}
}

// TestAccountsAreMadeWholeOrNotAtAll fails each step in turn.
func TestAccountsAreMadeWholeOrNotAtAll(t *testing.T) {
	requirePrivate(t)
	f := &failer{}
	r := startRig(t, netd.WithCheck(options(t), f.check))
	c := r.admin()
	before := accounts(t)
	if err := c.CreateAccount(t.Context(), "coder", devUID); err != nil {
		t.Fatal(err)
	}
	if err := c.RemoveAccount(t.Context(), "coder", devUID); err != nil {
		t.Fatal(err)
	}
	for _, step := range f.seen() {
		f.fail(step)
		if err := c.CreateAccount(t.Context(), "coder", devUID); err == nil || !strings.Contains(err.Error(), step+": made to fail") {
			t.Errorf("step %s: %v", step, err)
		}
		if got := accounts(t); got != before {
			t.Errorf("step %s left\n%s", step, got)
		}
		if left, _ := os.ReadDir(filepath.Join(r.o.State, "agents")); len(left) != 0 {
			t.Errorf("step %s left %v", step, left)
		}
	}
}

// TestI14RemovalFollowsNoLink: an agent may leave anything in its directories;
// removing it deletes nothing else, and all of it.
func TestI14RemovalFollowsNoLink(t *testing.T) {
	r := newRig(t)
	c := r.admin()
	if err := c.CreateAccount(t.Context(), "hostile", devUID); err != nil {
		t.Fatal(err)
	}
	precious := t.TempDir()
	if err := os.WriteFile(filepath.Join(precious, "file"), []byte("keep"), 0o600); err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(r.o.State, "agents", "hostile", "home")
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	do(os.Symlink(precious, filepath.Join(home, "link")))
	do(os.Symlink("..", filepath.Join(home, "up")))
	do(unix.Mkfifo(filepath.Join(home, "pipe"), 0o600))
	do(os.MkdirAll(filepath.Join(home, "closed", "deeper"), 0o755))
	do(os.WriteFile(filepath.Join(home, "closed", "deeper", "file"), nil, 0))
	do(os.Chmod(filepath.Join(home, "closed"), 0))
	do(os.Mkdir(filepath.Join(home, "name\n\x1b[2J"), 0o700))
	deep := home
	for range 200 {
		deep = filepath.Join(deep, "d")
	}
	do(os.MkdirAll(deep, 0o700))
	do(os.RemoveAll(filepath.Join(r.o.State, "agents", "hostile", "work")))
	do(os.Symlink(precious, filepath.Join(r.o.State, "agents", "hostile", "work")))
	if err := c.RemoveAccount(t.Context(), "hostile", devUID); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Dir(home)); err == nil {
		t.Error("something is left")
	}
	if text, err := os.ReadFile(filepath.Join(precious, "file")); err != nil || string(text) != "keep" {
		t.Errorf("what the links led to: %q, %v", text, err)
	}
}
