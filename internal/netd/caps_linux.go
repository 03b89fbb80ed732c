// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netd

import (
	"errors"
	"fmt"
	"os"
	"runtime"
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
		{unix.CAP_SETFCAP, "setfcap", "maps root's uid, in the map for an operator's directory"},
		{unix.CAP_SETPCAP, "setpcap", "empties the bounding set of agents"},
		{unix.CAP_KILL, "kill", "ends processes of agents"},
		{unix.CAP_CHOWN, "chown", "gives agents their directories; account files keep their owner"},
		{unix.CAP_FOWNER, "fowner", "sets modes of agents' directories, and removes what agents leave"},
		{unix.CAP_DAC_OVERRIDE, "dac_override", "enters and removes what agents have closed to others"},
		{unix.CAP_AUDIT_WRITE, "audit_write", "the account tools report to the system's audit log"},
	}
}

// DropCaps gives up, for every thread and for good, whatever is not in [Kept].
// Call it first thing: in a binary with cgo, where Go does not reach all
// threads, it executes the same program with the same arguments once more.
func DropCaps() error {
	keep := keptMask()
	err := dropBounding(keep, syscall.AllThreadsSyscall)
	if errors.Is(err, unix.ENOTSUP) {
		err = dropAndExecute(keep)
	} else if err == nil {
		err = dropSets(keep)
	}
	if err != nil {
		return fmt.Errorf("giving up capabilities: %w", err)
	}
	return nil
}

func keptMask() (keep uint64) {
	for _, c := range Kept() {
		keep |= 1 << c.Number
	}
	return keep
}

// dropBounding empties the set that limits what an executed program may have,
// for the threads that call reaches. It goes first: changing it needs one of
// the capabilities.
func dropBounding(keep uint64, call func(trap, a1, a2, a3 uintptr) (uintptr, uintptr, syscall.Errno)) error {
	for c := range uintptr(64) {
		if keep&(1<<c) != 0 {
			continue
		}
		_, _, errno := call(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0)
		if errno == unix.EINVAL && c > unix.CAP_AUDIT_READ {
			return nil // this kernel has no more
		}
		if errno != 0 {
			return os.NewSyscallError("prctl", errno)
		}
	}
	return nil
}

// dropSets empties what the running threads have.
func dropSets(keep uint64) error {
	header, sets, err := capabilities()
	if err != nil {
		return err
	}
	if sets[0].Permitted&(1<<unix.CAP_SYS_ADMIN) == 0 {
		return errors.New("CAP_SYS_ADMIN is missing from the start; netd must be started by root")
	}
	for i := range sets {
		sets[i].Permitted &= uint32(keep >> (32 * i))
		sets[i].Effective = sets[i].Permitted
		sets[i].Inheritable = 0
	}
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET,
		uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&sets[0])), 0)
	if errno != 0 {
		return os.NewSyscallError("capset", errno)
	}
	return nil
}

func capabilities() (header unix.CapUserHeader, sets [2]unix.CapUserData, err error) {
	header.Version = unix.LINUX_CAPABILITY_VERSION_3
	err = os.NewSyscallError("capget", unix.Capget(&header, &sets[0]))
	return header, sets, err
}

// dropAndExecute cuts the bounding set of this thread and executes the program
// again, which leaves no other thread. Root's new program has what the bounding
// set holds.
func dropAndExecute(keep uint64) error {
	_, sets, err := capabilities()
	if err != nil {
		return err
	}
	have := uint64(sets[1].Permitted)<<32 | uint64(sets[0].Permitted)
	if have&^keep == 0 {
		return nil // this is the second time
	}
	runtime.LockOSThread()
	if err := dropBounding(keep, syscall.RawSyscall); err != nil {
		return err
	}
	return os.NewSyscallError("execve", unix.Exec("/proc/self/exe", os.Args, os.Environ()))
}
