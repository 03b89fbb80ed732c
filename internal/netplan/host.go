// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netplan

import (
	"fmt"
	"slices"
	"strings"
)

// A Host is what the uid placement needs in the host's own network: a firewall
// table, and a second lock in the routing policy that stands when somebody
// flushes the first.
//
// The rules that the table keeps:
//
//   - What an agent sends goes to its own proxy or nowhere. A packet counts as
//     an agent's by the uid of its socket or by the cgroup in which the socket
//     was made. Both must be right for a packet that has an owner. A socket
//     that was closed with data queued has no owner any more; its cgroup must
//     be right.
//   - What reaches an agent's socket comes from its own proxy, or is an error.
//   - Nobody else connects to an agent's proxy.
//   - Bawn's own processes reach what they need; see [Processes].
//
// Nothing is accepted because it belongs to a connection that was accepted
// before: each packet is judged.
type Host struct {
	Table     string // name of the table
	Cgroup    string // name of Bawn's own group at the root of the cgroup hierarchy
	Slots     []UIDSlot
	Processes Processes
}

// A UIDSlot is one slot of the uid placement.
type UIDSlot struct {
	Slot int
	UID  uint32
}

// The counters of the host's table.
const (
	CountToProxy   = "to_proxy"    // accepted: agents to their own proxies
	CountDenied4   = "denied_ipv4" // rejected: agents to anywhere else
	CountDenied6   = "denied_ipv6"
	CountInbound   = "inbound"   // rejected: anybody to an agent's socket
	CountStrangers = "strangers" // rejected: others to an agent's proxy
)

// Priorities of the host's chains: after the host's own filters, and after
// anything that changes addresses on output (-100).
const hostPriority = 10

// PolicyPriority is where the second lock stands among the routing rules:
// after the table of local addresses (0), through which agents reach their
// proxies, and before everything else, such as the rules of a VPN.
const PolicyPriority = 1

// A PolicyRule refuses every route to a range of uids, for one family.
type PolicyRule struct {
	Family      Family
	Priority    int
	First, Last uint32
}

// String gives the rule in the words of ip(8).
func (r PolicyRule) String() string {
	v := ""
	if r.Family == IPv6 {
		v = "-6 "
	}
	return fmt.Sprintf("%srule %d: from all uidrange %d-%d prohibit", v, r.Priority, r.First, r.Last)
}

// SlotCgroup is the path of a slot's cgroup below the root of the hierarchy.
func (h Host) SlotCgroup(slot int) string { return fmt.Sprintf("%s/slot-%d", h.Cgroup, slot) }

// Policy is the second lock.
func (h Host) Policy() []PolicyRule {
	return []PolicyRule{
		{IPv4, PolicyPriority, FirstUID, LastUID},
		{IPv6, PolicyPriority, FirstUID, LastUID},
	}
}

// The names of the sets.
const (
	SetOwn  = "own"  // owner, cgroup and proxy of each slot
	SetHeld = "held" // the same without the owner
)

// With gives the plan with one more slot, without what the same slot was.
func (h Host) With(s UIDSlot) Host {
	h = h.Without(s.Slot)
	h.Slots = append(h.Slots, s)
	slices.SortFunc(h.Slots, func(a, b UIDSlot) int { return a.Slot - b.Slot })
	return h
}

// Without gives the plan without the slot.
func (h Host) Without(slot int) Host {
	h.Slots = slices.DeleteFunc(slices.Clone(h.Slots), func(s UIDSlot) bool { return s.Slot == slot })
	return h
}

// Element is what the sets of the table hold for a slot.
func (h Host) Element(s UIDSlot) Element {
	proxy := UIDProxy(s.Slot)
	return Element{UID: s.UID, Cgroup: h.SlotCgroup(s.Slot), Addr: proxy.Addr(), Port: proxy.Port()}
}

// Rules gives the table.
func (h Host) Rules() Table {
	elements := make([]Element, len(h.Slots))
	for i, s := range h.Slots {
		elements[i] = h.Element(s)
	}
	return Table{
		Name:     h.Table,
		Counters: append([]string{CountToProxy, CountDenied4, CountDenied6, CountInbound, CountStrangers}, h.Processes.counters()...),
		Sets: []Set{
			{SetOwn, []Field{FieldUID, FieldCgroup, FieldTo, FieldToPort}, elements},
			{SetHeld, []Field{FieldCgroup, FieldTo, FieldToPort}, elements},
		},
		Chains: append(h.chains(), h.Processes.chains()...),
	}
}

func (h Host) chains() []Chain {
	bawn := InCgroup{h.Cgroup}
	from := In{SetHeld, []Field{FieldCgroup, FieldFrom, FieldFromPort}}
	return []Chain{{
		Name: "output", Hook: HookOutput, Priority: hostPriority,
		Rules: append([]Rule{
			{bawn, Goto("agents")},
			{Owner{FirstUID, LastUID}, Goto("agents")}, // out of its cgroup
			// Packets without an owner are let pass: the last ones of an agent's
			// connection that is closed already have neither owner nor cgroup.
			// None of them can open a connection.
			{To(UIDProxies), ToPort(ProxyPort), Owned, Count(CountStrangers), Reset{}},
		}, h.Processes.entries()...),
	}, {
		Name: "input", Hook: HookInput, Priority: hostPriority,
		Rules: []Rule{
			{OnLoopback(false), To(UIDProxies), ToPort(ProxyPort), Count(CountStrangers), Drop{}},
			{bawn, Goto("inbound")},
		},
	}, {
		Name: "agents",
		Rules: []Rule{
			{In{SetOwn, []Field{FieldUID, FieldCgroup, FieldTo, FieldToPort}}, Count(CountToProxy), Accept{}},
			{Owned, Goto("denied")},
			{In{SetHeld, []Field{FieldCgroup, FieldTo, FieldToPort}}, Count(CountToProxy), Accept{}},
			{Goto("denied")},
		},
	}, {
		Name: "denied",
		Rules: []Rule{
			{IPv6, TCP, Count(CountDenied6), Reset{}},
			{IPv6, Count(CountDenied6), Reject{}},
			{TCP, Count(CountDenied4), Reset{}},
			{Count(CountDenied4), Reject{}},
		},
	}, {
		Name: "inbound",
		Rules: []Rule{
			{from, Accept{}},
			// Errors, those of our own rejections above all.
			{ICMP, Accept{}},
			{ICMPv6, Accept{}},
			{Resetting{}, Accept{}},
			// The answers are those of a port on which nobody listens: somebody who
			// asks from outside must not read which ports an agent has opened.
			{TCP, Count(CountInbound), Reset{}},
			{Count(CountInbound), Unreachable{}},
		},
	}}
}

// String gives the whole plan: the routing rules, then the table.
func (h Host) String() string {
	var b strings.Builder
	for _, r := range h.Policy() {
		fmt.Fprintln(&b, r)
	}
	b.WriteString(h.Rules().String())
	return b.String()
}
