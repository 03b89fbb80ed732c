// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netkern

import (
	"fmt"
	"os"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
)

// Same reports how the live table and links of n differ from those of other,
// which was built from the same plan: the kernel's own bytes are compared.
func (n *Namespace) Same(other *Namespace) error {
	mine, err := takeSnapshot(n.file, n.table)
	if err != nil {
		return fmt.Errorf("looking at table %s: %w", n.table.Name, err)
	}
	fresh, err := takeSnapshot(other.file, other.table)
	if err != nil {
		return fmt.Errorf("looking at a fresh table %s: %w", other.table.Name, err)
	}
	if err := mine.same(fresh, other.table); err != nil {
		return fmt.Errorf("table %s: %w", n.table.Name, err)
	}
	return inNamespace(n.file, onlyLoopback)
}

// onlyLoopback reports a link of the calling thread's namespace that leads
// somewhere, even where it is down.
func onlyLoopback() error {
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("listing links: %w", err)
	}
	for _, l := range links {
		// Tunnel devices that the kernel makes in every namespace lead nowhere
		// until somebody sets them up.
		if a := l.Attrs(); a.Name != "lo" && a.Flags&1 != 0 {
			return fmt.Errorf("there is a link %s", a.Name)
		}
	}
	return nil
}

// Check reports how the live rules differ from the plan, and repairs nothing.
func (f *Firewall) Check() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gen = 0 // look, whoever says that nothing has changed
	return f.inspect()
}

// An OtherChain is a base chain of somebody else's table, on a hook that
// packets of this host pass.
type OtherChain struct {
	Family, Table, Name string
	Hook                string // output, input, forward
	Type                string // filter, nat, route
	Priority            int
	Drops               bool     // what no rule of it decides is dropped
	Beside              []string // the table's other chains
}

// String names the chain as nft(8) does.
func (c OtherChain) String() string {
	return fmt.Sprintf("table %s %s chain %s", c.Family, c.Table, c.Name)
}

var hookNames = map[nftables.ChainHook]string{
	*nftables.ChainHookInput: "input", *nftables.ChainHookOutput: "output", *nftables.ChainHookForward: "forward",
}

var familyNames = map[nftables.TableFamily]string{
	nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6", nftables.TableFamilyINet: "inet",
}

// OtherChains lists the base chains of tables that are not Bawn's, in ns; nil
// is the process's own namespace.
func OtherChains(ns *os.File) ([]OtherChain, error) {
	c, err := conn(ns)
	if err != nil {
		return nil, fmt.Errorf("listing chains: %w", err)
	}
	chains, err := c.ListChains()
	if err != nil {
		return nil, fmt.Errorf("listing chains: %w", err)
	}
	beside := map[string][]string{}
	for _, chain := range chains {
		if t := tableKey(chain.Table); chain.Hooknum == nil && len(beside[t]) < maxBeside {
			beside[t] = append(beside[t], chain.Name)
		}
	}
	var list []OtherChain
	for _, chain := range chains {
		if chain.Hooknum == nil || chain.Priority == nil {
			continue
		}
		family, known := familyNames[chain.Table.Family]
		hook, ours := hookNames[*chain.Hooknum], chain.Table.Family == nftables.TableFamilyINet && ours.MatchString(chain.Table.Name)
		if !known || hook == "" || ours {
			continue
		}
		list = append(list, OtherChain{
			Family: family, Table: chain.Table.Name, Name: chain.Name, Hook: hook, Type: string(chain.Type), Priority: int(*chain.Priority),
			Drops:  chain.Policy != nil && *chain.Policy == nftables.ChainPolicyDrop,
			Beside: beside[tableKey(chain.Table)],
		})
	}
	return list, nil
}

// maxBeside bounds the chains of a table that are listed.
const maxBeside = 64

func tableKey(t *nftables.Table) string { return fmt.Sprint(t.Family, " ", t.Name) }
