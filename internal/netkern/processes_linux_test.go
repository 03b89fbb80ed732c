// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netkern_test

import (
	"net/netip"
	"strings"
	"testing"

	"bawn/internal/netplan"
)

// TestI6TheKernelRefusesWhatTheProxyMustNotDial: a proxy that forgot to vet an
// address would still not reach it, and admin reaches nothing at all.
func TestI6TheKernelRefusesWhatTheProxyMustNotDial(t *testing.T) {
	const adminUID, proxyUID = 4701, 4702
	h := newHost(t)
	h.attackerListens(80)
	h.attackerListens(53)
	h.plan.Processes = netplan.Processes{Admin: adminUID, Proxy: proxyUID}
	f := h.firewall()
	admin, proxy := startAgent(t, h.ns, adminUID, ""), startAgent(t, h.ns, proxyUID, "")
	public := "93.184.216.34:80"
	try := func(who *agent, name, to string, open bool) {
		t.Helper()
		tcp := who.do("tcp x %s", to)
		refused := strings.Contains(tcp, "ECONNREFUSED") || strings.Contains(tcp, "EACCES") || strings.Contains(tcp, "EPERM")
		if refused == open {
			t.Errorf("%s to %s: %s, want open %v", name, to, tcp, open)
		}
	}
	special := []string{
		"169.254.169.254:80", "10.1.2.3:80", "172.31.0.1:80", "192.168.7.7:80", "100.64.1.1:80", "127.0.0.1:80",
		"192.0.2.1:80", "198.18.0.1:80", "240.0.0.1:80", "[fd00::1]:80", "[2002:a9fe:a9fe::1]:80",
	}
	for _, to := range special {
		try(proxy, "the proxy", to, false)
		try(admin, "admin", to, false)
	}
	try(admin, "admin", public, false)
	for _, to := range []string{public, "172.32.0.1:80", "11.0.0.1:80"} {
		try(proxy, "the proxy", to, true)
	}
	if got := proxy.do("udp %s", attacker4+":53"); !strings.HasPrefix(got, "ok error") {
		t.Errorf("the proxy's UDP to what is no resolver of its: %s", got)
	}
	if err := f.Bound([]netip.AddrPort{netip.MustParseAddrPort(attacker4 + ":53")}, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/15")},
		[]netplan.Service{{Prefix: netip.MustParsePrefix("10.9.0.0/30"), Port: 80}}); err != nil {
		t.Fatal(err)
	}
	if got := proxy.do("udp %s", attacker4+":53"); got != "ok" && !strings.Contains(got, "ECONNREFUSED") {
		t.Errorf("the proxy's UDP to its resolver: %s", got)
	}
	try(proxy, "the proxy", "10.1.2.3:80", true)
	try(proxy, "the proxy", "10.2.2.3:80", false)
	try(proxy, "the proxy", "10.9.0.1:80", true)
	try(proxy, "the proxy", "10.9.0.1:53", false)
	try(proxy, "the proxy", "10.9.0.5:80", false)
	try(admin, "admin", "10.9.0.1:80", false)
	try(admin, "admin", "10.1.2.3:80", false)
	counters, err := f.Counters()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{netplan.CountAdmin, netplan.CountProxy} {
		if counters[name].Packets == 0 {
			t.Errorf("counter %s has not moved: %v", name, counters)
		}
	}
}
