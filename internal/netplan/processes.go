// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netplan

import (
	"net/netip"

	"bawn/internal/addr"
)

// Processes are the accounts of Bawn's own processes, which the table bounds as
// well: what the proxy vets, the kernel refuses once more, and admin reaches
// nothing. A uid of 0 is not bounded.
type Processes struct {
	Admin uint32
	Proxy uint32
	// Resolvers are the name servers that the proxy asks.
	Resolvers []netip.AddrPort
	// Private are the special-purpose ranges that some rule of the policy
	// names, so that the proxy may dial into them.
	Private []netip.Prefix
	// Parents are where the parent proxy can be, if there is one.
	Parents []Service
}

// A Service is a TCP port at one or more addresses.
type Service struct {
	Prefix netip.Prefix `json:"prefix"`
	Port   uint16       `json:"port"`
}

// The counters of the processes' chains.
const (
	CountAdmin = "denied_admin" // rejected: admin to anywhere
	CountProxy = "denied_proxy" // rejected: the proxy to where nothing may send it
)

// counters lists what rules counts with.
func (p Processes) counters() []string { return []string{CountAdmin, CountProxy} }

// entries lead the processes' packets into their chains.
func (p Processes) entries() []Rule {
	var rules []Rule
	if p.Admin != 0 {
		rules = append(rules, Rule{Owner{p.Admin, p.Admin}, Goto("admin")})
	}
	if p.Proxy != 0 {
		rules = append(rules, Rule{Owner{p.Proxy, p.Proxy}, Goto("proxy")})
	}
	return rules
}

// chains are those that entries lead to.
func (p Processes) chains() []Chain {
	var chains []Chain
	if p.Admin != 0 {
		chains = append(chains, Chain{Name: "admin", Rules: refuse(CountAdmin)})
	}
	if p.Proxy != 0 {
		chains = append(chains, Chain{Name: "proxy", Rules: p.proxy()})
	}
	return chains
}

// refuse rejects everything.
func refuse(counter string) []Rule {
	return []Rule{{TCP, Count(counter), Reset{}}, {Count(counter), Reject{}}}
}

// proxy lets the proxy answer its agents, ask its resolvers, and connect to
// its parent, to public addresses and to what policy names. The registry's rows come the most
// specific first, as they do where the proxy itself vets.
func (p Processes) proxy() []Rule {
	rules := []Rule{{From(UIDProxies), TCP, Accept{}}}
	for _, r := range p.Resolvers {
		to := To(netip.PrefixFrom(r.Addr(), r.Addr().BitLen()))
		rules = append(rules, Rule{to, UDP, Accept{}}, Rule{to, ToPort(r.Port()), Accept{}})
	}
	for _, s := range p.Parents {
		rules = append(rules, Rule{To(s.Prefix), ToPort(s.Port), Accept{}})
	}
	for _, private := range p.Private {
		rules = append(rules, Rule{To(private), TCP, Accept{}})
	}
	for b := range addr.Blocks() {
		if b.Public {
			rules = append(rules, Rule{To(b.Prefix), TCP, Accept{}})
		} else {
			rules = append(rules, Rule{To(b.Prefix), TCP, Count(CountProxy), Reset{}})
		}
	}
	return append(append(rules, Rule{TCP, Accept{}}), Rule{Count(CountProxy), Reject{}})
}
