// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netkern

import (
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"bawn/internal/netplan"
)

// For tests: the parts that Build is made of.
var (
	BuildChecked = build
	InNamespace  = inNamespace
	OnThread     = onThread
)

// For tests: the parts that OpenFirewall is made of, and one look.
var (
	OpenFirewallChecked = openFirewall
	FindCgroup2         = findCgroup2
	CheckPolicy         = checkPolicy
)

// Keep looks once, as Run does.
func (f *Firewall) Keep() { f.keep() }

// WithoutPrograms has Add leave the cgroups of slots unlocked, so that a test
// sees what the table does alone.
func (f *Firewall) WithoutPrograms() { f.attach = func(string, netip.AddrPort) error { return nil } }

// LoadWide puts in the plan's own table, but for one set, which holds ranges:
// each begins with the key of the plan, and ends with the highest port.
func (f *Firewall) LoadWide(name string) error {
	c, err := conn(f.cfg.Namespace)
	if err != nil {
		return err
	}
	plan := f.plan.Rules()
	table := &nftables.Table{Family: nftables.TableFamilyINet, Name: plan.Name}
	c.AddTable(table)
	c.DelTable(table)
	c.AddTable(table)
	for _, name := range plan.Counters {
		c.AddObj(&nftables.NamedObj{Table: table, Name: name, Type: nftables.ObjTypeCounter, Obj: &expr.Counter{}})
	}
	wide := func(s netplan.Set) bool { return s.Name == name }
	sets := map[string]*nftables.Set{}
	for i, s := range plan.Sets {
		set, err := describeSet(table, s)
		if err != nil {
			return err
		}
		elements, err := setElements(s, f.ids)
		if err != nil {
			return err
		}
		set.ID = uint32(i + 1)
		if wide(s) {
			set.Interval, set.Concatenation = true, true
			for i, e := range elements {
				end := append([]byte(nil), e.Key...)
				end[len(end)-4], end[len(end)-3] = 0xff, 0xff // the port comes last, padded to four octets
				elements[i].KeyEnd = end
			}
		}
		sets[s.Name] = set
		if err := c.AddSet(set, elements); err != nil {
			return err
		}
	}
	if err := addChains(c, table, plan.Chains, &translator{ids: f.ids, sets: sets}); err != nil {
		return err
	}
	return c.Flush()
}
