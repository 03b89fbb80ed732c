// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netkern

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A lock on a slot's cgroup that does not hang on any table: two programs, one
// for what its sockets send and one for what they receive, that let through
// TCP with the slot's proxy and nothing else. The kernel keeps them for as long
// as the cgroup, or a socket made in it, exists. So there is no moment in which
// somebody who flushes the tables opens the host's own addresses to an agent.

// instruction is struct bpf_insn (linux/bpf.h).
type instruction struct {
	code byte
	regs byte // destination in the low half, source in the high
	off  int16
	imm  int32
}

// The codes used here, by the names of the kernel's instruction set document.
const (
	opMove      = 0xbf // dst = src
	opMoveImm   = 0xb7 // dst = imm
	opAddImm    = 0x07
	opAndImm    = 0x57
	opLoad8     = 0x71 // dst = *(src + off)
	opLoad16    = 0x69
	opLoad32    = 0x61
	opJumpNot   = 0x55 // if dst != imm
	opJumpNot32 = 0x56 // the same for the low 32 bits
	opCall      = 0x85
	opExit      = 0x95
)

const callLoadBytes = 26 // bpf_skb_load_bytes

// The program looks at a copy of the packet's first bytes: the IPv4 header
// without options, and the ports.
const (
	copied  = 24
	onStack = -copied
)

// filter gives the program for one direction. The peer is the destination of
// what is sent and the source of what is received.
func filter(peer netip.AddrPort, sending bool) []instruction {
	addrAt, portAt := int16(12), int16(20)
	if sending {
		addrAt, portAt = 16, 22
	}
	addr := peer.Addr().As4()
	fragment := binary.NativeEndian.Uint16([]byte{0x3f, 0xff}) // more fragments, or an offset
	port := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, peer.Port()))
	load := func(op byte, at int16) instruction { return instruction{op, 1 | 10<<4, onStack + at, 0} }
	program := []instruction{
		{opMoveImm, 2, 0, 0},
		{opMove, 3 | 10<<4, 0, 0},
		{opAddImm, 3, 0, onStack},
		{opMoveImm, 4, 0, copied},
		{opCall, 0, 0, callLoadBytes},
		{opJumpNot, 0, 0, 0}, // shorter than that
		load(opLoad8, 0), {opJumpNot, 1, 0, 0x45},
		load(opLoad16, 6), {opAndImm, 1, 0, int32(fragment)}, {opJumpNot, 1, 0, 0},
		load(opLoad8, 9), {opJumpNot, 1, 0, unix.IPPROTO_TCP},
		load(opLoad32, addrAt), {opJumpNot32, 1, 0, int32(binary.NativeEndian.Uint32(addr[:]))},
		load(opLoad16, portAt), {opJumpNot, 1, 0, int32(port)},
		{opMoveImm, 0, 0, 1}, {opExit, 0, 0, 0}, // let through
		{opMoveImm, 0, 0, 0}, {opExit, 0, 0, 0}, // not
	}
	refuse := len(program) - 2
	for i := range program {
		if program[i].code == opJumpNot || program[i].code == opJumpNot32 {
			program[i].off = int16(refuse - i - 1)
		}
	}
	return program
}

// Numbers of linux/bpf.h.
const (
	bpfProgLoad   = 5
	bpfProgAttach = 8
	typeCgroupSKB = 8
	atIngress     = 0
	atEgress      = 1
	allowMulti    = 2 // beside those of others
)

// attachPrograms locks the cgroup with directory dir to the proxy.
func attachPrograms(dir string, proxy netip.AddrPort) error {
	group, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("locking cgroup: %w", err)
	}
	defer group.Close()
	for _, p := range []struct {
		at      uint32
		sending bool
	}{{atEgress, true}, {atIngress, false}} {
		if err := attach(int(group.Fd()), p.at, filter(proxy, p.sending)); err != nil {
			return fmt.Errorf("locking cgroup %s: %w", dir, err)
		}
	}
	return nil
}

func attach(group int, at uint32, program []instruction) error {
	fd, err := loadProgram(at, program)
	if err != nil {
		return fmt.Errorf("loading its program: %w", err)
	}
	defer unix.Close(fd) // the cgroup holds it from now on
	attr := struct{ target, program, kind, flags uint32 }{uint32(group), uint32(fd), at, allowMulti}
	if _, err := bpf(bpfProgAttach, unsafe.Pointer(&attr), unsafe.Sizeof(attr)); err != nil {
		return fmt.Errorf("attaching its program: %w", err)
	}
	return nil
}

func loadProgram(at uint32, program []instruction) (int, error) {
	license := []byte("Apache-2.0\x00") // the one function it calls is open to every licence
	log := make([]byte, 64<<10)
	attr := struct {
		kind, count            uint32
		instructions, license  uint64
		logLevel, logSize      uint32
		log                    uint64
		kernelVersion, flags   uint32
		name                   [16]byte
		ifindex, attachingKind uint32
	}{
		kind: typeCgroupSKB, count: uint32(len(program)),
		instructions: uint64(uintptr(unsafe.Pointer(&program[0]))),
		license:      uint64(uintptr(unsafe.Pointer(&license[0]))),
		logLevel:     1, logSize: uint32(len(log)), log: uint64(uintptr(unsafe.Pointer(&log[0]))),
		attachingKind: at,
	}
	copy(attr.name[:], "bawn_slot")
	fd, err := bpf(bpfProgLoad, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
	runtime.KeepAlive(program)
	runtime.KeepAlive(license)
	runtime.KeepAlive(log)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EACCES) {
		return -1, fmt.Errorf("%w: %s", err, unix.ByteSliceToString(log))
	}
	return fd, err
}

func bpf(cmd uintptr, attr unsafe.Pointer, size uintptr) (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_BPF, cmd, uintptr(attr), size)
	if errno != 0 {
		return -1, os.NewSyscallError("bpf", errno)
	}
	return int(fd), nil
}
