// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The system calls of an agent.
//
// What is listed may be made; what is listed as refused gives EPERM, as in a
// container; everything else, and so every call that a newer kernel brings,
// gives ENOSYS, so that programs fall back to the older way. What a program
// needs to work is listed; what reaches parts of the kernel that an agent's
// work does not need is not: other socket families, namespaces, mounts, BPF,
// io_uring, keys, modules.

// Answers of the filter (linux/seccomp.h).
const (
	retAllow   = 0x7fff0000
	retErrno   = 0x00050000
	retKill    = 0x80000000 // the whole process
	retRefused = retErrno | uint32(unix.EPERM)
	retUnknown = retErrno | uint32(unix.ENOSYS)
)

// setIDBits are the mode bits that lend an owner's or a group's rights to
// whoever executes a file. On the operator's own directory the owner is the
// operator.
const setIDBits = unix.S_ISUID | unix.S_ISGID

// newNamespaces are the flags of clone and unshare that make namespaces; the
// last is CLONE_NEWTIME, which clone does not take.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS |
	unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// A check is a block of the filter that looks at a call's arguments. It ends
// by itself: it never runs on into the next.
type check func(a *assembler)

// installFilter puts the filter on the calling thread, for good and for all
// that descends from it.
func installFilter() error {
	code, err := filter()
	if err != nil {
		return err
	}
	program := struct {
		length uint16
		code   *instruction
	}{uint16(len(code)), &code[0]}
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return fmt.Errorf("%w: a kernel with CONFIG_SECCOMP_FILTER is needed", errno)
	}
	return nil
}

// filter assembles the whole: architecture, number, arguments.
func filter() ([]instruction, error) {
	a := newAssembler()
	own := a.label()
	a.load(offsetArch)
	a.ifEqual(auditArch, own)
	a.ret(retKill) // 32-bit code on a 64-bit kernel: other numbers, other arguments
	a.place(own)
	a.load(offsetNumber)

	answers, blocks := table(a)
	dispatch(a, answers)
	for _, b := range blocks {
		a.place(b.at)
		b.check(a)
	}
	return a.assemble()
}

// An answer is what the numbers from first on get, until the next answer's.
type answer struct {
	first uint32
	ret   uint32
	block label // where to look further; -1: ret holds
}

type block struct {
	at    label
	check check
}

// table turns the lists into answers that cover every number. Numbers above the
// last listed one, and with them the x32 calls of amd64, are unknown.
func table(a *assembler) (answers []answer, blocks []block) {
	byNumber := map[uint32]answer{}
	for _, nr := range slices.Concat(allowedCalls, allowedHere) {
		byNumber[nr] = answer{nr, retAllow, -1}
	}
	for _, nr := range slices.Concat(refusedCalls, refusedHere) {
		byNumber[nr] = answer{nr, retRefused, -1}
	}
	checks := maps.Clone(checkedCalls)
	maps.Copy(checks, checkedHere)
	for _, nr := range slices.Sorted(maps.Keys(checks)) {
		l := a.label()
		byNumber[nr] = answer{nr, 0, l}
		blocks = append(blocks, block{l, checks[nr]})
	}
	add := func(n answer) {
		last := len(answers) - 1
		if last >= 0 && answers[last].block < 0 && n.block < 0 && answers[last].ret == n.ret {
			return
		}
		answers = append(answers, n)
	}
	next := uint32(0)
	for _, nr := range slices.Sorted(maps.Keys(byNumber)) {
		if nr > next {
			add(answer{next, retUnknown, -1})
		}
		add(byNumber[nr])
		next = nr + 1
	}
	add(answer{next, retUnknown, -1})
	return answers, blocks
}

// dispatch finds the answer of the number in A by halving.
func dispatch(a *assembler, answers []answer) {
	if len(answers) == 1 {
		if answers[0].block >= 0 {
			a.jump(answers[0].block)
		} else {
			a.ret(answers[0].ret)
		}
		return
	}
	middle := len(answers) / 2
	upper := a.label()
	a.ifAbove(answers[middle].first-1, upper)
	dispatch(a, answers[:middle])
	a.place(upper)
	dispatch(a, answers[middle:])
}

// refuseBits refuses a call that has any of the bits in the low half of
// argument n.
func refuseBits(n int, bits uint32) check {
	return func(a *assembler) {
		none := a.label()
		a.load(offsetArg(n))
		a.and(bits)
		a.ifEqual(0, none)
		a.ret(retRefused)
		a.place(none)
		a.ret(retAllow)
	}
}

// openMode refuses to make a file with set-id bits. The mode counts only with a
// flag that makes a file; otherwise its register may hold anything.
func openMode(flags, mode int) check {
	const makes = unix.O_CREAT | unix.O_TMPFILE&^unix.O_DIRECTORY
	return func(a *assembler) {
		made, plain := a.label(), a.label()
		a.load(offsetArg(flags))
		a.and(makes)
		a.ifEqual(0, plain)
		a.jump(made)
		a.place(plain)
		a.ret(retAllow)
		a.place(made)
		refuseBits(mode, setIDBits)(a)
	}
}

// oneOf allows the values listed in the low half of argument n.
func oneOf(n int, errno unix.Errno, values ...uint32) check {
	return func(a *assembler) {
		good := a.label()
		a.load(offsetArg(n))
		for _, v := range values {
			a.ifEqual(v, good)
		}
		a.ret(retErrno | uint32(errno))
		a.place(good)
		a.ret(retAllow)
	}
}

// socketKinds allows local sockets, TCP and UDP, and asking about routes and
// links. Whatever else the kernel has by way of networks stays out of reach:
// raw and packet sockets, vsock, other transports, other netlink families.
func socketKinds(a *assembler) {
	local, internet, netlink := a.label(), a.label(), a.label()
	a.load(offsetArg(0))
	a.ifEqual(unix.AF_UNIX, local)
	a.ifEqual(unix.AF_INET, internet)
	a.ifEqual(unix.AF_INET6, internet)
	a.ifEqual(unix.AF_NETLINK, netlink)
	a.ret(retErrno | uint32(unix.EAFNOSUPPORT))

	a.place(local)
	a.ret(retAllow)

	a.place(netlink) // the error that libraries take for a kernel without
	oneOf(2, unix.EPROTONOSUPPORT, unix.NETLINK_ROUTE)(a)

	a.place(internet)
	const kind = 0xf // SOCK_TYPE_MASK
	stream, datagram := a.label(), a.label()
	a.load(offsetArg(1))
	a.and(kind)
	a.ifEqual(unix.SOCK_STREAM, stream)
	a.ifEqual(unix.SOCK_DGRAM, datagram)
	a.ret(retRefused)
	a.place(stream)
	oneOf(2, unix.EPROTONOSUPPORT, 0, unix.IPPROTO_TCP)(a)
	a.place(datagram)
	oneOf(2, unix.EPROTONOSUPPORT, 0, unix.IPPROTO_UDP)(a)
}

// noneOf refuses the values listed in the low half of argument n.
func noneOf(n int, errno unix.Errno, values ...uint32) check {
	return func(a *assembler) {
		bad := a.label()
		a.load(offsetArg(n))
		for _, v := range values {
			a.ifEqual(v, bad)
		}
		a.ret(retAllow)
		a.place(bad)
		a.ret(retErrno | uint32(errno))
	}
}

// noGroups refuses to join multicast groups. The kernel tells the network which
// groups a host has joined, in packets that belong to no socket, so that no
// firewall can lay them at an agent's door; and the number of a group is the
// agent's to choose (RFC 3376, RFC 3810). The error is that of a kernel without
// multicast.
func noGroups(a *assembler) {
	v4, v6 := a.label(), a.label()
	a.load(offsetArg(1))
	a.ifEqual(unix.IPPROTO_IP, v4)
	a.ifEqual(unix.IPPROTO_IPV6, v6)
	a.ret(retAllow)
	a.place(v4)
	noneOf(2, unix.ENOPROTOOPT, unix.IP_ADD_MEMBERSHIP, unix.IP_ADD_SOURCE_MEMBERSHIP, joinGroup, joinSourceGroup)(a)
	a.place(v6)
	noneOf(2, unix.ENOPROTOOPT, unix.IPV6_JOIN_GROUP, unix.IPV6_JOIN_ANYCAST, joinGroup, joinSourceGroup)(a)
}

// MCAST_JOIN_GROUP and MCAST_JOIN_SOURCE_GROUP (linux/in.h).
const joinGroup, joinSourceGroup = 42, 46

// checkedCalls are calls whose arguments decide, on both architectures.
var checkedCalls = map[uint32]check{
	unix.SYS_SOCKET:     socketKinds,
	unix.SYS_SOCKETPAIR: oneOf(0, unix.EAFNOSUPPORT, unix.AF_UNIX),
	unix.SYS_SETSOCKOPT: noGroups,
	// A terminal's line discipline is a driver that the kernel loads when asked.
	unix.SYS_IOCTL:     noneOf(1, unix.EPERM, unix.TIOCSETD),
	unix.SYS_CLONE:     refuseBits(0, newNamespaces),
	unix.SYS_UNSHARE:   refuseBits(0, newNamespaces|unix.CLONE_NEWTIME),
	unix.SYS_FCHMOD:    refuseBits(1, setIDBits),
	unix.SYS_FCHMODAT:  refuseBits(2, setIDBits),
	unix.SYS_FCHMODAT2: refuseBits(2, setIDBits),
	unix.SYS_MKNODAT:   refuseBits(2, setIDBits),
	unix.SYS_OPENAT:    openMode(2, 3),
	// Linux, its 32-bit face, version 2.6 reported, asking, and fixed addresses
	// for debuggers. READ_IMPLIES_EXEC and other systems' faces are not needed.
	unix.SYS_PERSONALITY: oneOf(0, unix.EPERM, 0, 0x8, 0x20000, 0x20008, 0x40000, math.MaxUint32),
}
