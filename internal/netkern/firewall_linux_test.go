// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netkern_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bawn/internal/netkern"
	"bawn/internal/netplan"
)

const (
	uidA     = netplan.FirstUID + 1
	uidB     = netplan.FirstUID + 2
	stranger = 4242
)

// TestTheWorldIsOpenWithoutAFirewall: without the rules everything gets out,
// so that the tests below prove something.
func TestTheWorldIsOpenWithoutAFirewall(t *testing.T) {
	h := newHost(t)
	h.attackerListens(80)
	a := startAgent(t, h.ns, uidA, h.slot(1))
	for _, to := range []string{attacker4 + ":80", "198.51.100.9:80", "[" + attacker6 + "]:80"} {
		if got := a.do("tcp c %s", to); got != "ok" {
			t.Errorf("tcp to %s: %s", to, got)
		}
		if got := a.do("udp %s", to); got != "ok" && got != "ok error ECONNREFUSED" { // the attacker's kernel says that
			t.Errorf("udp to %s: %s", to, got)
		}
	}
	eventually(t, "packets at the attacker", func() bool { return h.arrived.Load() >= 6 })
}

// TestI1OnlyTheOwnProxy: an agent of the uid placement reaches its own proxy
// and nothing else: no address outside, over IPv4 or IPv6, no service of the
// host, no other agent, not even itself.
func TestI1OnlyTheOwnProxy(t *testing.T) {
	t.Run("table alone", func(t *testing.T) { onlyTheOwnProxy(t, false) })
	t.Run("with programs", func(t *testing.T) { onlyTheOwnProxy(t, true) })
}

func onlyTheOwnProxy(t *testing.T, programs bool) {
	h := newHost(t)
	h.attackerListens(80)
	groupA, groupB := h.slot(1), h.slot(2)
	f := h.firewall(groupA, groupB)
	if !programs {
		f.WithoutPrograms()
	}
	h.proxy(1)
	h.proxy(2)
	service := startAgent(t, h.ns, 0, "")
	for _, at := range []string{"127.0.0.1:8000", "[::1]:8000", host4 + ":8000"} {
		if got := service.do("listen s %s", at); got != "ok" {
			t.Fatalf("the host's service at %s: %s", at, got)
		}
	}
	for slot, uid := range map[int]uint32{1: uidA, 2: uidB} {
		if err := f.Add(netplan.UIDSlot{Slot: slot, UID: uid}); err != nil {
			t.Fatal(err)
		}
	}
	a, b := startAgent(t, h.ns, uidA, groupA), startAgent(t, h.ns, uidB, groupB)
	if got := b.do("listen s 127.0.0.1:9000"); got != "ok" {
		t.Fatal(got)
	}
	if got := a.do("listen s 127.0.0.1:9001"); got != "ok" {
		t.Fatal(got)
	}
	for slot, who := range map[int]*agent{1: a, 2: b} {
		if got := who.do("tcp p %s", netplan.UIDProxy(slot)); got != "ok" {
			t.Errorf("agent %d to its proxy: %s", slot, got)
		}
		who.do("say p hello")
		if got := who.do("hear p"); got != fmt.Sprintf("ok proxy %d", slot) {
			t.Errorf("agent %d hears %q", slot, got)
		}
	}
	refused := []string{
		attacker4 + ":80", "198.51.100.9:80", "[" + attacker6 + "]:80", "169.254.169.254:80",
		host4 + ":8000", "127.0.0.1:8000", "[::1]:8000", "127.0.0.1:9000", "127.0.0.1:9001",
		netplan.UIDProxy(2).String(), netplan.UIDProxy(3).String(), "127.66.0.1:8000",
	}
	for _, to := range refused {
		got := a.do("tcp x %s", to)
		if !strings.HasPrefix(got, "ok error") || strings.Contains(got, "EINPROGRESS") || strings.Contains(got, "EAGAIN") {
			t.Errorf("tcp to %s: %s, want an error at once", to, got)
		}
		if got := a.do("udp %s", to); !strings.HasPrefix(got, "ok error") {
			t.Errorf("udp to %s: %s", to, got)
		}
	}
	// The other way round: nobody reaches the agent's own port.
	if got := service.do("tcp x 127.0.0.1:9001"); !strings.HasPrefix(got, "ok error") {
		t.Errorf("the host to the agent's port: %s", got)
	}
	if got := a.do("accept s"); got != "ok nobody" {
		t.Errorf("the agent accepts %s", got)
	}
	h.nothingArrived()
	counters, err := f.Counters()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{netplan.CountToProxy, netplan.CountDenied4, netplan.CountDenied6, netplan.CountInbound} {
		if counters[name].Packets == 0 {
			t.Errorf("counter %s has not moved: %v", name, counters)
		}
	}
}

// nothingArrived fails if a packet reached the attacker. A packet sent on
// purpose comes last, so that nothing can still be under way.
func (h *host) nothingArrived() {
	h.t.Helper()
	before := h.arrived.Load()
	in(h.t, h.ns, func() error { sendUDP(attacker4+":9", "marker"); return nil })
	eventually(h.t, "the marker packet", func() bool { return h.arrived.Load() > before })
	if before != 0 {
		h.t.Errorf("%d packets reached the attacker, the first: %s", before, <-h.arrivals)
	}
	h.arrived.Store(0)
	for len(h.arrivals) > 0 {
		<-h.arrivals
	}
}

// TestUIDAndCgroupMustBothBeRight.
func TestUIDAndCgroupMustBothBeRight(t *testing.T) {
	h := newHost(t)
	h.attackerListens(80)
	groupA, groupB := h.slot(1), h.slot(2)
	f := h.firewall(groupA, groupB)
	f.WithoutPrograms()
	h.proxy(1)
	for slot, uid := range map[int]uint32{1: uidA, 2: uidB} {
		if err := f.Add(netplan.UIDSlot{Slot: slot, UID: uid}); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		uid   uint32
		group string
		proxy bool // may reach proxy 1
		out   bool // may reach the attacker
	}{
		"the agent":                             {uidA, groupA, true, false},
		"its uid outside of its cgroup":         {uidA, "", false, false},
		"its uid in another's cgroup":           {uidA, groupB, false, false},
		"another's uid in its cgroup":           {uidB, groupA, false, false},
		"root in its cgroup":                    {0, groupA, false, false},
		"a uid of the range without a slot":     {netplan.LastUID, "", false, false},
		"a process in Bawn's own cgroup":        {stranger, h.group, false, false},
		"a stranger":                            {stranger, "", false, true},
		"root":                                  {0, "", false, true},
		"the uid before the range of agents":    {netplan.FirstUID - 1, "", false, true},
		"the uid behind the range of agents":    {netplan.LastUID + 1, "", false, true},
		"an agent's uid with no slot, in group": {netplan.FirstUID, groupA, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			who := startAgent(t, h.ns, c.uid, c.group)
			if got := who.do("tcp p %s", netplan.UIDProxy(1)); (got == "ok") != c.proxy {
				t.Errorf("to the proxy: %s", got)
			}
			if got := who.do("tcp o %s:80", attacker4); (got == "ok") != c.out {
				t.Errorf("to the attacker: %s", got)
			}
			if !c.out {
				return
			}
			// Strangers are left alone: services, sockets, everything.
			if got := who.do("listen l 127.0.0.1:7777"); got != "ok" {
				t.Errorf("listening: %s", got)
			}
			if got := who.do("tcp c 127.0.0.1:7777"); got != "ok" {
				t.Errorf("to itself: %s", got)
			}
		})
	}
	if c, err := f.Counters(); err != nil || c[netplan.CountStrangers].Packets == 0 {
		t.Errorf("counters %v, %v", c, err)
	}
}

// TestNoAgentTakesTheProxiesPort: else it could keep the slots to come from
// starting.
func TestNoAgentTakesTheProxiesPort(t *testing.T) {
	h := newHost(t)
	group := h.slot(1)
	f := h.firewall(group)
	h.proxy(1)
	if err := f.Add(netplan.UIDSlot{Slot: 1, UID: uidA}); err != nil {
		t.Fatal(err)
	}
	a := startAgent(t, h.ns, uidA, group)
	for i, at := range []string{netplan.UIDProxy(2).String(), "127.0.0.1:3128", host4 + ":3128", "[::1]:3128", "[::ffff:127.66.0.2]:3128"} {
		if got := a.do("listen s%d %s", i, at); got != "ok error EPERM" {
			t.Errorf("listening at %s: %s", at, got)
		}
	}
	if got := a.do("bind u 0.0.0.0:3128"); got != "ok error EPERM" {
		t.Errorf("UDP: %s", got)
	}
	if got := a.do("listen s 127.0.0.1:3129"); got != "ok" {
		t.Errorf("another port: %s", got)
	}
	if got := a.do("tcp p %s", netplan.UIDProxy(1)); got != "ok" {
		t.Errorf("to the proxy: %s", got)
	}
}

// TestNobodyReadsWhichPortsAnAgentHasOpened: an answer that told an open port
// from a closed one would carry a bit out with each question.
func TestNobodyReadsWhichPortsAnAgentHasOpened(t *testing.T) {
	h := newHost(t)
	group := h.slot(1)
	f := h.firewall(group)
	if err := f.Add(netplan.UIDSlot{Slot: 1, UID: uidA}); err != nil {
		t.Fatal(err)
	}
	a, outside := startAgent(t, h.ns, uidA, group), startAgent(t, h.attacker, 0, "")
	for _, at := range []string{"0.0.0.0:7777", "[::]:7777"} {
		if got := a.do("listen s %s", at); got != "ok" && at[0] != '[' {
			t.Fatal(got)
		}
	}
	if got := a.do("bind u 0.0.0.0:7777"); got != "ok" {
		t.Fatal(got)
	}
	for _, ask := range []string{"tcp x %s", "error %s"} {
		closed, open := outside.do(ask, host4+":7778"), outside.do(ask, host4+":7777")
		if closed != open || !strings.Contains(closed, "ECONNREFUSED") {
			t.Errorf("%q: a closed port says %q, an open one %q", ask, closed, open)
		}
	}
	if c, err := f.Counters(); err != nil || c[netplan.CountInbound].Packets < 2 {
		t.Errorf("counters %v, %v", c, err)
	}
}

// TestAnAgentCannotSquatOnAProxy: on a kernel without the programs, whoever
// listens on a proxy's address before its slot exists keeps the slot from
// starting, but is not reached by anybody.
func TestAnAgentCannotSquatOnAProxy(t *testing.T) {
	h := newHost(t)
	groupA, groupB := h.slot(1), h.slot(2)
	f := h.firewall(groupA, groupB)
	f.WithoutPrograms()
	h.proxy(1)
	for slot, uid := range map[int]uint32{1: uidA, 2: uidB} {
		if err := f.Add(netplan.UIDSlot{Slot: slot, UID: uid}); err != nil {
			t.Fatal(err)
		}
	}
	a, b := startAgent(t, h.ns, uidA, groupA), startAgent(t, h.ns, uidB, groupB)
	if got := a.do("listen s %s", netplan.UIDProxy(2)); got != "ok" {
		t.Fatal(got) // nothing keeps an account from binding a free loopback address
	}
	if got := b.do("tcp p %s", netplan.UIDProxy(2)); !strings.HasPrefix(got, "ok error") {
		t.Errorf("the second agent reaches the first: %s", got)
	}
	if got := a.do("accept s"); got != "ok nobody" {
		t.Errorf("the squatter accepts %s", got)
	}
	err := netkern.InNamespace(h.ns, func() error {
		l, err := netkern.OpenUIDListener(2)
		if err == nil {
			l.File.Close()
		}
		return err
	})
	if !errors.Is(err, unix.EADDRINUSE) || !strings.Contains(err.Error(), netplan.UIDProxy(2).String()) {
		t.Errorf("opening the proxy's listener: %v", err)
	}
	// With the proxy's own address as source nothing more is reached.
	if got := a.do("tcp x %s %s", netplan.UIDProxy(1), "127.66.0.2:4000"); got != "ok" {
		t.Errorf("to the own proxy from another address: %s", got)
	}
	if got := a.do("tcp x %s %s", "127.0.0.1:8000", "127.66.0.1:4001"); !strings.HasPrefix(got, "ok error") {
		t.Errorf("elsewhere: %s", got)
	}
}

// TestI1ClosedSocketsKeepTheirCgroup: data queued on a socket that the agent
// has closed has no owner any more. It must stay behind all the same.
func TestI1ClosedSocketsKeepTheirCgroup(t *testing.T) {
	h := newHost(t)
	ln := h.attackerListens(80)
	group := h.slot(1)
	a := startAgent(t, h.ns, uidA, group) // before the firewall, or it could not connect
	if got := a.do("tcp c %s:80", attacker4); got != "ok" {
		t.Fatal(got)
	}
	c, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	filled := a.do("fill c")
	if filled == "ok 0" {
		t.Fatal("nothing was queued")
	}
	f := h.firewall(group)
	f.WithoutPrograms()
	if err := f.Add(netplan.UIDSlot{Slot: 1, UID: uidA}); err != nil {
		t.Fatal(err)
	}
	// Both locks apart: the routing rule would hide what the table does.
	command(t, h.ns, "ip", "rule", "del", "pref", "1")
	if got := a.do("close c"); got != "ok" {
		t.Fatal(got)
	}
	got := make(chan int64)
	go func() {
		n, _ := io.Copy(io.Discard, c) // opens the window: the sender would go on
		got <- n
	}()
	counter := func() uint64 {
		c, err := f.Counters()
		if err != nil {
			t.Fatal(err)
		}
		return c[netplan.CountDenied4].Packets
	}
	eventually(t, "the closed socket's packets to be rejected", func() bool { return counter() > 0 })
	arrived := h.arrived.Load()
	more := counter() + 1
	eventually(t, "another try of the closed socket", func() bool { return counter() > more || !exists(t, h) })
	if now := h.arrived.Load(); now != arrived {
		t.Errorf("%d packets of a closed socket reached the attacker", now-arrived)
	}
	c.Close()
	n := <-got
	t.Logf("queued %s bytes; %d had left before the rules came", filled, n)
}

// exists reports whether the agent's kernel still has a connection to the
// attacker.
func exists(t *testing.T, h *host) bool {
	return strings.Contains(command(t, h.ns, "ss", "-tan"), attacker4)
}

// TestAClosedConnectionToTheProxyEndsInOrder: the agent says something, closes
// and is gone; the proxy still gets all of it, and no socket stays behind.
func TestAClosedConnectionToTheProxyEndsInOrder(t *testing.T) {
	h := newHost(t)
	group := h.slot(1)
	f := h.firewall(group)
	conns := h.proxy(1)
	if err := f.Add(netplan.UIDSlot{Slot: 1, UID: uidA}); err != nil {
		t.Fatal(err)
	}
	a := startAgent(t, h.ns, uidA, group)
	for range 20 {
		if got := a.do("tcp p %s", netplan.UIDProxy(1)); got != "ok" {
			t.Fatal(got)
		}
		if got := a.do("close p"); got != "ok" {
			t.Fatal(got)
		}
		(<-conns).Close()
	}
	eventually(t, "connections to end", func() bool {
		out := command(t, h.ns, "ss", "-tanH", "state", "last-ack", "state", "fin-wait-1", "state", "closing")
		return !strings.Contains(out, "127.66.")
	})
	c, err := f.Counters()
	if err != nil || c[netplan.CountStrangers].Packets != 0 || c[netplan.CountDenied4].Packets != 0 {
		t.Errorf("counters %v, %v", c, err)
	}
}
