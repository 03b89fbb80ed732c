// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netplan_test

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"bawn/internal/netplan"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got); see -update\n%s", path, diff)
	}
}

func TestPlansPrint(t *testing.T) {
	golden(t, "agent.txt", netplan.ForAgent().String())
	host := netplan.Host{Table: "bawn", Cgroup: "bawn"}
	golden(t, "host-empty.txt", host.String())
	host = host.With(netplan.UIDSlot{Slot: 256, UID: 1900000002}).With(netplan.UIDSlot{Slot: 3, UID: 1900000001})
	golden(t, "host-two.txt", host.String())
	host.Processes = netplan.Processes{
		Admin: 995, Proxy: 996,
		Resolvers: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.53:53"), netip.MustParseAddrPort("[2001:db8::53]:53")},
		Private:   []netip.Prefix{netip.MustParsePrefix("10.20.0.0/14"), netip.MustParsePrefix("fd00:1::/40")},
		Parents:   []netplan.Service{{Prefix: netip.MustParsePrefix("10.9.0.1/32"), Port: 3128}, {Prefix: netip.MustParsePrefix("fd00:2::/64"), Port: 8080}},
	}
	golden(t, "host-processes.txt", host.String())
}

// TestI1TheAgentsNamespaceHasNoLink: by construction there is nothing but the
// loopback interface, no way to accept what does not stay on it, and no chain
// that lets through what no rule names.
func TestI1TheAgentsNamespaceHasNoLink(t *testing.T) {
	plan := netplan.ForAgent()
	for _, r := range plan.Routes {
		if !strings.HasPrefix(r.String(), "local ") || !strings.Contains(r.String(), " dev lo ") {
			t.Errorf("route %s leads out", r)
		}
	}
	inside := []netip.Prefix{
		netip.MustParsePrefix("127.0.0.0/8"), netip.PrefixFrom(netplan.Gateway, 32),
		netip.PrefixFrom(netplan.Source, 32), netip.MustParsePrefix("::1/128"),
	}
	for _, c := range plan.Table.Chains {
		if c.Hook == netplan.HookOutput && !c.NAT && !c.Closed {
			t.Errorf("chain %s lets through what no rule names", c.Name)
		}
		for _, r := range c.Rules {
			if !has[netplan.Accept](r) {
				continue
			}
			to, ok := r[0].(netplan.To)
			if !ok || !contains(inside, netip.Prefix(to)) {
				t.Errorf("chain %s: rule %q accepts more than the agent's own addresses", c.Name, r)
			}
		}
	}
}

// TestI1TheHostTableAcceptsOnlyTheOwnProxy: in the chains that an agent's
// packets go through, only set elements accept, and every chain ends in a
// rejection of everything.
func TestI1TheHostTableAcceptsOnlyTheOwnProxy(t *testing.T) {
	host := netplan.Host{Table: "bawn", Cgroup: "bawn"}.With(netplan.UIDSlot{Slot: 1, UID: netplan.FirstUID})
	table := host.Rules()
	for _, c := range table.Chains {
		if c.Name != "agents" {
			continue
		}
		for _, r := range c.Rules {
			if has[netplan.Accept](r) && !has[netplan.In](r) {
				t.Errorf("rule %q accepts without a slot", r)
			}
		}
		last := c.Rules[len(c.Rules)-1]
		if last.String() != "goto denied" {
			t.Errorf("chain agents ends with %q", last)
		}
	}
	if text := table.String(); strings.Contains(text, "ct state") || strings.Contains(text, "established") {
		t.Error("the table accepts because of an earlier packet")
	}
	for _, set := range table.Sets {
		if len(set.Elements) != 1 || set.Elements[0].Addr != netip.MustParseAddr("127.66.0.1") {
			t.Errorf("set %s holds %v", set.Name, set.Elements)
		}
	}
}

func has[T netplan.Term](r netplan.Rule) bool {
	for _, t := range r {
		if _, ok := t.(T); ok {
			return true
		}
	}
	return false
}

func contains(outer []netip.Prefix, inner netip.Prefix) bool {
	for _, o := range outer {
		if o.Overlaps(inner) && o.Bits() <= inner.Bits() {
			return true
		}
	}
	return false
}

func TestSlotsHaveAddressesOfTheirOwn(t *testing.T) {
	seen := map[netip.AddrPort]int{}
	for slot := 0; slot <= netplan.MaxSlot; slot++ {
		a := netplan.UIDProxy(slot)
		if !netplan.UIDProxies.Contains(a.Addr()) || a.Port() != netplan.ProxyPort {
			t.Fatalf("slot %d: %s is no proxy address", slot, a)
		}
		if other, taken := seen[a]; taken {
			t.Fatalf("slots %d and %d share %s", other, slot, a)
		}
		seen[a] = slot
	}
	for _, slot := range []int{-1, netplan.MaxSlot + 1} {
		if netplan.CheckSlot(slot) == nil {
			t.Errorf("slot %d passes", slot)
		}
	}
	if netplan.IsAgentUID(netplan.FirstUID-1) || !netplan.IsAgentUID(netplan.FirstUID) ||
		!netplan.IsAgentUID(netplan.LastUID) || netplan.IsAgentUID(netplan.LastUID+1) || netplan.IsAgentUID(0) {
		t.Error("the range of uids has other ends")
	}
}

func TestWithAndWithoutLeaveTheOldPlanAlone(t *testing.T) {
	one := netplan.Host{Table: "bawn", Cgroup: "bawn"}.With(netplan.UIDSlot{Slot: 1, UID: 1900000001})
	before := one.String()
	two := one.With(netplan.UIDSlot{Slot: 0, UID: 1900000000})
	again := two.With(netplan.UIDSlot{Slot: 1, UID: 1900000009})
	none := one.Without(1)
	if one.String() != before {
		t.Error("the plan changed under its owner")
	}
	if len(two.Slots) != 2 || len(again.Slots) != 2 || len(none.Slots) != 0 || again.Slots[1].UID != 1900000009 {
		t.Errorf("slots %v, %v, %v", two.Slots, again.Slots, none.Slots)
	}
}
