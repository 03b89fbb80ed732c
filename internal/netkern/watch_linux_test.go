// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netkern_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"bawn/internal/netkern"
	"bawn/internal/netplan"
)

// watch runs the firewall's watcher until the test ends.
func watch(t *testing.T, f *netkern.Firewall) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		if err := f.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); done.Wait() })
}

// TestI1FlushedRulesetLetsNothingOut: an agent tries without pause to get out
// while somebody flushes all tables, again and again. Not one packet reaches
// the attacker, no connection a service of the host, the agent's own proxy
// works again afterwards, and the loss is seen every time.
func TestI1FlushedRulesetLetsNothingOut(t *testing.T) {
	h := newHost(t)
	h.attackerListens(80)
	group := h.slot(1)
	f := h.firewall(group)
	watch(t, f)
	h.proxy(1)
	service := startAgent(t, h.ns, 0, "")
	if got := service.do("listen s 127.0.0.1:8000"); got != "ok" {
		t.Fatal(got)
	}
	if err := f.Add(netplan.UIDSlot{Slot: 1, UID: uidA}); err != nil {
		t.Fatal(err)
	}
	a := startAgent(t, h.ns, uidA, group)
	a.do("patience 50") // the programs drop in silence
	var stop atomic.Bool
	var tries atomic.Int64
	var running sync.WaitGroup
	running.Go(func() {
		for !stop.Load() {
			for _, to := range []string{attacker4 + ":80", "[" + attacker6 + "]:80", "198.51.100.9:80", "127.0.0.1:8000"} {
				for _, cmd := range []string{"tcp x " + to, "close x", "udp " + to} {
					if _, err := a.try("%s", cmd); err != nil {
						t.Error(err)
						return
					}
				}
			}
			tries.Add(1)
		}
	})
	for range 30 {
		before, seen := tries.Load(), f.State().Losses
		eventually(t, "the agent to try", func() bool { return tries.Load() > before })
		command(t, h.ns, "nft", "flush", "ruleset")
		eventually(t, "the loss to be seen and mended", func() bool {
			s := f.State()
			return s.Losses > seen && s.Standing
		})
	}
	stop.Store(true)
	running.Wait()
	h.nothingArrived()
	if got := service.do("accept s"); got != "ok nobody" {
		t.Errorf("the host's service: %s", got)
	}
	if got := a.do("tcp p %s", netplan.UIDProxy(1)); got != "ok" {
		t.Errorf("the agent to its proxy: %s", got)
	}
	if s := f.State(); s.Losses != 30 || !s.Standing {
		t.Errorf("state %+v", s)
	}
}

// TestI1EachLockHoldsAlone: the table, the routing rules and the programs on
// the slot's cgroup each keep everything from the attacker without the others;
// table and programs keep the host's own services from the agent, too.
func TestI1EachLockHoldsAlone(t *testing.T) {
	noRules := [][]string{{"ip", "rule", "del", "pref", "1"}, {"ip", "-6", "rule", "del", "pref", "1"}}
	noTable := [][]string{{"nft", "flush", "ruleset"}}
	for name, c := range map[string]struct {
		remove   [][]string
		programs bool
		host     bool // keeps the host's services from the agent
	}{
		"table":         {noRules, false, true},
		"routing rules": {noTable, false, false},
		"programs":      {slices.Concat(noRules, noTable), true, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.attackerListens(80)
			h.proxy(1)
			group := h.slot(1)
			f := h.firewall(group) // nobody watches
			if !c.programs {
				f.WithoutPrograms()
			}
			if err := f.Add(netplan.UIDSlot{Slot: 1, UID: uidA}); err != nil {
				t.Fatal(err)
			}
			if gap := f.State().Gap; gap != "" {
				t.Fatalf("the kernel takes no programs: %s", gap)
			}
			for _, c := range c.remove {
				command(t, h.ns, c[0], c[1:]...)
			}
			service := startAgent(t, h.ns, 0, "")
			service.do("listen s 127.0.0.1:8000")
			a := startAgent(t, h.ns, uidA, group)
			if c.programs {
				a.do("patience 100") // they drop in silence
				service.do("patience 100")
			}
			for _, to := range []string{attacker4 + ":80", "[" + attacker6 + "]:80", "198.51.100.9:80"} {
				if got := a.do("tcp x %s", to); !strings.HasPrefix(got, "ok error") {
					t.Errorf("tcp to %s: %s", to, got)
				}
				if got := a.do("udp %s", to); !strings.HasPrefix(got, "ok error") {
					t.Errorf("udp to %s: %s", to, got)
				}
			}
			h.nothingArrived()
			if got := a.do("tcp x 127.0.0.1:8000"); (got == "ok") == c.host {
				t.Errorf("to the host's service: %s", got)
			}
			a.do("tcp p %s", netplan.UIDProxy(1))
			a.do("say p hello")
			if got := a.do("hear p"); got != "ok proxy 1" {
				t.Errorf("from the proxy: %s", got)
			}
			if !c.host {
				return
			}
			// Nobody reaches the agent's port, either.
			a.do("listen l 127.0.0.1:9000")
			if got := service.do("tcp x 127.0.0.1:9000"); got == "ok" {
				t.Error("the host reaches the agent's port")
			}
		})
	}
}

// TestI1WhateverIsLostFreezes: every way to weaken the rules is seen; the
// agents are frozen while it lasts, and the plan stands afterwards.
func TestI1WhateverIsLostFreezes(t *testing.T) {
	h := newHost(t)
	h.slot(1)
	var events []string
	f, err := netkern.OpenFirewall(t.Context(), netkern.FirewallConfig{
		Namespace: h.ns, Plan: h.plan, Log: slog.New(slog.DiscardHandler),
		Lost:     func(why string) { events = append(events, "lost: "+why) },
		Standing: func() { events = append(events, "standing") },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Add(netplan.UIDSlot{Slot: 1, UID: uidA}); err != nil {
		t.Fatal(err)
	}
	f.Keep()
	if len(events) != 0 {
		t.Fatalf("an untouched firewall is lost: %v", events)
	}
	whole := command(t, h.ns, "nft", "-s", "list", "ruleset")
	// nft finds cgroups at /sys/fs/cgroup only, so it is given one there.
	element := fmt.Sprintf("unshare --mount sh -c 'mount -t cgroup2 none /sys/fs/cgroup && "+
		"nft add element inet bawn held \\{ %q . 127.0.0.1 . 22 \\}'", h.plan.SlotCgroup(1))
	for _, c := range []struct{ do, why string }{
		{"nft flush ruleset", "the table is gone"},
		{"nft delete table inet bawn", "the table is gone"},
		{"nft flush table inet bawn", "its rules were changed: chain output: 0 rules, not 3, from rule 1 on: "},
		{"nft flush chain inet bawn agents", "its rules were changed"},
		{"nft insert rule inet bawn agents accept", "its rules were changed"},
		{"nft insert rule inet bawn agents ct state established accept", "its rules were changed"},
		{"nft add rule inet bawn denied accept", "its rules were changed: chain denied: there is a rule more, before the end"},
		{"nft add chain inet bawn more", "its chains were changed: there is a chain more"},
		{"nft flush set inet bawn own", "set own: 0 elements are not the 1 that were put in"},
		{element, "set held: 2 elements are not the 1 that were put in"},
		{`nft add table inet bawn \{ flags dormant \; \}`, "the table was put to sleep, or belongs to another process"},
		{"ip rule del pref 1", "the routing rule is gone: rule 1: from all uidrange 1900000000-1900009999 prohibit"},
		{"ip -6 rule del pref 1", "the routing rule is gone: -6 rule 1: from all uidrange 1900000000-1900009999 prohibit"},
		{"ip rule flush", "the routing rule is gone: rule 1: from all uidrange 1900000000-1900009999 prohibit"},
	} {
		events = nil
		command(t, h.ns, "sh", "-c", c.do)
		f.Keep()
		if len(events) != 2 || !strings.HasPrefix(events[0], "lost: "+c.why) || events[1] != "standing" {
			t.Errorf("%s: events %q, not %q", c.do, events, c.why)
		}
		if diff := cmp.Diff(whole, command(t, h.ns, "nft", "-s", "list", "ruleset")); diff != "" {
			t.Errorf("%s: what stands afterwards differs\n%s", c.do, diff)
		}
		events = nil
		f.Keep()
		if len(events) != 0 {
			t.Errorf("%s: lost again: %v", c.do, events)
		}
	}
	// Other programs' tables are none of our business.
	command(t, h.ns, "nft", "add", "table", "inet", "other")
	f.Keep()
	if len(events) != 0 {
		t.Errorf("another table counts as a loss: %v", events)
	}
	command(t, h.ns, "nft", "delete", "table", "inet", "other")
}

// TestI1AgentsStayFrozenUntilTheRulesStand: while they cannot be put back,
// nothing thaws, no slot is added, and each look tries again.
func TestI1AgentsStayFrozenUntilTheRulesStand(t *testing.T) {
	h := newHost(t)
	h.slot(1)
	h.slot(2)
	var events []string
	f, err := netkern.OpenFirewall(t.Context(), netkern.FirewallConfig{
		Namespace: h.ns, Plan: h.plan, Log: slog.New(slog.DiscardHandler),
		Lost:     func(string) { events = append(events, "lost") },
		Standing: func() { events = append(events, "standing") },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Add(netplan.UIDSlot{Slot: 1, UID: uidA}); err != nil {
		t.Fatal(err)
	}
	// Somebody takes the table's name and does not let go.
	command(t, h.ns, "nft", "flush", "ruleset")
	release := h.ownTable()
	f.Keep()
	f.Keep()
	if !cmp.Equal(events, []string{"lost"}) || f.State().Standing || !strings.Contains(f.State().Why, "loading table bawn") {
		t.Errorf("events %v, state %+v", events, f.State())
	}
	if err := f.Add(netplan.UIDSlot{Slot: 2, UID: uidB}); !errors.Is(err, netkern.ErrFirewallLost) {
		t.Errorf("adding a slot: %v", err)
	}
	release()
	f.Keep()
	if !cmp.Equal(events, []string{"lost", "standing"}) || !f.State().Standing {
		t.Errorf("events %v, state %+v", events, f.State())
	}
}

// ownTable makes an empty table of Bawn's name that belongs to another process,
// so that nobody else may change it, until the function given back is called.
func (h *host) ownTable() (release func()) {
	h.t.Helper()
	cmd := exec.Command("nsenter", "--net=/proc/self/fd/3", "nft", "-i")
	cmd.ExtraFiles = []*os.File{h.ns}
	in, err := cmd.StdinPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	fmt.Fprintln(in, "add table inet bawn { flags owner ; }")
	eventually(h.t, "the foreign table", func() bool {
		return strings.Contains(command(h.t, h.ns, "nft", "list", "tables"), "inet bawn")
	})
	return func() {
		in.Close()
		cmd.Wait()
	}
}

// TestKernelTableIsThePlan: what nft reads out of the kernel is the plan's
// text. nft finds cgroups at /sys/fs/cgroup only, so it is given one there.
func TestKernelTableIsThePlan(t *testing.T) {
	h := newHost(t)
	h.slot(1)
	f := h.firewall()
	if err := f.Add(netplan.UIDSlot{Slot: 1, UID: uidA}); err != nil {
		t.Fatal(err)
	}
	got := command(t, h.ns, "unshare", "--mount", "sh", "-c", "mount -t cgroup2 none /sys/fs/cgroup && nft -s list ruleset")
	want := h.plan.With(netplan.UIDSlot{Slot: 1, UID: uidA}).Rules().String()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the kernel's table differs from the plan (-plan +kernel)\n%s", diff)
	}
	rules := command(t, h.ns, "ip", "rule") + command(t, h.ns, "ip", "-6", "rule")
	if strings.Count(rules, "1:\tfrom all uidrange 1900000000-1900009999 prohibit") != 2 {
		t.Errorf("routing rules:\n%s", rules)
	}
}

// TestOpenFirewallTakesApartWhatItMade fails each step in turn.
func TestOpenFirewallTakesApartWhatItMade(t *testing.T) {
	h := newHost(t)
	cfg := netkern.FirewallConfig{Namespace: h.ns, Plan: h.plan, Log: slog.New(slog.DiscardHandler)}
	state := func() string {
		return command(t, h.ns, "nft", "list", "ruleset") + command(t, h.ns, "ip", "rule") + command(t, h.ns, "ip", "-6", "rule")
	}
	before := state()
	var steps []string
	f, err := netkern.OpenFirewallChecked(t.Context(), cfg, func(step string) error {
		steps = append(steps, step)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if got := state(); got != before {
		t.Errorf("Close left:\n%s", got)
	}
	for _, bad := range steps {
		_, err := netkern.OpenFirewallChecked(t.Context(), cfg, func(step string) error {
			if step == bad {
				return errStep
			}
			return nil
		})
		if !errors.Is(err, errStep) || !strings.Contains(err.Error(), bad) {
			t.Errorf("step %s: %v", bad, err)
		}
		if got := state(); got != before {
			t.Errorf("step %s left:\n%s", bad, got)
		}
	}
	missing := cfg
	missing.Plan.Cgroup += "-missing"
	if _, err := netkern.OpenFirewall(t.Context(), missing); err == nil || !strings.Contains(err.Error(), missing.Plan.Cgroup) {
		t.Errorf("without its cgroup: %v", err)
	}
	if got := state(); got != before {
		t.Errorf("a failed load left:\n%s", got)
	}
}

// TestI13OpenReplacesWhatACrashLeft, and nothing else.
func TestI13OpenReplacesWhatACrashLeft(t *testing.T) {
	h := newHost(t)
	h.slot(1)
	command(t, h.ns, "nft", "add", "table", "inet", "neighbour")
	f := h.firewall()
	if err := f.Add(netplan.UIDSlot{Slot: 1, UID: uidA}); err != nil {
		t.Fatal(err)
	}
	empty := h.plan.Rules()
	again := h.firewall() // as after kill -9: the first was never closed
	got := command(t, h.ns, "nft", "-s", "list", "table", "inet", "bawn")
	if strings.Contains(got, fmt.Sprint(uidA)) || strings.Count(got, "chain") != len(empty.Chains) {
		t.Errorf("the old slot is still there:\n%s", got)
	}
	if n := strings.Count(command(t, h.ns, "ip", "rule"), "uidrange"); n != 1 {
		t.Errorf("%d routing rules", n)
	}
	again.Keep()
	if s := again.State(); !s.Standing || s.Losses != 0 {
		t.Errorf("state %+v", s)
	}
	if got := command(t, h.ns, "nft", "list", "tables"); !strings.Contains(got, "neighbour") {
		t.Error("the neighbour's table is gone")
	}
}

func TestASecondInstallationIsRefused(t *testing.T) {
	h := newHost(t)
	h.firewall()
	cfg := netkern.FirewallConfig{Namespace: h.ns, Plan: h.plan, Log: slog.New(slog.DiscardHandler)}
	cfg.Plan.Table = "bawn-0123abcd"
	_, err := netkern.OpenFirewall(t.Context(), cfg)
	if err == nil || !strings.Contains(err.Error(), "table inet bawn belongs to another installation") {
		t.Errorf("opening a second firewall: %v", err)
	}
}

func TestSlotsComeAndGo(t *testing.T) {
	h := newHost(t)
	group := h.slot(1)
	f := h.firewall(group)
	h.proxy(1)
	slot := netplan.UIDSlot{Slot: 1, UID: uidA}
	for range 3 {
		if err := f.Add(slot); err != nil {
			t.Fatal(err)
		}
		if err := f.Add(slot); err == nil {
			t.Error("a slot was added twice")
		}
		a := startAgent(t, h.ns, uidA, group)
		if got := a.do("tcp p %s", netplan.UIDProxy(1)); got != "ok" {
			t.Errorf("to the proxy: %s", got)
		}
		if err := f.Remove(1); err != nil {
			t.Fatal(err)
		}
		if got := a.do("tcp p %s", netplan.UIDProxy(1)); !strings.HasPrefix(got, "ok error") {
			t.Errorf("to the proxy without a slot: %s", got)
		}
		a.end()
		f.Keep()
	}
	if err := f.Remove(1); err != nil {
		t.Errorf("removing a slot that is not there: %v", err)
	}
	if err := f.Add(netplan.UIDSlot{Slot: 1, UID: 1000}); err == nil {
		t.Error("a uid that is no agent's was added")
	}
	if err := f.Add(netplan.UIDSlot{Slot: 7, UID: uidA}); err == nil {
		t.Error("a slot without its cgroup was added")
	}
	if s := f.State(); !s.Standing || s.Losses != 0 {
		t.Errorf("state %+v", s)
	}
}
