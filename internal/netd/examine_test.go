// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netd_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bawn/internal/doctor"
	"bawn/internal/netd"
	"bawn/internal/netd/netdapi"
	"bawn/internal/netkern"
	"bawn/internal/netplan"
)

// breaks are what turns netd's own checks red, beside those of package inspect.
var breaks = map[doctor.Name]func(t *testing.T, r *rig, session int) (mend func()){
	doctor.RulesPlanned: func(t *testing.T, _ *rig, session int) func() {
		nft(t, session, "flush chain inet bawn output")
		return func() {}
	},
	doctor.RulesStand: func(t *testing.T, r *rig, _ int) func() {
		// Somebody takes the table's name and does not let go.
		owner := exec.Command("nft", "-i")
		in, err := owner.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := owner.Start(); err != nil {
			t.Fatal(err)
		}
		c := r.admin()
		eventually(t, "the firewall to be lost for good", func() bool {
			fmt.Fprintf(in, "delete table inet %s\nadd table inet %s { flags owner ; }\n", r.o.Mark, r.o.Mark)
			time.Sleep(50 * time.Millisecond)
			st, err := c.Status(t.Context())
			return err == nil && st.Firewall.State == "lost"
		})
		return func() { in.Close(); owner.Wait() }
	},
	doctor.Nftables: nil, // a kernel without it: TestI12AKernelThatDoesNotAnswerHasFailed
}

func nft(t *testing.T, pid int, script string) {
	t.Helper()
	if out, err := exec.Command("nsenter", "--net=/proc/"+strconv.Itoa(pid)+"/ns/net", "nft", script).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// found is what netd says of the firewall.
func found(t *testing.T, c *netdapi.Client) map[string]doctor.Finding {
	t.Helper()
	list, err := c.Examine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]doctor.Finding{}
	for _, f := range list {
		m[string(f.Name)+string(f.Placement)] = f
	}
	return m
}

func TestI12WhatIsDoneToTheFirewallTurnsItsLineRed(t *testing.T) {
	for name, do := range breaks {
		if do == nil {
			continue
		}
		r, c, _ := withAgent(t)
		spec := r.spec("/bin/sleep", "600")
		files, err := c.Start(t.Context(), spec, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer netdapi.CloseAll(files)
		st, err := c.Status(t.Context())
		if err != nil || len(st.Sessions) != 1 {
			t.Fatal(st, err)
		}
		before := found(t, c)
		for _, key := range []string{"firewall_stands", "firewall_rulesnetns", "firewall_rulesuid", "firewall_foreign", "firewall_forward", "nftables"} {
			if before[key].State != doctor.OK {
				t.Errorf("%s: %+v", key, before[key])
			}
		}
		mend := do(t, r, st.Sessions[0].PID)
		after := found(t, c)
		red := 0
		for key, f := range after {
			if strings.HasPrefix(key, string(name)) && f.State == doctor.Fail {
				red++
			}
		}
		if red != 1 && name != doctor.RulesStand {
			t.Errorf("%s: %+v", name, after)
		}
		if name == doctor.RulesStand && after["firewall_stands"].State != doctor.Fail {
			t.Errorf("%+v", after["firewall_stands"])
		}
		mend()
		r.stop()
	}
}

func TestI12AKernelThatDoesNotAnswerHasFailed(t *testing.T) {
	list := netd.JudgeChains(nil, errors.New("protocol not supported"))
	if len(list) != 3 {
		t.Errorf("%+v", list)
	}
	for _, f := range list {
		if f.State != doctor.Fail || f.Seen != "protocol not supported" {
			t.Errorf("%+v", f)
		}
	}
	if list := netd.JudgeChains([]netkern.OtherChain{}, nil); list[len(list)-1].State != doctor.OK {
		t.Errorf("%+v", list)
	}
}

// TestLuresAreThereForTheHostAlone: they can be reached from it for as long as
// they are held, on every kind of address, and by nobody from outside.
func TestLuresAreThereForTheHostAlone(t *testing.T) {
	r := newRig(t)
	c := r.admin()
	l, files, err := c.Lures(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(l.TCP) < 2 || len(l.UDP) != len(l.TCP) || len(l.Abstract) != 1 {
		t.Fatalf("%+v", l)
	}
	// At the place of an agent's proxy the firewall lets nobody else in.
	l.TCP = slices.DeleteFunc(l.TCP, func(a netip.AddrPort) bool { return netplan.UIDProxies.Contains(a.Addr()) })
	reach := func() (n int) {
		for _, a := range l.TCP {
			if c, err := net.DialTimeout("tcp", a.String(), time.Second); err == nil {
				c.Close()
				n++
			}
		}
		if c, err := net.Dial("unix", "@"+l.Abstract[0]); err == nil {
			c.Close()
			n++
		}
		return n
	}
	if n := reach(); n != len(l.TCP)+1 {
		t.Errorf("%d of %d can be reached", n, len(l.TCP)+1)
	}
	for _, f := range files[:len(files)-1] {
		bound(t, f)
	}
	netdapi.CloseAll(files)
	if n := reach(); n != 0 {
		t.Errorf("%d can be reached once they are closed", n)
	}
}

// bound makes sure that a socket takes what comes over the loopback device
// alone.
func bound(t *testing.T, f *os.File) {
	t.Helper()
	device, err := unix.GetsockoptString(int(f.Fd()), unix.SOL_SOCKET, unix.SO_BINDTODEVICE)
	if err != nil || strings.TrimRight(device, "\x00") != "lo" {
		t.Errorf("bound to %q: %v", device, err)
	}
}

// TestOnlyAdminExamines.
func TestOnlyAdminExamines(t *testing.T) {
	r := newRig(t)
	as(t, proxyUID, func() error {
		c, err := netdapi.Dial(t.Context(), r.sock, nil)
		if err != nil {
			return err
		}
		defer c.Close()
		if _, err := c.Examine(t.Context()); code(err) != netdapi.CodeNotPermitted {
			t.Errorf("examine: %v", err)
		}
		if _, _, err := c.Lures(t.Context()); code(err) != netdapi.CodeNotPermitted {
			t.Errorf("lures: %v", err)
		}
		return nil
	})
}
