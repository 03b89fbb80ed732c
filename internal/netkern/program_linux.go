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
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A lock on a slot's cgroup that does not hang on any table: two programs, one
// for what its sockets send and one for what they receive, that let through
// TCP with the slot's proxy and nothing else. The kernel keeps them for as long
// as the cgroup, or a socket made in it, exists. So there is no moment in which
// somebody who flushes the tables opens the host's own addresses to an agent.
//
// Two more keep its sockets off the proxies' port: an agent that held the
// addresses of slots to come would keep every other agent from starting.

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
	opJump      = 0x05
	opJumpNot   = 0x55 // if dst != imm
	opJumpNot32 = 0x56 // the same for the low 32 bits
	opJumpBits  = 0x45 // if dst & imm
	opCall      = 0x85
	opExit      = 0x95
)

// Registers: 6 keeps the packet, 10 is the end of the stack.
const (
	regPacket = 6
	regStack  = 10
)

const callLoadBytes = 26 // bpf_skb_load_bytes

// Where jumps lead, put in once the program is whole.
const (
	toRefuse int16 = -1 - iota
	toPass
	toIPv4
)

// The program looks at a copy of the packet's first bytes: an IPv4 header
// without options and a TCP header, or an IPv6 header.
const (
	copied  = 40
	onStack = -copied
)

// Places in TCP packets (RFC 9293 section 3.1, RFC 791, RFC 8200).
const (
	tcpReset        = 4
	flagsInIPv4     = 20 + 13
	flagsInIPv6     = 40 + 13
	protocolInIPv4  = 9
	protocolInIPv6  = 6
	sourceAddr      = 12
	destinationAddr = 16
	sourcePort      = 20
	destinationPort = 22
)

// filter gives the program for one direction. The peer is the destination of
// what is sent and the source of what is received. A reset is received from
// anybody: it carries nothing, and without it an agent whose connection the
// table rejects would wait for two minutes.
func filter(peer netip.AddrPort, sending bool) []instruction {
	program := append([]instruction{{opMove, regPacket | 1<<4, 0, 0}}, copyPacket(0, copied)...)
	addrAt, portAt := int16(sourceAddr), int16(sourcePort)
	if sending {
		addrAt, portAt = destinationAddr, destinationPort
	} else {
		program = append(program, passResetIPv6()...)
	}
	ipv4 := len(program)
	addr := peer.Addr().As4()
	fragment := binary.NativeEndian.Uint16([]byte{0x3f, 0xff}) // more fragments, or an offset
	port := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, peer.Port()))
	program = append(program,
		load(opLoad8, 0), instruction{opJumpNot, 1, toRefuse, 0x45},
		load(opLoad16, 6), instruction{opAndImm, 1, 0, int32(fragment)}, instruction{opJumpNot, 1, toRefuse, 0},
		load(opLoad8, protocolInIPv4), instruction{opJumpNot, 1, toRefuse, unix.IPPROTO_TCP})
	if !sending {
		program = append(program, load(opLoad8, flagsInIPv4), instruction{opJumpBits, 1, toPass, tcpReset})
	}
	program = append(program,
		load(opLoad32, addrAt), instruction{opJumpNot32, 1, toRefuse, int32(binary.NativeEndian.Uint32(addr[:]))},
		load(opLoad16, portAt), instruction{opJumpNot, 1, toRefuse, int32(port)},
		instruction{opMoveImm, 0, 0, 1}, instruction{opExit, 0, 0, 0},
		instruction{opMoveImm, 0, 0, 0}, instruction{opExit, 0, 0, 0})
	return resolve(program, map[int16]int{toPass: len(program) - 4, toRefuse: len(program) - 2, toIPv4: ipv4})
}

// copyPacket copies bytes of the packet to the stack, and refuses a shorter
// packet.
func copyPacket(from, size int32) []instruction {
	return []instruction{
		{opMove, 1 | regPacket<<4, 0, 0},
		{opMoveImm, 2, 0, from},
		{opMove, 3 | regStack<<4, 0, 0},
		{opAddImm, 3, 0, onStack},
		{opMoveImm, 4, 0, size},
		{opCall, 0, 0, callLoadBytes},
		{opJumpNot, 0, toRefuse, 0},
	}
}

// load reads a value of the copy into register 1.
func load(op byte, at int16) instruction { return instruction{op, 1 | regStack<<4, onStack + at, 0} }

// passResetIPv6 lets a reset over IPv6 through and refuses the rest of IPv6.
func passResetIPv6() []instruction {
	return slices.Concat([]instruction{
		load(opLoad8, 0), {opAndImm, 1, 0, 0xf0}, {opJumpNot, 1, toIPv4, 0x60},
		load(opLoad8, protocolInIPv6), {opJumpNot, 1, toRefuse, unix.IPPROTO_TCP},
	}, copyPacket(flagsInIPv6, 1), []instruction{
		load(opLoad8, 0), {opJumpBits, 1, toPass, tcpReset}, {opJump, 0, toRefuse, 0},
	})
}

// resolve puts in how far each jump goes.
func resolve(program []instruction, targets map[int16]int) []instruction {
	for i, in := range program {
		switch in.code {
		case opJump, opJumpNot, opJumpNot32, opJumpBits:
			program[i].off = int16(targets[in.off] - i - 1)
		}
	}
	return program
}

// portAt is the place of the port, in network order, in struct bpf_sock_addr.
const portAt = 24

// keepOff gives the program that keeps sockets from being bound to a port.
func keepOff(port uint16) []instruction {
	wire := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, port))
	return []instruction{
		{opLoad32, 2 | 1<<4, portAt, 0},
		{opMoveImm, 0, 0, 1},
		{opJumpNot32, 2, 1, int32(wire)},
		{opMoveImm, 0, 0, 0},
		{opExit, 0, 0, 0},
	}
}

// Numbers of linux/bpf.h.
const (
	bpfProgLoad    = 5
	bpfProgAttach  = 8
	typeCgroupSKB  = 8
	typeCgroupAddr = 18
	atIngress      = 0
	atEgress       = 1
	atBind4        = 8
	atBind6        = 9
	allowMulti     = 2 // beside those of others
)

// kindAt gives the type of the programs that are attached at a place.
func kindAt(at uint32) uint32 {
	if at == atBind4 || at == atBind6 {
		return typeCgroupAddr
	}
	return typeCgroupSKB
}

// attachPrograms locks the cgroup with directory dir to the proxy.
func attachPrograms(dir string, proxy netip.AddrPort) error {
	group, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("locking cgroup: %w", err)
	}
	defer group.Close()
	for _, p := range []struct {
		at   uint32
		code []instruction
	}{
		{atEgress, filter(proxy, true)}, {atIngress, filter(proxy, false)},
		{atBind4, keepOff(proxy.Port())}, {atBind6, keepOff(proxy.Port())},
	} {
		if err := attach(int(group.Fd()), p.at, p.code); err != nil {
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
		kind: kindAt(at), count: uint32(len(program)),
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
