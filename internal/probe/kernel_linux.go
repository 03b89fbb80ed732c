// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// kernelTrials try what the list of system calls must refuse, and look at what
// the kernel says of this process.
func kernelTrials() []trial {
	list := []trial{status, ownProcesses}
	for name, try := range map[string]func() error{
		"packet socket":        socket(unix.AF_PACKET, unix.SOCK_DGRAM, 0),
		"vsock socket":         socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0),
		"netfilter socket":     socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER),
		"new user namespace":   func() error { return unix.Unshare(unix.CLONE_NEWUSER) },
		"new network":          func() error { return unix.Unshare(unix.CLONE_NEWNET) },
		"io_uring":             func() error { return call(unix.SYS_IO_URING_SETUP, 1, 0) },
		"bpf":                  func() error { return call(unix.SYS_BPF, 0, 0) },
		"mount":                func() error { return call(unix.SYS_FSOPEN, 0, 0) },
		"tracing process 1":    func() error { return call(unix.SYS_PTRACE, unix.PTRACE_SEIZE, 1) },
		"becoming root":        func() error { return call(unix.SYS_SETRESUID, 0, 0) },
		"writing to /usr":      writing("/usr/bin/bawn-probe"),
		"writing to /etc":      writing("/etc/bawn-probe"),
		"writing certificates": writing(public + "/bawn-probe"),
	} {
		list = append(list, func(context.Context) Try {
			runtime.LockOSThread() // never unlocked: should it succeed, this thread is not like the others any more
			return refused(name, try())
		})
	}
	return list
}

// refused makes a try of something that must give an error. What the kernel
// refuses only because the try was made of nothing (EFAULT, EINVAL) would have
// been let through.
func refused(name string, err error) Try {
	t := Try{Check: CheckKernel, Target: name, Outcome: Blocked}
	switch err {
	case nil:
		t.Outcome, t.Detail = GotOut, "done"
	case unix.EFAULT, unix.EINVAL:
		t.Outcome, t.Detail = GotOut, "let through: "+err.Error()
	default:
		t.Detail = err.Error()
	}
	return t
}

func socket(family, kind, protocol int) func() error {
	return func() error {
		fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, protocol)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}
}

func call(nr, a, b uintptr) error {
	if _, _, errno := unix.RawSyscall6(nr, a, b, 0, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

func writing(name string) func() error {
	return func() error {
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600)
		if err == nil {
			f.Close()
			os.Remove(name)
		}
		return err
	}
}

// status looks at the account: no root, no capability, no way to new ones, a
// filter on its calls.
func status(context.Context) Try {
	t := Try{Check: CheckKernel, Target: "account", Outcome: Blocked}
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Outcome, t.Detail = GotOut, err.Error()
		return t
	}
	want := map[string]string{
		"CapInh": "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000", "CapBnd": "0000000000000000",
		"CapAmb": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2",
	}
	for line := range strings.Lines(string(text)) {
		k, v, _ := strings.Cut(line, ":")
		if w, ok := want[k]; ok && strings.TrimSpace(v) == w {
			delete(want, k)
		}
	}
	if len(want) > 0 || os.Getuid() == 0 || os.Getgid() == 0 {
		t.Outcome, t.Detail = GotOut, fmt.Sprintf("uid %d, wrong: %v", os.Getuid(), want)
	}
	return t
}

// ownProcesses looks whether this is a PID namespace with nothing but the
// session in it.
func ownProcesses(context.Context) Try {
	t := Try{Check: CheckKernel, Target: "processes", Outcome: Blocked}
	name, err := os.ReadFile("/proc/1/comm")
	if err != nil {
		t.Outcome, t.Detail = GotOut, err.Error()
		return t
	}
	link, err := os.Readlink("/proc/1/exe")
	if err == nil { // readable only where process 1 is not Bawn's own, which nobody may look into
		t.Outcome, t.Detail = GotOut, fmt.Sprintf("process 1 is %s (%s)", strings.TrimSpace(string(name)), link)
	}
	return t
}
