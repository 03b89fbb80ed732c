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
	list := []trial{status}
	for name, try := range map[string]func() error{
		"new user namespace":   func() error { return unix.Unshare(unix.CLONE_NEWUSER) },
		"new network":          func() error { return unix.Unshare(unix.CLONE_NEWNET) },
		"io_uring":             func() error { return call(unix.SYS_IO_URING_SETUP, 1, 0) },
		"bpf":                  func() error { return call(unix.SYS_BPF, 0, 0) },
		"mount":                func() error { return call(unix.SYS_FSOPEN, 0, 0) },
		"tracing process 1":    func() error { return call(unix.SYS_PTRACE, unix.PTRACE_SEIZE, 1) },
		"joining a namespace":  func() error { return call(unix.SYS_SETNS, none, 0) },
		"clone3":               func() error { return call(unix.SYS_CLONE3, 0, 0) },
		"keyrings":             func() error { return call(unix.SYS_KEYCTL, unix.KEYCTL_GET_KEYRING_ID, ^uintptr(2)) },
		"adding a key":         func() error { return call(unix.SYS_ADD_KEY, 0, 0) },
		"asking for a key":     func() error { return call(unix.SYS_REQUEST_KEY, 0, 0) },
		"performance counters": func() error { return call(unix.SYS_PERF_EVENT_OPEN, 0, 0) },
		"page faults":          func() error { return call(unix.SYS_USERFAULTFD, ^uintptr(0), 0) },
		"file handles":         func() error { return call(unix.SYS_OPEN_BY_HANDLE_AT, none, 0) },
		"kernel modules":       func() error { return call(unix.SYS_FINIT_MODULE, none, 0) },
		"fanotify":             func() error { return call(unix.SYS_FANOTIFY_INIT, ^uintptr(0), 0) },
		"the kernel's log":     func() error { return call(unix.SYS_SYSLOG, 10, 0) },
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

// none is no descriptor.
const none = ^uintptr(0)

// refused makes a try of something that must give an error. What the kernel
// refuses only because the try was made of nothing (EFAULT, EINVAL, EBADF) would have
// been let through.
func refused(name string, err error) Try {
	t := Try{Check: CheckKernel, Target: name, Outcome: Blocked}
	switch err {
	case nil:
		t.Outcome, t.Detail = GotOut, "done"
	case unix.EFAULT, unix.EINVAL, unix.EBADF:
		t.Outcome, t.Detail = GotOut, "let through: "+err.Error()
	default:
		t.Detail = err.Error()
	}
	return t
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
