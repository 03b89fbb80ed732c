// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proc

import "fmt"

// An assembler for the little of classic BPF that a seccomp filter needs. Its
// jumps go to labels, forward only, over any distance: each conditional jump
// is a pair, since the kernel's reaches 255 instructions.

// An instruction is the kernel's struct sock_filter.
type instruction struct {
	code   uint16
	jt, jf uint8
	k      uint32
}

// The operations used (linux/bpf_common.h).
const (
	opLoad   = 0x20 // A = word at offset k of the call's data
	opAnd    = 0x54 // A &= k
	opJump   = 0x05 // to k instructions on
	opEqual  = 0x15 // A == k
	opAbove  = 0x25 // A > k
	opReturn = 0x06 // k
)

// Offsets in struct seccomp_data. Arguments are 64 bits wide; both supported
// architectures keep the low half first.
const (
	offsetNumber = 0
	offsetArch   = 4
)

func offsetArg(n int) uint32 { return uint32(16 + 8*n) }

type label int

type assembler struct {
	code  []instruction
	at    []int         // label -> position, -1: not placed yet
	jumps map[int]label // position of an opJump -> where to
}

func newAssembler() *assembler { return &assembler{jumps: map[int]label{}} }

// label returns a new label, to be placed once.
func (a *assembler) label() label {
	a.at = append(a.at, -1)
	return label(len(a.at) - 1)
}

func (a *assembler) place(l label) { a.at[l] = len(a.code) }

func (a *assembler) emit(i instruction) { a.code = append(a.code, i) }

func (a *assembler) load(offset uint32) { a.emit(instruction{code: opLoad, k: offset}) }

func (a *assembler) and(mask uint32) { a.emit(instruction{code: opAnd, k: mask}) }

func (a *assembler) ret(value uint32) { a.emit(instruction{code: opReturn, k: value}) }

func (a *assembler) jump(to label) {
	a.jumps[len(a.code)] = to
	a.emit(instruction{code: opJump})
}

// ifEqual goes to l if A is k, and on otherwise.
func (a *assembler) ifEqual(k uint32, l label) {
	a.emit(instruction{code: opEqual, k: k, jt: 0, jf: 1})
	a.jump(l)
}

// ifAbove goes to l if A is greater than k, and on otherwise.
func (a *assembler) ifAbove(k uint32, l label) {
	a.emit(instruction{code: opAbove, k: k, jt: 0, jf: 1})
	a.jump(l)
}

// assemble fills in the jumps.
func (a *assembler) assemble() ([]instruction, error) {
	for from, to := range a.jumps {
		distance := a.at[to] - from - 1
		if a.at[to] < 0 || distance < 0 {
			return nil, fmt.Errorf("assembling filter: jump at %d goes nowhere ahead", from)
		}
		a.code[from].k = uint32(distance)
	}
	const most = 4096 // BPF_MAXINSNS
	if len(a.code) > most {
		return nil, fmt.Errorf("assembling filter: %d instructions, more than %d", len(a.code), most)
	}
	return a.code, nil
}
