// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netd_test

import (
	"os"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"bawn/internal/doctor"
	"bawn/internal/netd"
	"bawn/internal/netkern"
	"bawn/internal/roottest"
)

// TestI12AKernelWithoutNftablesIsTold: the kernel says of the socket what one
// that was built without netfilter's netlink says, on one thread.
func TestI12AKernelWithoutNftablesIsTold(t *testing.T) {
	roottest.Require(t)
	if list := netd.JudgeChains(netkern.OtherChains(nil)); list[len(list)-1].Name != doctor.Nftables || list[len(list)-1].State != doctor.OK {
		t.Errorf("with it: %+v", list)
	}
	found := make(chan []doctor.Finding)
	go func() {
		runtime.LockOSThread() // never unlocked: the filter stays
		if err := withoutNetfilter(); err != nil {
			t.Error(err)
		}
		found <- netd.JudgeChains(netkern.OtherChains(nil))
	}()
	seen := 0
	for _, f := range <-found {
		if f.State != doctor.Fail || !strings.Contains(f.Seen, "protocol not supported") {
			t.Errorf("%+v", f)
		}
		if f.Name == doctor.Nftables {
			seen++
		}
	}
	if seen != 1 {
		t.Errorf("%d findings of nftables", seen)
	}
}

// withoutNetfilter has the kernel answer EPROTONOSUPPORT to whoever of this
// thread wants a socket of netfilter's.
func withoutNetfilter() error {
	code, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: 0, Size: 4}, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_SOCKET, SkipTrue: 5},
		bpf.LoadAbsolute{Off: 16, Size: 4}, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.AF_NETLINK, SkipTrue: 3},
		bpf.LoadAbsolute{Off: 32, Size: 4}, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.NETLINK_NETFILTER, SkipTrue: 1},
		bpf.RetConstant{Val: 0x00050000 | uint32(unix.EPROTONOSUPPORT)}, bpf.RetConstant{Val: 0x7fff0000},
	})
	if err != nil {
		return err
	}
	program := struct {
		length uint16
		code   *bpf.RawInstruction
	}{uint16(len(code)), &code[0]}
	if _, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program))); errno != 0 {
		return errno
	}
	return nil
}

// TestI12AForwardDropOfAnotherIsTold by netd as it runs, with the name of whoever
// it looks like, for as long as it is there.
func TestI12AForwardDropOfAnotherIsTold(t *testing.T) {
	_, c, _ := withAgent(t)
	for _, step := range []struct {
		script string
		state  doctor.State
		seen   string
	}{
		{"add table ip filter; add chain ip filter FORWARD { type filter hook forward priority 0 ; policy accept ; }; add chain ip filter DOCKER-USER", doctor.OK, ""},
		{"chain ip filter FORWARD { policy drop ; }", doctor.Warn, "table ip filter chain FORWARD (Docker)"},
		{"delete table ip filter", doctor.OK, ""},
	} {
		nft(t, os.Getpid(), step.script)
		if f := found(t, c)["firewall_forward"]; f.State != step.state || f.Seen != step.seen {
			t.Errorf("%s: %+v", step.script, f)
		}
	}
}
