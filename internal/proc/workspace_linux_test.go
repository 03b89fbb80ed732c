// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proc_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"bawn/internal/proc"
	"bawn/internal/roottest"

	"golang.org/x/sys/unix"
)

const (
	operatorUID = 61234
	operatorGID = 61235
	strangerGID = 61236
)

// operatorDir makes a directory of the operator's with a few files.
func operatorDir(t *testing.T) string {
	t.Helper()
	roottest.Require(t)
	dir := filepath.Join(t.TempDir(), "alice")
	writeTree(t, map[string]string{
		dir + "/mine.txt":       "mine\n",
		dir + "/private.txt":    "private\n",
		dir + "/stranger.txt":   "stranger's\n",
		dir + "/roots.txt":      "root's\n",
		dir + "/sub/tool":       "#!/bin/sh\necho tool ran\n",
		dir + "/group/only.txt": "the group's\n",
	})
	owners := []struct {
		p        string
		uid, gid int
		mode     os.FileMode
	}{
		{"", operatorUID, operatorGID, 0o700},
		{"/mine.txt", operatorUID, operatorGID, 0o644},
		{"/private.txt", operatorUID, operatorGID, 0o600},
		{"/stranger.txt", operatorUID, strangerGID, 0o644}, // a file of another group
		{"/roots.txt", 0, 0, 0o600},
		{"/sub", operatorUID, operatorGID, 0o755},
		{"/sub/tool", operatorUID, operatorGID, 0o755},
		{"/group", 0, strangerGID, 0o770}, // the operator is not in that group
		{"/group/only.txt", 0, strangerGID, 0o660},
	}
	for _, o := range owners {
		if err := errors.Join(os.Chmod(dir+o.p, o.mode), os.Chown(dir+o.p, o.uid, o.gid)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// lent opens a directory of the operator's as the command line does.
func lent(t *testing.T, dir, at string) proc.Mount {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), dir)
	t.Cleanup(func() { f.Close() })
	return proc.Mount{Dir: f, Path: at, OwnerUID: operatorUID, OwnerGID: operatorGID}
}

func owner(t *testing.T, p string) (uid, gid uint32) {
	t.Helper()
	st, err := os.Lstat(p)
	if err != nil {
		t.Fatal(err)
	}
	s := st.Sys().(*syscall.Stat_t)
	return s.Uid, s.Gid
}

func TestTheOperatorsDirectoryIsTheAgentsToWorkIn(t *testing.T) {
	dir := operatorDir(t)
	s := spec(newState(t), "sh", "-c", `pwd; stat -c '%u %g %n' mine.txt roots.txt; cat private.txt; echo more >> mine.txt; echo new > new.txt; mkdir made
		rm stranger.txt && echo removed; cat roots.txt; cat group/only.txt; echo x > roots.txt; chmod u+s new.txt; id -u`)
	work := lent(t, dir, "")
	s.Work = &work
	r := run(t, s)
	want := "/work\n1900000042 1900000042 mine.txt\n0 0 roots.txt\nprivate\nremoved\n1900000042\n"
	if r.out != want {
		t.Errorf("got\n%s\nwant\n%s\n%s", r.out, want, r.err)
	}
	for _, p := range []string{"/mine.txt", "/new.txt", "/made"} {
		if uid, gid := owner(t, dir+p); uid != operatorUID || gid != operatorGID {
			t.Errorf("%s is %d:%d, not the operator's", p, uid, gid)
		}
	}
	if st, err := os.Stat(dir + "/new.txt"); err != nil || st.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
		t.Errorf("%v %v", st.Mode(), err)
	}
	if text, err := os.ReadFile(dir + "/roots.txt"); err != nil || string(text) != "root's\n" {
		t.Errorf("%q %v", text, err)
	}
}

func TestAWorkspaceMayKeepItsOwnPath(t *testing.T) {
	dir := operatorDir(t)
	s := spec(newState(t), "sh", "-c", "pwd; ls /work")
	work := lent(t, dir, "/home/alice/src")
	s.Work = &work
	if r := run(t, s); r.out != "/home/alice/src\n" {
		t.Errorf("%q %q %q", r.out, r.err, r.Fault)
	}
}

func TestWithoutAKnownGroupNoGroupIsLent(t *testing.T) {
	dir := operatorDir(t)
	if err := os.Chown(dir, operatorUID, strangerGID); err != nil { // a trap: the directory names the group
		t.Fatal(err)
	}
	s := spec(newState(t), "sh", "-c", "cat group/only.txt; echo x > new; stat -c %g new")
	work := lent(t, dir, "")
	work.OwnerGID = 0
	s.Work = &work
	if r := run(t, s); r.out != "1900000042\n" {
		t.Errorf("%q %q", r.out, r.err)
	}
}

func TestALinkCannotRedirectTheWorkspace(t *testing.T) {
	roottest.Require(t)
	dir := operatorDir(t)
	state := newState(t)
	work := lent(t, dir, "")
	// After the descriptor was opened the path leads elsewhere.
	if err := errors.Join(os.Rename(dir, dir+".moved"), os.Symlink("/etc", dir)); err != nil {
		t.Fatal(err)
	}
	s := spec(state, "sh", "-c", "cat mine.txt; ln -s / root; ls root/root; readlink -f root")
	s.Work = &work
	r := run(t, s)
	if r.out != "mine\n/\n" || !strings.Contains(r.err, "Permission denied") {
		t.Errorf("%q %q", r.out, r.err)
	}
	// The agent's own directory must not be a link at all.
	home := filepath.Join(state, "agents/dev/home")
	if err := errors.Join(os.Remove(home), os.Symlink("/root", home)); err != nil {
		t.Fatal(err)
	}
	if c, err := proc.Start(t.Context(), s, nil, nil); err == nil {
		c.Close()
		t.Error("a link was followed")
	}
}

func TestLentDirectoriesAreReadOnly(t *testing.T) {
	dir := operatorDir(t)
	s := spec(newState(t), "sh", "-c", `tool; cat /home/alice/lib/private.txt; echo x > /home/alice/lib/x; echo x > /home/alice/x; ls -A /home/alice; touch /home/alice/lib/mine.txt; ls /home`)
	s.Env = []string{"PATH=/usr/bin:/home/alice/lib/sub"}
	s.Lends = []proc.Mount{lent(t, dir, "/home/alice/lib"), lent(t, dir, "/home/alice/lib/sub/../../bin")}
	s.Lends[1].Path = "/home/alice/bin"
	r := run(t, s)
	if r.out != "tool ran\nprivate\nbin\nlib\nalice\ndev\n" || strings.Count(r.err, "Read-only file system") != 3 {
		t.Errorf("%q %q %q", r.out, r.err, r.Fault)
	}
	if _, err := os.Stat(dir + "/x"); err == nil {
		t.Error("written")
	}
}

func TestLendsMayNestAndLieInTheTemporaryDirectory(t *testing.T) {
	dir := operatorDir(t)
	s := spec(newState(t), "sh", "-c", "cat /home/alice/mine.txt /home/alice/sub/mine.txt /tmp/a/b/mine.txt; echo x > /tmp/a/b/c; echo still > /tmp/mine")
	s.Lends = []proc.Mount{lent(t, dir, "/home/alice/sub"), lent(t, dir, "/home/alice"), lent(t, dir, "/tmp/a/b")}
	r := run(t, s)
	if r.out != "mine\nmine\nmine\n" || strings.Count(r.err, "Read-only") != 1 {
		t.Errorf("%q %q %q", r.out, r.err, r.Fault)
	}
}

func TestAFileSystemWithoutOwnerMapsIsRefusedForWriting(t *testing.T) {
	inPrivateMounts(t, func() {
		// An overlay cannot be mapped; /etc is one here.
		s := spec(newState(t), "cat", "/home/alice/etc/hostname")
		work := lent(t, "/etc", "")
		s.Work = &work
		c, err := proc.Start(t.Context(), s, nil, nil)
		if err == nil {
			c.Close()
			t.Fatal("started")
		}
		if !strings.Contains(err.Error(), "--repo") || !strings.Contains(err.Error(), "cannot map owners") {
			t.Error(err)
		}
		s.Work = nil
		s.Lends = []proc.Mount{lent(t, "/etc", "/home/alice/etc")}
		if r := run(t, s); r.out == "" || r.Fault != "" {
			t.Errorf("for reading it serves: %q %q %q", r.out, r.err, r.Fault)
		}
	})
}

func TestAnotherMountNamespacesDirectoryIsExplained(t *testing.T) {
	roottest.Require(t)
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	s := spec(newState(t), "true")
	work := lent(t, filepath.Join("/proc", itoa(cmd.Process.Pid), "root/usr"), "")
	s.Work = &work
	c, err := proc.Start(t.Context(), s, nil, nil)
	if err == nil {
		c.Close()
		t.Fatal("started")
	}
	if !strings.Contains(err.Error(), "another mount namespace") {
		t.Error(err)
	}
}

// repository makes a git repository of the operator's that tries to run
// something wherever git would.
func repository(t *testing.T) string {
	t.Helper()
	roottest.Require(t)
	dir := filepath.Join(t.TempDir(), "proj")
	script := `set -e; git init -q -b main ` + dir + `; cd ` + dir + `
		echo hello > README; git add README; git -c user.name=a -c user.email=a@example.com commit -qm one
		printf '#!/bin/sh\ntouch /tmp/hook-ran\n' > .git/hooks/post-checkout; chmod +x .git/hooks/post-checkout
		git config core.fsmonitor 'touch /tmp/fsmonitor-ran; false'
		chown -R ` + itoa(operatorUID) + `:` + itoa(operatorGID) + ` .; chmod 700 .`
	cmd := exec.Command("sh", "-c", script)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

func TestARepositoryIsClonedIntoTheWorkspace(t *testing.T) {
	dir := repository(t)
	state := newState(t)
	s := spec(state, "sh", "-c", "pwd; cat README; git log --format=%s; ls /tmp; git config --get safe.directory; echo changed > README; echo x > /run/bawn/repo/x")
	repo := lent(t, dir, "/home/alice/proj")
	s.Repo = &repo
	r := run(t, s)
	if r.out != "/work/proj\nhello\none\n" || r.Fault != "" {
		t.Errorf("%q %q %q", r.out, r.err, r.Fault)
	}
	if uid, _ := owner(t, filepath.Join(state, "agents/dev/work/proj/README")); uid != agentUID {
		t.Errorf("the clone is uid %d's", uid)
	}
	// Again: what the agent did is kept.
	s.Session = "s-2"
	s.Argv = []string{"cat", "README"}
	r = run(t, s)
	if r.out != "changed\n" || r.err != "bawn: /work/proj is there already, and is used as it is\n" {
		t.Errorf("%q %q %q", r.out, r.err, r.Fault)
	}
}

func TestACloneThatFailsIsAFault(t *testing.T) {
	dir := operatorDir(t) // no repository
	s := spec(newState(t), "echo", "ran")
	repo := lent(t, dir, "/home/alice/proj")
	s.Repo = &repo
	r := run(t, s)
	if r.Status != proc.StatusFault || r.out != "" || !strings.HasPrefix(r.Fault, "cloning /home/alice/proj: git ended with status ") {
		t.Errorf("%+v", r)
	}
}
