// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netd

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Capability is one that netd keeps, with the reason.
type Capability struct {
	Number int
	Name   string
	Why    string
}

// Kept lists the capabilities that netd works with. Everything else that root
// may do, such as loading modules, tracing processes or raw access to devices,
// is given up at start, for netd and for all that it starts.
func Kept() []Capability {
	return []Capability{
		{unix.CAP_SYS_ADMIN, "sys_admin", "makes and enters namespaces, mounts views, sets host names"},
		{unix.CAP_NET_ADMIN, "net_admin", "addresses, routes and firewall of namespaces and of the uid placement"},
		{unix.CAP_NET_BIND_SERVICE, "net_bind_service", "listens on port 53 inside namespaces"},
		{unix.CAP_SETUID, "setuid", "takes the agent's uid, and maps an operator's uid to it"},
		{unix.CAP_SETGID, "setgid", "takes the agent's group and drops all others"},
		{unix.CAP_SETPCAP, "setpcap", "empties the bounding set of agents"},
		{unix.CAP_KILL, "kill", "ends processes of agents"},
		{unix.CAP_CHOWN, "chown", "gives agents their directories; account files keep their owner"},
		{unix.CAP_FOWNER, "fowner", "sets modes of agents' directories, and removes what agents leave"},
		{unix.CAP_DAC_OVERRIDE, "dac_override", "enters and removes what agents have closed to others"},
		{unix.CAP_SYS_PTRACE, "sys_ptrace", "reads the namespaces of the helper that maps uids"},
		{unix.CAP_SYS_CHROOT, "sys_chroot", "enters mount namespaces"},
		{unix.CAP_AUDIT_WRITE, "audit_write", "the account tools report to the audit log"},
	}
}

// DropCaps gives up, for every thread and for good, whatever is not in [Kept].
// It changes nothing else. It needs a binary built without cgo, since only
// there can Go reach all its threads.
func DropCaps() error {
	if err := dropCaps(); err != nil {
		return fmt.Errorf("giving up capabilities: %w", err)
	}
	return nil
}

func dropCaps() error {
	var keep uint64
	for _, c := range Kept() {
		keep |= 1 << c.Number
	}
	// The bounding set goes first: changing it needs one of the others.
	for c := uintptr(0); c < 64; c++ {
		if keep&(1<<c) != 0 {
			continue
		}
		_, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0)
		if errno == unix.EINVAL && c > unix.CAP_AUDIT_READ {
			break // this kernel has no more
		}
		if errno != 0 {
			return os.NewSyscallError("prctl", errno)
		}
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return os.NewSyscallError("capget", err)
	}
	for i := range sets {
		word := uint32(keep >> (32 * i))
		sets[i].Permitted &= word
		sets[i].Effective = sets[i].Permitted
		sets[i].Inheritable = 0
	}
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&sets[0])), 0)
	if errno != 0 {
		return os.NewSyscallError("capset", errno)
	}
	if sets[0].Permitted&(1<<unix.CAP_SYS_ADMIN) == 0 {
		return errors.New("CAP_SYS_ADMIN is missing from the start; netd must be started by root")
	}
	return nil
}
