// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// What tests of the pure parts need.

// SwapIDs is swap.
func SwapIDs(a, b uint32) []syscall.SysProcIDMap { return swap(a, b) }

// Hierarchies renders what parseHierarchies finds.
func Hierarchies(mountinfo string) (lines []string) {
	for _, h := range parseHierarchies(mountinfo) {
		version := "v1"
		if h.unified {
			version = "v2"
		}
		lines = append(lines, fmt.Sprintf("%s %s %v", version, h.at, h.controllers))
	}
	return lines
}

// Settings renders the limits that a hierarchy would get.
func Settings(unified bool, controllers []string, l Limits) [][2]string {
	return groupDir{hierarchy: hierarchy{unified: unified, controllers: controllers}}.settings(l)
}

// Passwd and Group are the tables of a view.
func (s *Spec) Passwd(host string) string { return s.passwd(host) }

// Group is like Passwd.
func (s *Spec) Group(host string) string { return s.group(host) }

// ResolvConf is the view's resolv.conf.
func (s *Spec) ResolvConf() string { return s.resolvConf() }

// Answers of the filter, for Judge.
const (
	Allow   = retAllow
	Kill    = retKill
	Refused = retRefused
	Unknown = retUnknown
	Arch    = auditArch
)

// Listed returns the numbers of every list, and those whose arguments decide.
func Listed() (allowed, refused, checked []uint32) {
	allowed = append(append(allowed, allowedCalls...), allowedHere...)
	refused = append(append(refused, refusedCalls...), refusedHere...)
	for _, m := range []map[uint32]check{checkedCalls, checkedHere} {
		for nr := range m {
			checked = append(checked, nr)
		}
	}
	return allowed, refused, checked
}

// Judge runs the filter as the kernel would (Documentation/networking/filter.rst)
// and returns its answer.
func Judge(arch, number uint32, args [6]uint64) (uint32, error) {
	code, err := filter()
	if err != nil {
		return 0, err
	}
	words := map[uint32]uint32{offsetNumber: number, offsetArch: arch}
	for i, a := range args {
		words[offsetArg(i)] = uint32(a)
	}
	var acc uint32
	for pc := 0; pc < len(code); pc++ {
		switch in := code[pc]; in.code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			acc = words[in.k]
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			acc &= in.k
		case unix.BPF_JMP | unix.BPF_JA:
			pc += int(in.k)
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			pc += branch(acc == in.k, in)
		case unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K:
			pc += branch(acc > in.k, in)
		case unix.BPF_RET | unix.BPF_K:
			return in.k, nil
		default:
			return 0, fmt.Errorf("instruction %d: code %#x", pc, in.code)
		}
	}
	return 0, fmt.Errorf("the filter has no end")
}

func branch(taken bool, in instruction) int {
	if taken {
		return int(in.jt)
	}
	return int(in.jf)
}
