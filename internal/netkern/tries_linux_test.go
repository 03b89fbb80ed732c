// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netkern_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"bawn/internal/doctor"
	"bawn/internal/ids"
	"bawn/internal/netkern"
	"bawn/internal/netplan"
	"bawn/internal/probe"
)

// probeAsAgent is the self-test's program, in the place of an agent.
func probeAsAgent() {
	c, err := probe.ReadConfig(os.Stdin)
	if err == nil {
		err = probe.Run(context.Background(), c, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// networkChecks are those that tries of the network make.
var networkChecks = []doctor.Name{
	doctor.TCP, doctor.UDP, doctor.ICMP, doctor.DNS, doctor.Metadata, doctor.Loopback, doctor.SourcePorts, doctor.Counted,
}

// probed runs the self-test's tries as the first agent, and lists the checks of
// the network that have failed.
func (w *wall) probed(t *testing.T, group string) (bad []doctor.Name) {
	t.Helper()
	c := probe.Default(ids.PlacementUID, netplan.UIDProxy(1))
	c.Timeout = 700 * time.Millisecond
	c.Loopback = []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:8000"), netip.MustParseAddrPort("[::1]:8000"), netplan.UIDProxy(2)}
	c.Ping = []netip.Addr{netip.MustParseAddr("192.0.2.1")} // which nobody answers for
	c.Services, c.Own, c.Spools = nil, nil, nil
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	before := w.counted(t)
	cmd := exec.Command("/proc/self/exe")
	if cmd.Path, err = agentBinary(); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(group)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	var out, stderr bytes.Buffer
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = []string{agentFlag + "=probe"}, bytes.NewReader(text), &out, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uidA, Gid: uidA}, UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	if err := netkern.InNamespace(w.h.ns, cmd.Start); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v %s", err, &stderr)
	}
	tries, err := probe.Read(&out)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range probe.Evaluate(ids.PlacementUID, tries, before, w.counted(t)) {
		if slices.Contains(networkChecks, f.Name) && f.State != doctor.OK {
			t.Logf("%s: %s", f.Name, f.Seen)
			bad = append(bad, f.Name)
		}
	}
	return bad
}

func (w *wall) counted(t *testing.T) map[string]uint64 {
	t.Helper()
	counters, err := w.f.Counters()
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]uint64{}
	for name, c := range counters {
		m[name] = c.Packets
	}
	return m
}

// edit changes each rule of a chain that the form matches.
func (w *wall) edit(t *testing.T, chain, form, by string) {
	t.Helper()
	re := regexp.MustCompile(form)
	done := 0
	for _, r := range rulesIn(w.nft(t, "-a", "list", "table", "inet", "bawn")) {
		if r.chain != chain || !re.MatchString(r.text) {
			continue
		}
		done++
		if by == "" {
			w.nft(t, "delete", "rule", "inet", "bawn", chain, "handle", r.handle)
		} else {
			w.nft(t, "replace", "rule", "inet", "bawn", chain, "handle", r.handle, re.ReplaceAllString(r.text, by))
		}
	}
	if done == 0 {
		t.Fatalf("no rule of %s is like %q", chain, form)
	}
}

// TestI12AHoleInTheHostsTableIsSeenFromInside: what the comparison with the plan
// sees, the tries from an agent's place see too, where it opens something to
// them. Nobody watches the table here, and it stands alone: no routing rules, no
// programs on cgroups.
func TestI12AHoleInTheHostsTableIsSeenFromInside(t *testing.T) {
	h := newHost(t)
	group := h.slot(1)
	h.slot(2)
	w := &wall{h: h, f: h.firewall()}
	w.f.WithoutPrograms()
	for slot, uid := range map[int]uint32{1: uidA, 2: uidB} {
		if err := w.f.Add(netplan.UIDSlot{Slot: slot, UID: uid}); err != nil {
			t.Fatal(err)
		}
		h.proxy(slot)
	}
	h.attackerListens(443)
	service := startAgent(t, h.ns, 0, "")
	service.do("listen s 127.0.0.1:8000")
	service.do("listen t [::1]:8000")
	command(t, h.ns, "sysctl", "-qw", "net.ipv4.ping_group_range=0 2147483647")
	alone := func() {
		command(t, h.ns, "ip", "rule", "del", "pref", "1")
		command(t, h.ns, "ip", "-6", "rule", "del", "pref", "1")
	}
	alone()
	if bad := w.probed(t, group); len(bad) > 0 {
		t.Fatalf("in an untouched table: %v", bad)
	}
	all := slices.Clone(networkChecks)
	for _, c := range []struct {
		what string
		do   func()
		want []doctor.Name
	}{
		{"no way into chain agents", func() { w.edit(t, "output", "goto agents", "") }, all},
		{"nothing in chain denied", func() { w.nft(t, "flush", "chain", "inet", "bawn", "denied") }, all},
		{"TCP by IPv4 is accepted", func() {
			w.edit(t, "denied", `^(meta l4proto tcp counter name "denied_ipv4") reject.*`, "$1 accept")
		}, []doctor.Name{doctor.TCP, doctor.DNS, doctor.Metadata, doctor.Loopback, doctor.SourcePorts}},
		{"TCP by IPv6 is accepted", func() {
			w.edit(t, "denied", `^(.*ipv6 meta l4proto tcp .*) reject.*`, "$1 accept")
		}, []doctor.Name{doctor.TCP, doctor.DNS, doctor.Metadata, doctor.Loopback}},
		{"all but TCP is accepted", func() {
			w.edit(t, "denied", `^(counter name "denied_ipv4") reject.*`, "$1 accept")
		}, []doctor.Name{doctor.UDP, doctor.ICMP, doctor.DNS}},
		{"another agent's proxy is its own", func() {
			e := netplan.Element{UID: uidA, Cgroup: h.plan.SlotCgroup(1), Addr: netplan.UIDProxy(2).Addr(), Port: netplan.ProxyPort}
			w.nft(t, fmt.Sprintf("add element inet bawn own { %s }", e.Text(h.plan.Rules().Sets[0].Fields)))
		}, []doctor.Name{doctor.Loopback, doctor.SourcePorts}}, // whose second aim is the last of the host's listeners
		{"a source port is trusted", func() { w.nft(t, "insert rule inet bawn agents tcp sport 8080 ip daddr 198.51.100.1 accept") }, []doctor.Name{doctor.SourcePorts}},
		{"nothing counts", func() { w.edit(t, "denied", `counter name "\w+" `, " ") }, []doctor.Name{doctor.Counted}},
	} {
		t.Run(c.what, func(t *testing.T) {
			c.do()
			if err := w.f.Check(); err == nil {
				t.Error("Check sees nothing")
			}
			bad := w.probed(t, group)
			slices.Sort(bad)
			slices.Sort(c.want)
			if !slices.Equal(bad, c.want) {
				t.Errorf("failed: %v, want %v", bad, c.want)
			}
			w.f.Keep()
			if err := w.f.Check(); err != nil {
				t.Error(err)
			}
			alone()
		})
	}
	if bad := w.probed(t, group); len(bad) > 0 {
		t.Errorf("in the mended table: %v", bad)
	}
}

// listenersOfOthers are ports on which another account of the host may listen: a
// console, a workspace, anything.
var listenersOfOthers = []int{7443, 7450, 8080, 41234}

// refusedAtOnce reports whether an agent's connect failed: not its bind, and not
// by waiting in vain.
func refusedAtOnce(answer string) bool {
	for _, other := range []string{"EINPROGRESS", "EAGAIN", "EADDRINUSE", "EADDRNOTAVAIL", "EINVAL"} {
		if strings.Contains(answer, other) {
			return false
		}
	}
	return strings.HasPrefix(answer, "ok error")
}

// TestI1NoPortOfAnotherAccountIsReached from the uid placement, whatever its
// number, its address and the agent's own source port; nor is the agent reached
// from such a port. The other account's port stays its own.
func TestI1NoPortOfAnotherAccountIsReached(t *testing.T) {
	h := newHost(t)
	group := h.slot(1)
	// Addresses at which the same ports are free for the agent to come from.
	command(t, h.ns, "ip", "addr", "add", "203.0.113.3/24", "dev", "out")
	command(t, h.ns, "ip", "addr", "add", "2001:db8::3/64", "dev", "out", "nodad")
	h.attackerListens(443)
	other, a := startAgent(t, h.ns, stranger, ""), startAgent(t, h.ns, uidA, group)
	var listening, targets []string
	for _, port := range listenersOfOthers {
		for _, at := range []string{"127.0.0.1", "[::1]", host4} {
			name, to := fmt.Sprintf("l%d%s", port, at), fmt.Sprintf("%s:%d", at, port)
			if got := other.do("listen %s %s", name, to); got != "ok" {
				t.Fatalf("listening at %s: %s", to, got)
			}
			listening, targets = append(listening, name), append(targets, to)
		}
	}
	if got := a.do("tcp x 127.0.0.1:7443 127.0.0.9:8080"); got != "ok" || other.do("accept l7443127.0.0.1") != "ok somebody" {
		t.Fatalf("without a firewall: %s", got)
	}
	a.do("close x")
	f := h.firewall(group)
	f.WithoutPrograms()
	if err := f.Add(netplan.UIDSlot{Slot: 1, UID: uidA}); err != nil {
		t.Fatal(err)
	}
	targets = append(targets, "1.1.1.1:443", attacker4+":443", "["+attacker6+"]:443", "169.254.169.254:80")
	for _, to := range targets {
		for _, from := range []string{"", "8080", "7443", "3128"} {
			source := ""
			if from != "" {
				source = "127.0.0.9:" + from
				if strings.HasPrefix(to, "[") {
					source = "[2001:db8::3]:" + from
				} else if !strings.HasPrefix(to, "127.") {
					source = "203.0.113.3:" + from
				}
			}
			got := a.do("tcp x %s %s", to, source)
			a.do("close x")
			if !refusedAtOnce(got) {
				t.Errorf("tcp to %s from %q: %s, want an error at once", to, source, got)
			}
		}
		if got := a.do("udp %s", to); !strings.HasPrefix(got, "ok error") {
			t.Errorf("udp to %s: %s", to, got)
		}
	}
	// The other way round, from the port on which the other account listens.
	for name, at := range map[string]string{"v4": "127.0.0.1:9001", "v6": "[::1]:9001"} {
		a.do("listen %s %s", name, at)
		from := "127.0.0.9:8080"
		if name == "v6" {
			from = "[2001:db8::3]:8080"
		}
		for _, source := range []string{"", from} {
			if got := other.do("tcp y %s %s", at, source); !refusedAtOnce(got) {
				t.Errorf("the other account to the agent's port %s from %q: %s", at, source, got)
			}
			other.do("close y")
		}
		if got := a.do("accept %s", name); got != "ok nobody" {
			t.Errorf("the agent's port %s: %s", at, got)
		}
	}
	for _, name := range listening {
		if got := other.do("accept %s", name); got != "ok nobody" {
			t.Errorf("%s: %s", name, got)
		}
	}
	h.nothingArrived()
}

// TestI1NoPortOfAnotherAccountIsInTheNamespace: in the netns placement the same
// connections end at Bawn's own listener, or at nobody, whatever their source
// port; on the host nobody hears of them.
func TestI1NoPortOfAnotherAccountIsInTheNamespace(t *testing.T) {
	h := newHost(t)
	other := startAgent(t, h.ns, stranger, "")
	for _, port := range listenersOfOthers {
		if got := other.do("listen l%d 0.0.0.0:%d", port, port); got != "ok" {
			t.Fatal(got)
		}
	}
	n := build(t)
	ln := accepting(t, listener(t, n, netplan.Transparent, "tcp"))
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			c.Write([]byte("bawn"))
			c.Close()
		}
	}()
	a := startAgent(t, n.File(), uidA, "")
	for _, to := range []string{"1.1.1.1:443", host4 + ":7443", host4 + ":7450", host4 + ":8080", host4 + ":41234", attacker4 + ":443", "169.254.169.254:80"} {
		for _, source := range []string{"", "198.18.0.2:8080", "0.0.0.0:7443"} {
			if got := a.do("tcp c %s %s", to, source); got != "ok" {
				t.Errorf("tcp to %s from %q: %s", to, source, got)
			} else if got := a.do("hear c"); got != "ok bawn" {
				t.Errorf("at %s from %q there is %q", to, source, got)
			}
			a.do("close c")
		}
	}
	for _, port := range listenersOfOthers {
		for _, at := range []string{"127.0.0.1", "[::1]"} {
			if got := a.do("tcp c %s:%d", at, port); got != "ok error ECONNREFUSED" {
				t.Errorf("%s:%d: %s", at, port, got)
			}
			a.do("close c")
		}
		if got := other.do("accept l%d", port); got != "ok nobody" {
			t.Errorf("the host's port %d: %s", port, got)
		}
	}
	h.nothingArrived()
}
