// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// surrender makes the calling thread the agent's: no capability now or ever,
// its account, its short list of system calls. The thread must be locked, and
// must execute a program next; the other threads of the process still are
// root, and that program's start ends them.
func surrender(s *Spec, hideAbstract bool) error {
	steps := []struct {
		name string
		do   func() error
	}{
		{"limits", limits},
		{"bounding set", dropBounding},
		{"secure bits", secureBits},
		{"groups", func() error { return raw(unix.SYS_SETGROUPS, 0, 0, 0) }},
		{"group", func() error { return raw(unix.SYS_SETRESGID, uintptr(s.GID), uintptr(s.GID), uintptr(s.GID)) }},
		{"account", func() error { return raw(unix.SYS_SETRESUID, uintptr(s.UID), uintptr(s.UID), uintptr(s.UID)) }},
		{"capabilities", dropCapabilities},
		{"no new privileges", func() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }},
		// A change of account clears it.
		{"end with the parent", func() error { return unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0) }},
		{"abstract sockets", func() error { return scopeAbstract(hideAbstract) }},
		{"system calls", installFilter},
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			return fmt.Errorf("giving up root: %s: %w", step.name, err)
		}
	}
	return verify(s)
}

// raw makes a system call on this thread alone. The functions of package
// syscall would change every thread of the process, which not every build can.
func raw(nr, a, b, c uintptr) error {
	if _, _, errno := unix.RawSyscall(nr, a, b, c); errno != 0 {
		return errno
	}
	return nil
}

// limits sets the resource limits that do not depend on the session: no core
// files, which would hold an agent's memory, and as many descriptors as
// today's tools expect.
func limits() error {
	if err := syscall.Setrlimit(unix.RLIMIT_CORE, &syscall.Rlimit{}); err != nil {
		return err
	}
	var now syscall.Rlimit
	if err := syscall.Getrlimit(unix.RLIMIT_NOFILE, &now); err != nil {
		return err
	}
	n := min(now.Max, 65536)
	return syscall.Setrlimit(unix.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: n})
}

// dropBounding empties the set that limits what an executed program could
// gain, to the last capability that this kernel has.
func dropBounding() error {
	for c := uintptr(0); ; c++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) && c > unix.CAP_AUDIT_READ {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// secureBits makes uid 0 mean nothing, should it ever come back.
func secureBits() error {
	const (
		noRoot, noRootLocked             = 1 << 0, 1 << 1
		noSetuidFixupLocked              = 1 << 3
		keepCapsLocked                   = 1 << 5
		noAmbientRaise, noAmbientRaiseLk = 1 << 6, 1 << 7
	)
	return unix.Prctl(unix.PR_SET_SECUREBITS,
		noRoot|noRootLocked|noSetuidFixupLocked|keepCapsLocked|noAmbientRaise|noAmbientRaiseLk, 0, 0, 0)
}

func dropCapabilities() error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return err
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	return unix.Capset(&header, &none[0])
}

// scopeAbstract keeps the thread from abstract sockets that were not made by
// its own descendants, where the kernel can (Landlock, Linux 6.12). In a
// network namespace of its own there are no others.
func scopeAbstract(wanted bool) error {
	if !wanted {
		return nil
	}
	abi, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 || abi < 6 {
		return nil // doctor tells, by trying
	}
	ruleset := struct{ fs, net, scoped uint64 }{scoped: unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET}
	fd, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&ruleset)), unsafe.Sizeof(ruleset), 0)
	if errno != 0 {
		return errno
	}
	defer unix.Close(int(fd))
	return raw(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0)
}

// verify looks at what the kernel says now rather than at what was asked.
func verify(s *Spec) error {
	ruid, euid, suid := unix.Getresuid()
	rgid, egid, sgid := unix.Getresgid()
	for _, id := range []int{ruid, euid, suid} {
		if uint32(id) != s.UID {
			return fmt.Errorf("giving up root: account is still %d", id)
		}
	}
	for _, id := range []int{rgid, egid, sgid} {
		if uint32(id) != s.GID {
			return fmt.Errorf("giving up root: group is still %d", id)
		}
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	if err := unix.Capget(&header, &have[0]); err != nil {
		return os.NewSyscallError("capget", err)
	}
	if have != [2]unix.CapUserData{} {
		return errors.New("giving up root: capabilities are left")
	}
	return nil
}
