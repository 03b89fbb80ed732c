// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netkern_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"bawn/internal/doctor"
	"bawn/internal/netkern"
)

// breaks are checks of doctor that rules in the live tables turn red: each has
// what is done by nft(8).
var breaks = map[doctor.Name][]string{
	doctor.Foreign: {
		"add table ip late; add chain ip late o { type nat hook output priority 50 ; }",
		"add table inet strict; add chain inet strict o { type filter hook output priority 0 ; policy drop ; }",
	},
	doctor.Forward:      {"add table ip filter; add chain ip filter FORWARD { type filter hook forward priority 0 ; policy drop ; }; add chain ip filter DOCKER-USER"},
	doctor.RulesPlanned: nil, // every rule, one after the other: TestI12EachRuleThatIsGoneIsMissed
}

func remove(t *testing.T, ns *os.File, r liveRule) {
	t.Helper()
	command(t, ns, "nft", "delete", "rule", "inet", "bawn", r.chain, "handle", r.handle)
}

func ofOthers(t *testing.T, ns *os.File) (states map[doctor.Name]string) {
	t.Helper()
	chains, err := netkern.OtherChains(ns)
	if err != nil {
		t.Fatal(err)
	}
	var list []doctor.OtherChain
	for _, c := range chains {
		list = append(list, doctor.OtherChain(c))
	}
	states = map[doctor.Name]string{}
	for _, f := range doctor.OfOthers(list) {
		states[f.Name] = string(f.State) + " " + f.Seen
	}
	return states
}

func TestI12TablesOfOthersAreSeen(t *testing.T) {
	for name, scripts := range breaks {
		for _, script := range scripts {
			ns := fresh(t)
			// What accepts, or drops elsewhere, changes nothing; and Bawn's own table is not another's.
			for _, harmless := range []string{
				"add table inet fine; add chain inet fine o { type filter hook output priority -200 ; policy accept ; }",
				"add table inet bawn; add chain inet bawn o { type filter hook output priority 0 ; policy drop ; }",
				"add table ip nat; add chain ip nat OUTPUT { type nat hook output priority -100 ; }",
			} {
				command(t, ns, "nft", harmless)
			}
			before := ofOthers(t, ns)
			for check, state := range before {
				if state != string(doctor.OK)+" " {
					t.Errorf("%s: %s", check, state)
				}
			}
			command(t, ns, "nft", script)
			for check, state := range ofOthers(t, ns) {
				if want := check == name; want != strings.HasPrefix(state, string(doctor.Warn)) {
					t.Errorf("%s: %s is %q", script, check, state)
				}
			}
		}
	}
}

// TestI12EachRuleThatIsGoneIsMissed by the check firewall_rules: of an agent's
// namespace, and of the host's table.
func TestI12EachRuleThatIsGoneIsMissed(t *testing.T) {
	reference := build(t)
	n := build(t)
	if err := n.Same(reference); err != nil {
		t.Fatal(err)
	}
	for _, rule := range liveRules(t, n.File()) {
		for how, want := range map[string]string{"delete": "is gone", "replace": "is another"} {
			n := build(t)
			again := liveRules(t, n.File())
			r := again[slices.IndexFunc(again, func(r liveRule) bool { return r.text == rule.text && r.chain == rule.chain })]
			if how == "delete" {
				remove(t, n.File(), r)
			} else {
				command(t, n.File(), "nft", "replace", "rule", "inet", "bawn", r.chain, "handle", r.handle, otherVerdict(r.text))
			}
			named := regexp.MustCompile("its rules were changed: chain " + r.chain + `: rule \d+ ` + want + ": ")
			if err := n.Same(reference); err == nil || !named.MatchString(err.Error()) {
				t.Errorf("%s %q: %v", how, rule.text, err)
			}
		}
	}
}

func TestI12WhatIsDoneToATableIsSeen(t *testing.T) {
	reference := build(t)
	for script, want := range map[string]string{
		"delete table inet bawn":                                          "the table is gone",
		"add rule inet bawn output accept":                                "its rules were changed",
		"insert rule inet bawn output accept":                             "its rules were changed",
		"flush chain inet bawn output":                                    "its rules were changed",
		"chain inet bawn output { policy accept ; }":                      "its chains were changed",
		"add chain inet bawn x { type filter hook output priority -1 ; }": "its chains were changed",
		"add table inet bawn { flags dormant ; }":                         "put to sleep",
	} {
		n := build(t)
		command(t, n.File(), "nft", script)
		if err := n.Same(reference); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", script, err, want)
		}
	}
	n := build(t)
	command(t, n.File(), "ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1")
	command(t, n.File(), "ip", "link", "set", "v0", "up")
	if err := n.Same(reference); err == nil || !strings.Contains(err.Error(), "there is a link v0") {
		t.Errorf("with a link: %v", err)
	}
}

// TestI12TheHostsTableIsComparedWithItsPlan rule for rule, and is not repaired by
// it.
func TestI12TheHostsTableIsComparedWithItsPlan(t *testing.T) {
	h := newHost(t)
	f := h.firewall()
	if err := f.Check(); err != nil {
		t.Fatal(err)
	}
	rules := liveRules(t, h.ns)
	if len(rules) < 10 {
		t.Fatalf("%d rules", len(rules))
	}
	remove(t, h.ns, rules[0])
	if err := f.Check(); err == nil {
		t.Error("a rule is gone, and Check says nothing")
	}
	if n := len(liveRules(t, h.ns)); n != len(rules)-1 {
		t.Errorf("%d rules: Check has repaired something", n)
	}
}
