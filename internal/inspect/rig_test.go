// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bawn/internal/inspect"
	"bawn/internal/netkern"
	"bawn/internal/netplan"
	"bawn/internal/roottest"
)

// The accounts of the tests; nobody on a machine has them.
const (
	adminID, proxyID, operators = 61001, 61002, 61003
	agentID                     = netplan.FirstUID + 7
)

// The process's first thread is the one that /proc/PID/status tells of, and what
// the words set is of a thread: init runs on the first, and stays there.
func init() { runtime.LockOSThread() }

// TestMain is also the processes of the tests: they become what the words say
// and wait for the end of their input. The tests themselves run among no other
// processes, and their mounts are seen by nobody else.
func TestMain(m *testing.M) {
	if os.Geteuid() == 0 && os.Getpid() != 1 && len(os.Args) > 1 && os.Args[1] != "stand" {
		os.Exit(inside())
	}
	if len(os.Args) > 1 && os.Args[1] == "stand" {
		for _, word := range os.Args[2:] {
			switch word {
			case "closed":
				unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
			case "tame":
				unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
			}
		}
		fmt.Println("ready")
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	if os.Getpid() == 1 {
		if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("proc", "/proc", "proc", 0, "")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	status := m.Run()
	if copied.dir != "" {
		os.RemoveAll(copied.dir)
	}
	os.Exit(status)
}

// inside runs the same tests in PID and mount namespaces of their own.
func inside() int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return e.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// copied is this program where every account can execute it; TestMain removes
// it.
var copied struct {
	once sync.Once
	dir  string
	err  error
}

func everybodys(t *testing.T) string {
	t.Helper()
	copied.once.Do(func() {
		var self []byte
		if self, copied.err = os.ReadFile("/proc/self/exe"); copied.err != nil {
			return
		}
		if copied.dir, copied.err = os.MkdirTemp("", "bawn-inspect-"); copied.err != nil {
			return
		}
		copied.err = errors.Join(os.Chmod(copied.dir, 0o755), os.WriteFile(filepath.Join(copied.dir, "self"), self, 0o755))
	})
	if copied.err != nil {
		t.Fatal(copied.err)
	}
	return filepath.Join(copied.dir, "self")
}

// A rig is a sound installation in a directory of its own.
type rig struct {
	t    *testing.T
	dir  string
	self string // this program, where every account can execute it
	h    inspect.Host
}

func newRig(t *testing.T) *rig {
	t.Helper()
	roottest.Require(t)
	r := &rig{t: t, dir: t.TempDir()}
	for d := r.dir; d != os.TempDir(); d = filepath.Dir(d) {
		r.must(os.Chmod(d, 0o755))
	}
	r.h = inspect.Host{
		Etc: r.at("etc/bawn"), Lib: r.at("var/lib/bawn"), Run: r.at("run/bawn"), Binary: r.at("usr/bin/bawn"),
		Admin: inspect.Account{UID: adminID, GID: adminID}, Proxy: inspect.Account{UID: proxyID, GID: proxyID}, Operators: operators,
		Proc: "/proc", Sysctl: r.at("proc/sys"), System: r.dir,
	}
	r.files()
	r.system()
	r.cgroup()
	r.h.Processes = []inspect.Process{
		{Name: "admin", PID: r.process(adminID, "closed", "tame"), UID: adminID},
		{Name: "proxy", PID: r.process(proxyID, "closed", "tame"), UID: proxyID},
	}
	return r
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) at(path string) string { return filepath.Join(r.dir, path) }

func (r *rig) mkdir(path string, uid, gid int, mode os.FileMode) {
	r.t.Helper()
	r.must(os.MkdirAll(r.at(path), 0o755))
	r.must(os.Chown(r.at(path), uid, gid))
	r.must(os.Chmod(r.at(path), mode))
}

func (r *rig) write(path, text string, uid, gid int, mode os.FileMode) {
	r.t.Helper()
	r.must(os.MkdirAll(filepath.Dir(r.at(path)), 0o755))
	r.must(os.WriteFile(r.at(path), []byte(text), 0o600))
	r.must(os.Chown(r.at(path), uid, gid))
	r.must(os.Chmod(r.at(path), mode))
}

func (r *rig) files() {
	lib := "var/lib/bawn/"
	r.mkdir(lib, 0, 0, 0o755)
	r.mkdir("etc/bawn", 0, 0, 0o755)
	r.write("etc/bawn/config.yaml", "version: 1\n", 0, 0, 0o644)
	r.write("etc/bawn/secret", "x", 0, 0, 0o600)
	r.h.Secrets = []string{r.at("etc/bawn/secret")}
	r.mkdir(lib+"admin", adminID, adminID, 0o700)
	r.mkdir(lib+"public", adminID, adminID, 0o755)
	r.mkdir(lib+"proxy", proxyID, adminID, 0o750)
	r.mkdir(lib+"proxy/journal", proxyID, adminID, os.ModeSetgid|0o750)
	r.mkdir(lib+"agents", 0, 0, 0o711)
	r.mkdir(lib+"agents/dev", 0, 0, 0o711)
	r.mkdir(lib+"agents/dev/home", agentID, agentID, 0o700)
	r.mkdir(lib+"agents/dev/work", agentID, agentID, 0o700)
	r.mkdir(lib+"agents/dev/tmp", 0, 0, 0o700)
	for _, name := range []string{"ca.key", "audit.key", "bawn.db"} {
		r.write(lib+"admin/"+name, "x", adminID, adminID, 0o600)
	}
	r.write(lib+"public/ca.crt", "x", adminID, adminID, 0o644)
	r.write(lib+"public/bundle.crt", "x", adminID, adminID, 0o644)
	r.write(lib+"proxy/journal/1.jsonl", "x", proxyID, adminID, 0o640)
	r.mkdir("run/bawn", 0, 0, 0o755)
	r.socket("run/bawn/admin.sock", proxyID, operators)
	r.socket("run/bawn/netd.sock", proxyID, adminID)
	r.write("usr/bin/bawn", "x", 0, 0, 0o755)
	r.self = everybodys(r.t)
}

func (r *rig) socket(path string, uid, gid int) {
	r.t.Helper()
	dir, err := os.Open(filepath.Dir(r.at(path)))
	r.must(err)
	defer dir.Close()
	l, err := net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path))) // names of sockets are short
	r.must(err)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	r.t.Cleanup(func() { l.Close() })
	r.must(os.Chown(r.at(path), uid, gid))
	r.must(os.Chmod(r.at(path), 0o660))
}

// service is a unit that keeps what every unit must.
const service = `[Unit]
Description=x
[Service]
ExecStart=/usr/bin/bawn proxy
NoNewPrivileges=yes
SystemCallArchitectures=native
LockPersonality=yes
RestrictRealtime=yes
KeyringMode=private
ProtectSystem=strict
PrivateDevices=yes
PrivateTmp=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
RestrictNamespaces=yes
RestrictSUIDSGID=yes
MemoryDenyWriteExecute=yes
CapabilityBoundingSet=
LimitCORE=0
`

func (r *rig) system() {
	r.write("etc/passwd", fmt.Sprintf("root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/bash\nbawn-dev:x:%d:%d::/:/usr/sbin/nologin\n", agentID, agentID), 0, 0, 0o644)
	r.write("etc/group", fmt.Sprintf("root:x:0:\nsudo:x:27:alice\nbawn-dev:x:%d:\n", agentID), 0, 0, 0o644)
	r.write("etc/shadow", "root:*:1::::::\nalice:$y$hash:1::::::\nbawn-dev:!:1::::::\n", 0, 0, 0o640)
	r.write("etc/subuid", "alice:100000:65536\n", 0, 0, 0o644)
	r.write("etc/subgid", "alice:100000:65536\n", 0, 0, 0o644)
	r.write("etc/sudoers", "# bawn-dev is not for here\nroot ALL=(ALL:ALL) ALL\n%sudo ALL=(ALL:ALL) ALL\n", 0, 0, 0o440)
	r.write("usr/lib/systemd/system/bawn-proxy.service", service, 0, 0, 0o644)
	for key, value := range map[string]string{
		"kernel.seccomp.actions_avail": "kill_process kill_thread trap errno user_notif trace log allow", "user.max_net_namespaces": "4096",
		"kernel.unprivileged_userns_clone": "0", "kernel.io_uring_disabled": "2", "kernel.dmesg_restrict": "1", "kernel.unprivileged_bpf_disabled": "2",
	} {
		r.sysctl(key, value)
	}
}

// sysctl is a setting of a kernel that the tests do not have: these are not
// namespaced.
func (r *rig) sysctl(key, value string) {
	r.t.Helper()
	r.write("proc/sys/"+strings.ReplaceAll(key, ".", "/"), value+"\n", 0, 0, 0o644)
}

func (r *rig) cgroup() {
	root, err := netkern.CgroupRoot()
	r.must(err)
	r.h.Cgroups, r.h.Mark = root, fmt.Sprintf("bawn-%08x", uint32(time.Now().UnixNano()))
	dir := filepath.Join(root, r.h.Mark)
	if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { os.Remove(dir) })
}

// process starts one that stands until the test ends.
func (r *rig) process(uid int, words ...string) int {
	r.t.Helper()
	cmd := exec.Command(r.self, append([]string{"stand"}, words...)...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid), Groups: []uint32{}}, Pdeathsig: syscall.SIGKILL,
	}
	in, err := cmd.StdinPipe()
	r.must(err)
	out, err := cmd.StdoutPipe()
	r.must(err)
	r.must(cmd.Start())
	r.t.Cleanup(func() { in.Close(); cmd.Wait() })
	if _, err := io.ReadFull(out, make([]byte, 6)); err != nil {
		r.t.Fatal(err)
	}
	return cmd.Process.Pid
}

// tmpfs puts a file system of its own at a directory.
func (r *rig) tmpfs(path, options string) {
	r.t.Helper()
	info, err := os.Stat(r.at(path))
	r.must(err)
	st := info.Sys().(*syscall.Stat_t)
	r.must(unix.Mount("tmpfs", r.at(path), "tmpfs", 0, options))
	r.t.Cleanup(func() { unix.Unmount(r.at(path), unix.MNT_DETACH) })
	r.must(os.Chown(r.at(path), int(st.Uid), int(st.Gid)))
	r.must(os.Chmod(r.at(path), info.Mode()))
}
