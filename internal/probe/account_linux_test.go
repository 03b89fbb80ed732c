// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"unsafe"

	"bawn/internal/probe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// The account of a scene is bounded as an agent's is, by means of the test's
// own, so that each bound can be left out alone: a namespace of processes whose
// first one cannot be looked into, no capability, no new privileges, a filter
// on calls and sockets, nosuid where it may write, nothing of the host's /run.
const (
	firstVerb   = "first"   // process 1: makes the bounds
	accountVerb = "account" // probes within them
	accountUID  = 1_900_000_077
)

// confined probes as the account. dir holds the scene's files.
func confined(scene, dir string, c probe.Config) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	// Copied, since the account may not reach where Go builds tests.
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "probe")
	if err := os.WriteFile(path, program, 0o755); err != nil {
		return err
	}
	cmd := exec.Command(path, firstVerb, scene, path)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(text), os.Stdout, os.Stderr
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC, Pdeathsig: syscall.SIGKILL}
	return cmd.Run()
}

// first bounds itself and then runs the account's program.
func first(scene, path string) error {
	runtime.LockOSThread() // never unlocked: what is given up is this thread's, and its children's
	bind := func(dir string) error {
		if scene == "set-id bits" && dir == "/tmp" {
			return nil
		}
		if err := unix.Mount(dir, dir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return err
		}
		return unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_NOSUID, "")
	}
	steps := []func() error{
		func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") },
		func() error { return unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID, "") },
		func() error { return unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID, "") },
		func() error { return bind("/tmp") },
		func() error { return bind("/dev/shm") },
		func() error { return stranger(scene) },
		func() error { return dropBounding(scene) },
		func() error { return raw(unix.SYS_SETGROUPS, 0, 0, 0) },
		func() error { return raw(unix.SYS_SETRESGID, accountUID, accountUID, accountUID) },
		// Which makes this process one that its own account cannot look into.
		func() error { return raw(unix.SYS_SETRESUID, accountUID, accountUID, accountUID) },
		func() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) },
	}
	for i, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	cmd := exec.Command(path, accountVerb, scene, "")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}

// stranger starts another account's process where the probe sees it.
func stranger(scene string) error {
	if scene != "another process" {
		return nil
	}
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	return cmd.Start() // it ends with process 1
}

func dropBounding(scene string) error {
	for c := uintptr(0); ; c++ {
		if scene == "a capability" && c == unix.CAP_NET_RAW {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			if c > unix.CAP_AUDIT_READ && err == unix.EINVAL {
				return nil
			}
			return err
		}
	}
}

func raw(nr, a, b, c uintptr) error {
	if _, _, errno := unix.RawSyscall(nr, a, b, c); errno != 0 {
		return errno
	}
	return nil
}

// account probes, behind a filter that only it has.
func account(scene, _ string) error {
	c, err := probe.ReadConfig(os.Stdin)
	if err != nil {
		return err
	}
	if err := installFilter(scene); err != nil {
		return fmt.Errorf("filter: %w", err)
	}
	return probe.Run(context.Background(), c, os.Stdout)
}

// refusedCalls are those that the probe tries and an account without a filter
// may make, or hears of more than that it may not.
var refusedCalls = []uint32{
	unix.SYS_UNSHARE, unix.SYS_IO_URING_SETUP, unix.SYS_BPF, unix.SYS_FSOPEN, unix.SYS_PTRACE, unix.SYS_SETNS, unix.SYS_CLONE3, unix.SYS_KEYCTL,
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_FINIT_MODULE,
	unix.SYS_FANOTIFY_INIT, unix.SYS_SYSLOG,
}

// A kind of sockets.
type kind struct{ family, kind, protocol uint32 }

// sockets may be made.
var sockets = []kind{
	{unix.AF_UNIX, unix.SOCK_STREAM, 0}, {unix.AF_UNIX, unix.SOCK_DGRAM, 0}, {unix.AF_UNIX, unix.SOCK_SEQPACKET, 0},
	{unix.AF_INET, unix.SOCK_STREAM, 0}, {unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_TCP}, {unix.AF_INET, unix.SOCK_DGRAM, 0},
	{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDP}, {unix.AF_INET6, unix.SOCK_STREAM, 0}, {unix.AF_INET6, unix.SOCK_STREAM, unix.IPPROTO_TCP},
	{unix.AF_INET6, unix.SOCK_DGRAM, 0}, {unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_UDP}, {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE},
}

// installFilter refuses on all threads what no agent may, but for the scene's
// one hole.
func installFilter(scene string) error {
	calls, allowed := slices.Clone(refusedCalls), slices.Clone(sockets)
	switch scene {
	case "a call":
		calls = slices.DeleteFunc(calls, func(nr uint32) bool { return nr == unix.SYS_KEYCTL })
	case "a socket":
		allowed = append(allowed, kind{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_GENERIC})
	case "ping":
		allowed = append(allowed, kind{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP})
	}
	const allow, refuse = 0x7fff0000, 0x00050000 | uint32(unix.EPERM)
	const unknown = 0x00050000 | uint32(unix.ENOSYS) // so that a C library falls back from clone3
	code := []bpf.Instruction{bpf.LoadAbsolute{Off: 0, Size: 4}}
	for _, nr := range calls {
		code = append(code, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: nr, SkipTrue: 1}, bpf.RetConstant{Val: unknown})
	}
	code = append(code, bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_SOCKET, SkipTrue: 1}, bpf.RetConstant{Val: allow})
	for _, k := range allowed { // the low halves of the arguments, on machines of either bit order that Go builds for here
		code = append(code,
			bpf.LoadAbsolute{Off: 16, Size: 4}, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: k.family, SkipTrue: 6},
			bpf.LoadAbsolute{Off: 24, Size: 4}, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: 0xf}, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: k.kind, SkipTrue: 3},
			bpf.LoadAbsolute{Off: 32, Size: 4}, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: k.protocol, SkipTrue: 1}, bpf.RetConstant{Val: allow})
	}
	code = append(code, bpf.RetConstant{Val: refuse})
	rawCode, err := bpf.Assemble(code)
	if err != nil {
		return err
	}
	program := struct {
		length uint16
		code   *bpf.RawInstruction
	}{uint16(len(rawCode)), &rawCode[0]}
	return raw(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
}
