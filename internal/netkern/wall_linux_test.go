// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netkern_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"bawn/internal/netkern"
	"bawn/internal/netplan"
)

// A wall is the host's table as netd loads it, with two agents in it and Bawn's
// own processes bounded. Nobody watches it but Keep.
type wall struct {
	h *host
	f *netkern.Firewall
}

func newWall(t *testing.T) *wall {
	t.Helper()
	h := newHost(t)
	h.plan.Processes = netplan.Processes{
		Admin: 4243, Proxy: 4244,
		Resolvers: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.53:53")},
		Private:   []netip.Prefix{netip.MustParsePrefix("10.20.0.0/14")},
		Parents:   []netplan.Service{{Prefix: netip.MustParsePrefix("10.9.0.1/32"), Port: 3128}},
	}
	h.slot(1)
	h.slot(2)
	w := &wall{h: h, f: h.firewall()}
	for slot, uid := range map[int]uint32{1: uidA, 2: uidB} {
		if err := w.f.Add(netplan.UIDSlot{Slot: slot, UID: uid}); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// missed breaks the table by a script of nft, and expects it to be seen.
func (w *wall) missed(t *testing.T, what, script, want string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(script, w.h.plan.Cgroup) {
		w.nft(t, "-f", path)
	} else {
		command(t, w.h.ns, "nft", "-f", path)
	}
	w.seen(t, what, want)
}

// seen expects Check to name what was done, has the watcher put it back, and
// expects Check to find all well.
func (w *wall) seen(t *testing.T, what, want string) {
	t.Helper()
	if err := w.f.Check(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: Check says %v, want %q", what, err, want)
	}
	w.f.Keep()
	if err := w.f.Check(); err != nil {
		t.Errorf("%s, and put back: %v", what, err)
	}
}

func (w *wall) list(t *testing.T) string {
	t.Helper()
	return w.nft(t, "list", "table", "inet", "bawn")
}

// nft runs nft(8), which finds cgroups at /sys/fs/cgroup only, so it is given
// them there.
func (w *wall) nft(t *testing.T, args ...string) string {
	t.Helper()
	return command(t, w.h.ns, "unshare", append([]string{"--mount", "sh", "-c", `mount -t cgroup2 none /sys/fs/cgroup && exec nft "$@"`, "nft"}, args...)...)
}

// TestI12EachRuleOfTheHostThatIsGoneIsMissed by the check firewall_rules, and so
// is each that has another verdict: every rule of every chain is taken away,
// and given the verdict accept, one after the other. It is named by its chain,
// its number and its words in the plan, and all is well once it is back.
func TestI12EachRuleOfTheHostThatIsGoneIsMissed(t *testing.T) {
	w := newWall(t)
	rules := rulesIn(w.nft(t, "-a", "list", "table", "inet", "bawn"))
	plan := map[string]netplan.Chain{}
	planned := 0
	for _, c := range w.h.plan.Rules().Chains {
		plan[c.Name] = c
		planned += len(c.Rules)
	}
	if len(rules) != planned || planned < 50 {
		t.Fatalf("%d rules live, %d planned", len(rules), planned)
	}
	number := map[string]int{}
	for _, r := range rules {
		at := number[r.chain]
		number[r.chain]++
		text := plan[r.chain].Rules[at].String()
		w.missed(t, "without "+r.text, fmt.Sprintf("delete rule inet bawn %s handle %s", r.chain, r.handle),
			fmt.Sprintf("its rules were changed: chain %s: rule %d is gone: %s", r.chain, at+1, text))
		w.missed(t, "another verdict of "+r.text, fmt.Sprintf("replace rule inet bawn %s handle %s %s", r.chain, r.handle, otherVerdict(r.text)),
			fmt.Sprintf("its rules were changed: chain %s: rule %d is another: %s", r.chain, at+1, text))
	}
	if n := w.f.State().Losses; n != 2*len(rules) {
		t.Errorf("%d losses of %d", n, 2*len(rules))
	}
}

var verdictForm = regexp.MustCompile(`(accept|drop|goto \w+|dnat ip to .*|reject( with .*)?)$`)

// otherVerdict gives a rule with the verdict accept, or drop if it has that.
func otherVerdict(rule string) string {
	if strings.HasSuffix(rule, "accept") {
		return verdictForm.ReplaceAllString(rule, "drop")
	}
	return verdictForm.ReplaceAllString(rule, "accept")
}

// TestI12EachRuleOfTheHostCounts: a rule that does not count any more is another.
// A counter itself cannot be taken away while a rule counts by it; the kernel
// refuses.
func TestI12EachRuleOfTheHostCounts(t *testing.T) {
	w := newWall(t)
	form := regexp.MustCompile(`counter name "(\w+)" `)
	left := slices.Clone(w.h.plan.Rules().Counters)
	for _, r := range rulesIn(w.nft(t, "-a", "list", "table", "inet", "bawn")) {
		m := form.FindStringSubmatch(r.text)
		if m == nil || !slices.Contains(left, m[1]) {
			continue
		}
		left = slices.DeleteFunc(left, func(c string) bool { return c == m[1] })
		w.missed(t, "uncounted "+r.text, fmt.Sprintf("replace rule inet bawn %s handle %s %s", r.chain, r.handle, form.ReplaceAllString(r.text, "")),
			"its rules were changed: chain "+r.chain)
		if out := command(t, w.h.ns, "sh", "-c", "! nft delete counter inet bawn "+m[1]+" 2>&1"); !strings.Contains(out, "busy") {
			t.Errorf("counter %s: %s", m[1], out)
		}
	}
	if len(left) > 0 {
		t.Errorf("no rule counts by %v", left)
	}
}

// TestI12EachElementOfTheHostThatIsGoneIsMissed, and each that matches more than
// its key: a range that begins with it, or the rest of all.
func TestI12EachElementOfTheHostThatIsGoneIsMissed(t *testing.T) {
	w := newWall(t)
	for _, set := range w.h.plan.Rules().Sets {
		for slot, uid := range map[int]uint32{1: uidA, 2: uidB} {
			e := w.h.plan.Element(netplan.UIDSlot{Slot: slot, UID: uid}).Text(set.Fields)
			w.missed(t, "without "+e, fmt.Sprintf("delete element inet bawn %s { %s }", set.Name, e),
				fmt.Sprintf("set %s: 1 elements are not the 2 that were put in, without %s", set.Name, e))
			more := strings.Replace(e, fmt.Sprint(netplan.ProxyPort), "22", 1)
			w.missed(t, "with "+more, fmt.Sprintf("add element inet bawn %s { %s }", set.Name, more), "set "+set.Name+": 3 elements")
			w.missed(t, more+" in its place", fmt.Sprintf("delete element inet bawn %s { %s }\nadd element inet bawn %s { %s }", set.Name, e, set.Name, more),
				fmt.Sprintf("set %s: 2 elements are not the 2 that were put in, without %s", set.Name, e))
		}
		w.missed(t, "all in "+set.Name, fmt.Sprintf("add element inet bawn %s { * }", set.Name), "set "+set.Name+": 3 elements")
		// The same keys, the same rules to the byte, and yet every port from the proxy's on.
		if err := w.f.LoadWide(set.Name); err != nil {
			t.Fatal(err)
		}
		w.seen(t, "ranges in "+set.Name, "its sets were changed: set "+set.Name)
	}
}

// TestI12EachChainOfTheHostThatIsAnotherIsMissed: its hook, its priority, its
// policy, one more chain, one that is gone; the table asleep or gone;
// the second lock.
func TestI12EachChainOfTheHostThatIsAnotherIsMissed(t *testing.T) {
	w := newWall(t)
	whole := w.list(t)
	w.missed(t, "nothing but new handles, and a rule", "delete table inet bawn\n"+whole+"insert rule inet bawn output accept",
		"its rules were changed: chain output: there is a rule more, before socket cgroupv2")
	base := 0
	for _, c := range w.h.plan.Rules().Chains {
		named := "its chains were changed: chain " + c.Name
		w.missed(t, "a rule in front of "+c.Name, "insert rule inet bawn "+c.Name+" accept", "chain "+c.Name+": there is a rule more, before "+c.Rules[0].String())
		w.missed(t, "nothing in "+c.Name, "flush chain inet bawn "+c.Name, "chain "+c.Name+": 0 rules, not ")
		if c.Hook == netplan.HookNone {
			continue // what is gone to cannot be deleted; see each goto
		}
		base++
		w.missed(t, "a closed "+c.Name, "chain inet bawn "+c.Name+" { policy drop ; }", named)
		w.missed(t, "no "+c.Name, "flush chain inet bawn "+c.Name+"\ndelete chain inet bawn "+c.Name, named+" is gone")
		head := fmt.Sprintf("type filter hook %s priority filter + 10;", c.Hook)
		if !strings.Contains(whole, head) {
			t.Fatalf("no %q in\n%s", head, whole)
		}
		heads := []string{
			fmt.Sprintf("type filter hook %s priority filter + 11;", c.Hook), fmt.Sprintf("type filter hook %s priority -300;", c.Hook),
			fmt.Sprintf("type filter hook %s priority filter + 10;", map[netplan.Hook]netplan.Hook{netplan.HookInput: netplan.HookOutput, netplan.HookOutput: netplan.HookInput}[c.Hook]),
		}
		for _, other := range heads {
			w.missed(t, c.Name+" as "+other, "delete table inet bawn\n"+strings.Replace(whole, head, other, 1), named)
		}
	}
	if base != 2 {
		t.Errorf("%d chains on hooks", base)
	}
	w.missed(t, "one more chain", "add chain inet bawn x { type filter hook output priority -1 ; }", "there is a chain x")
	w.missed(t, "asleep", "add table inet bawn { flags dormant ; }", "put to sleep")
	w.missed(t, "gone", "delete table inet bawn", "the table is gone")
	for _, r := range w.h.plan.Policy() {
		family := "-4"
		if r.Family == netplan.IPv6 {
			family = "-6"
		}
		command(t, w.h.ns, "ip", family, "rule", "del", "pref", fmt.Sprint(r.Priority))
		w.missed(t, r.String(), "", "the routing rule is gone: "+r.String())
	}
}
