// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netkern

import (
	"fmt"
	"os"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	nfnetlink "github.com/mdlayher/netlink"

	"bawn/internal/netplan"
)

// A Counter is what a named counter of a table has met.
type Counter struct{ Packets, Bytes uint64 }

// How long the kernel may take to answer, and how much it may answer at once.
// Without the first a lost acknowledgement would block for ever, without the
// second a large batch is answered with ENOBUFS.
const (
	netlinkPatience = 5 * time.Second
	netlinkBuffer   = 4 << 20 // bytes
)

// chunk is how many set elements go into one message, whose size is bounded.
const chunk = 500

// conn opens a connection to the firewall of ns; nil is the process's own
// namespace. One connection serves one batch: after an error the answers that
// are still under way would be taken for those of the next batch.
func conn(ns *os.File) (*nftables.Conn, error) {
	options := []nftables.ConnOption{nftables.WithSockOptions(func(c *nfnetlink.Conn) error {
		if err := c.SetReadBuffer(netlinkBuffer); err != nil {
			return err
		}
		if err := c.SetWriteBuffer(netlinkBuffer); err != nil {
			return err
		}
		return c.SetDeadline(time.Now().Add(netlinkPatience))
	})}
	if ns != nil {
		options = append(options, nftables.WithNetNSFd(int(ns.Fd())))
	}
	return nftables.New(options...)
}

// loadTable loads the table in one transaction: no packet meets a part of it.
// With replace it takes the place of whatever has its name; without, there is
// none. (A deletion makes the kernel wait until nobody uses what is deleted.)
func loadTable(ns *os.File, plan netplan.Table, ids cgroupIDs, replace bool) error {
	c, err := conn(ns)
	if err != nil {
		return fmt.Errorf("loading table %s: %w", plan.Name, err)
	}
	table := &nftables.Table{Family: nftables.TableFamilyINet, Name: plan.Name}
	c.AddTable(table)
	if replace { // now there is one to delete
		c.DelTable(table)
		c.AddTable(table)
	}
	for _, name := range plan.Counters {
		c.AddObj(&nftables.NamedObj{Table: table, Name: name, Type: nftables.ObjTypeCounter, Obj: &expr.Counter{}})
	}
	sets, err := addSets(c, table, plan.Sets, ids)
	if err != nil {
		return fmt.Errorf("loading table %s: %w", plan.Name, err)
	}
	if err := addChains(c, table, plan.Chains, &translator{ids: ids, sets: sets}); err != nil {
		return fmt.Errorf("loading table %s: %w", plan.Name, err)
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("loading table %s: %w", plan.Name, err)
	}
	return nil
}

func addSets(c *nftables.Conn, table *nftables.Table, plans []netplan.Set, ids cgroupIDs) (map[string]*nftables.Set, error) {
	sets := map[string]*nftables.Set{}
	for i, plan := range plans {
		// The ID is ours: the library would draw it from a global that is not
		// guarded.
		set, err := describeSet(table, plan)
		if err != nil {
			return nil, err
		}
		set.ID = uint32(i + 1)
		sets[plan.Name] = set
		if err := c.AddSet(set, nil); err != nil {
			return nil, fmt.Errorf("set %s: %w", plan.Name, err)
		}
		elements, err := setElements(plan, ids)
		if err != nil {
			return nil, fmt.Errorf("set %s: %w", plan.Name, err)
		}
		for len(elements) > 0 {
			n := min(len(elements), chunk)
			if err := c.SetAddElements(set, elements[:n]); err != nil {
				return nil, fmt.Errorf("set %s: %w", plan.Name, err)
			}
			elements = elements[n:]
		}
	}
	return sets, nil
}

func describeSet(table *nftables.Table, plan netplan.Set) (*nftables.Set, error) {
	types := make([]nftables.SetDatatype, len(plan.Fields))
	for i, f := range plan.Fields {
		types[i] = fieldType(f)
	}
	key, err := nftables.ConcatSetType(types...)
	if err != nil {
		return nil, fmt.Errorf("set %s: %w", plan.Name, err)
	}
	return &nftables.Set{Table: table, Name: plan.Name, KeyType: key}, nil
}

func setElements(plan netplan.Set, ids cgroupIDs) ([]nftables.SetElement, error) {
	elements := make([]nftables.SetElement, len(plan.Elements))
	for i, e := range plan.Elements {
		key, err := elementKey(plan.Fields, e, ids)
		if err != nil {
			return nil, err
		}
		elements[i] = nftables.SetElement{Key: key}
	}
	return elements, nil
}

func addChains(c *nftables.Conn, table *nftables.Table, plans []netplan.Chain, t *translator) error {
	for _, plan := range plans { // all chains first: rules go from one to another
		c.AddChain(describeChain(table, plan))
	}
	for _, plan := range plans {
		for _, r := range plan.Rules {
			exprs, err := t.rule(r)
			if err != nil {
				return fmt.Errorf("chain %s: %w", plan.Name, err)
			}
			c.AddRule(&nftables.Rule{Table: table, Chain: &nftables.Chain{Name: plan.Name}, Exprs: exprs})
		}
	}
	return nil
}

func describeChain(table *nftables.Table, plan netplan.Chain) *nftables.Chain {
	chain := &nftables.Chain{Table: table, Name: plan.Name}
	if plan.Hook == netplan.HookNone {
		return chain
	}
	chain.Type = nftables.ChainTypeFilter
	if plan.NAT {
		chain.Type = nftables.ChainTypeNAT
	}
	chain.Hooknum = nftables.ChainHookOutput
	if plan.Hook == netplan.HookInput {
		chain.Hooknum = nftables.ChainHookInput
	}
	chain.Priority = new(nftables.ChainPriority(plan.Priority))
	policy := nftables.ChainPolicyAccept
	if plan.Closed {
		policy = nftables.ChainPolicyDrop
	}
	chain.Policy = &policy
	return chain
}

// readCounters reads all named counters of a table.
func readCounters(ns *os.File, table string) (map[string]Counter, error) {
	c, err := conn(ns)
	if err != nil {
		return nil, fmt.Errorf("reading counters: %w", err)
	}
	objects, err := c.GetNamedObjects(&nftables.Table{Family: nftables.TableFamilyINet, Name: table})
	if err != nil {
		return nil, fmt.Errorf("reading counters: %w", err)
	}
	counters := map[string]Counter{}
	for _, o := range objects {
		named, ok := o.(*nftables.NamedObj)
		if !ok {
			continue
		}
		if n, ok := named.Obj.(*expr.Counter); ok {
			counters[named.Name] = Counter{Packets: n.Packets, Bytes: n.Bytes}
		}
	}
	return counters, nil
}
