// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netplan

import (
	"fmt"
	"net/netip"
	"strings"
)

// A Namespace is the network of one agent in the netns placement: nothing but
// a loopback interface, on which every TCP connection ends at Bawn's listeners
// (I1: there is no link to anywhere).
type Namespace struct {
	Addresses []netip.Prefix // on lo
	Routes    []Route
	Listeners []Listener
	Table     Table
	Settings  []Setting // after the table: it brings connection tracking
}

// A Setting is a kernel parameter of the namespace (sysctl(8)). One that this
// kernel does not have, or does not let a namespace have, is left out.
type Setting struct{ Name, Value string }

// String gives the setting in the words of sysctl(8).
func (s Setting) String() string { return s.Name + " = " + s.Value }

// A Route says that everything below Dest is delivered here, from Source.
type Route struct {
	Dest   netip.Prefix
	Source netip.Addr
}

// String gives the route in the words of ip(8).
func (r Route) String() string {
	return fmt.Sprintf("local %s dev lo src %s", r.Dest, r.Source)
}

// A Listener is a socket that Bawn makes inside the namespace.
type Listener struct {
	Arrival Arrival
	Network string // tcp or udp
	Addr    netip.AddrPort
}

// String names the listener.
func (l Listener) String() string { return fmt.Sprintf("%s %s %s", l.Arrival, l.Network, l.Addr) }

// The counters of a namespace.
const (
	CountRedirected = "redirected"   // TCP connections led to the transparent listener
	CountUDP        = "denied_udp"   // rejected: UDP to anywhere but the resolver and the agent itself
	CountICMP       = "denied_icmp"  // rejected: ICMP over IPv4
	CountIPv6       = "denied_ipv6"  // rejected: any IPv6 but the agent's own loopback
	CountOther      = "denied_other" // rejected: anything else
)

// AgentTable is the name of the table inside an agent's namespace.
const AgentTable = "bawn"

// ForAgent gives the plan of an agent's namespace.
func ForAgent() Namespace {
	everywhere := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	at := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(Gateway, port) }
	return Namespace{
		Addresses: []netip.Prefix{
			netip.PrefixFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 8),
			netip.PrefixFrom(Gateway, 32),
			netip.PrefixFrom(Source, 32),
		},
		Routes: []Route{{everywhere, Source}},
		Listeners: []Listener{
			{Explicit, "tcp", at(ProxyPort)},
			{Transparent, "tcp", at(TransparentPort)},
			{DNS, "udp", at(DNSPort)},
			{DNS, "tcp", at(DNSPort)},
		},
		Table:    agentTable(),
		Settings: conntrackSettings(),
	}
}

// conntrackSettings bound the kernel memory that an agent can fill with
// connections that it opens and closes: their entries are charged to no cgroup,
// and would be kept for two minutes. On a loopback interface nothing arrives
// late.
func conntrackSettings() []Setting {
	const prefix = "net.netfilter.nf_conntrack_"
	return []Setting{
		{prefix + "tcp_timeout_time_wait", "5"},
		{prefix + "tcp_timeout_syn_sent", "10"},
		{prefix + "tcp_timeout_last_ack", "10"},
		{prefix + "tcp_timeout_fin_wait", "10"},
		{prefix + "max", "65536"},
	}
}

func agentTable() Table {
	loopback := To(netip.PrefixFrom(netip.AddrFrom4([4]byte{127, 0, 0, 0}), 8))
	loopback6 := To(netip.PrefixFrom(netip.IPv6Loopback(), 128))
	gateway := To(netip.PrefixFrom(Gateway, 32))
	source := To(netip.PrefixFrom(Source, 32)) // the errors of a reject go there
	return Table{
		Name:     AgentTable,
		Counters: []string{CountRedirected, CountUDP, CountICMP, CountIPv6, CountOther},
		Chains: []Chain{{
			Name: "reroute", NAT: true, Hook: HookOutput, Priority: -100,
			Rules: []Rule{
				{loopback, Accept{}},
				{gateway, Accept{}},
				{source, Accept{}},
				{Family(IPv4), TCP, Count(CountRedirected), DNAT(netip.AddrPortFrom(Gateway, TransparentPort))},
			},
		}, {
			Name: "output", Hook: HookOutput, Priority: 0, Closed: true,
			Rules: []Rule{
				{loopback, Accept{}},
				{gateway, Accept{}},
				{source, Accept{}},
				{loopback6, Accept{}},
				{IPv6, Count(CountIPv6), Reject{}},
				{UDP, Count(CountUDP), Reject{}},
				{ICMP, Count(CountICMP), Reject{}},
				{Count(CountOther), Reject{}},
			},
		}},
	}
}

// String gives the whole plan, a line each for addresses, routes and
// listeners, then the table, then the settings.
func (n Namespace) String() string {
	var b strings.Builder
	for _, a := range n.Addresses {
		fmt.Fprintf(&b, "address %s dev lo\n", a)
	}
	for _, r := range n.Routes {
		fmt.Fprintf(&b, "route %s\n", r)
	}
	for _, l := range n.Listeners {
		fmt.Fprintf(&b, "listen %s\n", l)
	}
	b.WriteString(n.Table.String())
	for _, s := range n.Settings {
		fmt.Fprintln(&b, s)
	}
	return b.String()
}
