// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netkern

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/google/nftables"

	"bawn/internal/netplan"
	"bawn/internal/undo"
)

// A FirewallConfig says what a [Firewall] keeps, and whom it tells.
type FirewallConfig struct {
	// Namespace is the host's network; nil: that of the calling process.
	Namespace *os.File
	// Plan names the table and Bawn's own group of cgroups, which exists.
	Plan netplan.Host
	// Lost is called when the rules are found missing or changed, before they
	// are put back. It must hold still every agent of the uid placement before
	// it returns. Standing is called once they stand again. Neither may call
	// the Firewall.
	Lost     func(why string)
	Standing func()
	Log      *slog.Logger
}

// ErrFirewallLost says that the rules do not stand at the moment; the watcher
// is putting them back.
var ErrFirewallLost = errors.New("the firewall of the uid placement does not stand")

// A Firewall keeps the host's table and routing rules for the uid placement.
type Firewall struct {
	cfg     FirewallConfig
	cgroups string // where the hierarchy is mounted
	// attach locks a slot's cgroup; tests take it out to see the table alone.
	attach func(dir string, proxy netip.AddrPort) error

	mu     sync.Mutex
	plan   netplan.Host
	ids    cgroupIDs
	stands snapshot // what the kernel said right after the last load
	gen    uint32   // the tables' generation at the last look that found all well
	state  FirewallState
}

// FirewallState says whether the rules stand.
type FirewallState struct {
	Standing bool
	Why      string // what was missing, if not standing
	Losses   int    // how often they were lost since Open
	LastLoss time.Time
	// Gap says, if not empty, why the kernel does not take programs on
	// cgroups. While lost rules are put back, within milliseconds, an agent
	// could then reach services of the host itself.
	Gap string
}

// OpenFirewall puts the rules in place of whatever an earlier run left. The
// plan's slots are kept as they are given; a fresh start has none. Call
// [Firewall.Run] to have them watched.
func OpenFirewall(ctx context.Context, cfg FirewallConfig) (*Firewall, error) {
	return openFirewall(ctx, cfg, func(string) error { return nil })
}

func openFirewall(ctx context.Context, cfg FirewallConfig, check func(step string) error) (*Firewall, error) {
	root, err := CgroupRoot()
	if err != nil {
		return nil, fmt.Errorf("opening the firewall: %w", err)
	}
	f := &Firewall{cfg: cfg, cgroups: root, plan: cfg.Plan, attach: attachPrograms}
	var built undo.Stack
	steps := []struct {
		name string
		do   func() error
		undo func(context.Context) error
	}{
		{"other tables", f.alone, nil},
		{"routing rules", func() error { return setPolicy(cfg.Namespace, cfg.Plan.Policy()) },
			func(context.Context) error { return clearPolicy(cfg.Namespace, cfg.Plan.Policy()) }},
		{"table", f.load, func(context.Context) error { return f.dropTable() }},
		{"look", f.inspect, nil},
	}
	for _, s := range steps {
		err := check(s.name)
		if err == nil {
			if s.undo != nil {
				built.Push(s.name, s.undo) // half a step is taken apart too
			}
			err = s.do()
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("opening the firewall: %s: %w", s.name, err), built.Run(ctx))
		}
	}
	f.state.Standing = true
	return f, nil
}

// ours is the form of the tables' names: "bawn", and a suffix for installations
// that do not live in the root directory.
var ours = regexp.MustCompile(`^bawn(-[0-9a-f]{8})?$`)

// alone refuses to share a host: two tables would each reject the other's
// agents.
func (f *Firewall) alone() error {
	c, err := conn(f.cfg.Namespace)
	if err != nil {
		return err
	}
	tables, err := c.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		return fmt.Errorf("listing tables: %w", err)
	}
	for _, t := range tables {
		if ours.MatchString(t.Name) && t.Name != f.plan.Table {
			return fmt.Errorf("table inet %s belongs to another installation of Bawn, and only one can hold agents "+
				"by uid; stop it, or if it is gone: nft delete table inet %s", t.Name, t.Name)
		}
	}
	return nil
}

// load puts the plan in place and remembers what the kernel makes of it.
func (f *Firewall) load() error {
	ids, err := f.lookUp()
	if err != nil {
		return err
	}
	f.ids = ids
	table := f.plan.Rules()
	if err := loadTable(f.cfg.Namespace, table, f.ids, true); err != nil {
		return err
	}
	s, err := takeSnapshot(f.cfg.Namespace, table)
	if err == nil {
		err = s.fits(table, f.ids)
	}
	if err != nil {
		return fmt.Errorf("looking at table %s: %w", table.Name, err)
	}
	f.stands, f.gen = s, 0
	return nil
}

// lookUp finds the numbers of all cgroups that the plan names. A slot whose
// cgroup is gone keeps its old number, which nothing has any more.
func (f *Firewall) lookUp() (cgroupIDs, error) {
	ids := cgroupIDs{}
	id, err := cgroupID(f.cgroups, f.plan.Cgroup)
	if err != nil {
		return nil, err
	}
	ids[f.plan.Cgroup] = id
	for _, s := range f.plan.Slots {
		path := f.plan.SlotCgroup(s.Slot)
		id, err := cgroupID(f.cgroups, path)
		if errors.Is(err, os.ErrNotExist) && f.ids[path] != 0 {
			id, err = f.ids[path], nil
		}
		if err != nil {
			return nil, err
		}
		ids[path] = id
	}
	return ids, nil
}

// inspect reports what is missing or different.
func (f *Firewall) inspect() error {
	if err := checkPolicy(f.cfg.Namespace, f.plan.Policy()); err != nil {
		return err
	}
	id, err := cgroupID(f.cgroups, f.plan.Cgroup)
	if err != nil {
		return err
	}
	if id != f.ids[f.plan.Cgroup] {
		return fmt.Errorf("cgroup %s was made anew", f.plan.Cgroup)
	}
	gen, err := generation(f.cfg.Namespace)
	if err != nil {
		return err
	}
	if gen == f.gen {
		return nil // nobody has changed any table since the last look
	}
	table := f.plan.Rules()
	s, err := takeSnapshot(f.cfg.Namespace, table)
	if err != nil {
		return err
	}
	if err := s.same(f.stands, table); err != nil {
		return err
	}
	if err := s.setsFit(table, f.ids); err != nil {
		return err
	}
	f.gen = gen
	return nil
}

// Add lets the slot's agent reach its proxy. The slot's cgroup must exist.
func (f *Firewall) Add(slot netplan.UIDSlot) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.state.Standing {
		return fmt.Errorf("adding slot %d: %w: %s", slot.Slot, ErrFirewallLost, f.state.Why)
	}
	if !netplan.IsAgentUID(slot.UID) {
		return fmt.Errorf("adding slot %d: uid %d is no agent's", slot.Slot, slot.UID)
	}
	for _, s := range f.plan.Slots {
		if s.Slot == slot.Slot {
			return fmt.Errorf("adding slot %d: it is taken", slot.Slot)
		}
	}
	path := f.plan.SlotCgroup(slot.Slot)
	id, err := cgroupID(f.cgroups, path)
	if err != nil {
		return fmt.Errorf("adding slot %d: %w", slot.Slot, err)
	}
	if err := f.attach(filepath.Join(f.cgroups, path), netplan.UIDProxy(slot.Slot)); err != nil {
		f.state.Gap = err.Error()
	}
	f.ids[path] = id
	if err := f.change(slot, (*nftables.Conn).SetAddElements); err != nil {
		delete(f.ids, path)
		return fmt.Errorf("adding slot %d: %w", slot.Slot, err)
	}
	f.plan = f.plan.With(slot)
	return nil
}

// Bound changes what Bawn's own processes may reach. The table is put in anew,
// in one step.
func (f *Firewall) Bound(resolvers []netip.AddrPort, private []netip.Prefix, parents []netplan.Service) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := &f.plan.Processes
	if slices.Equal(p.Resolvers, resolvers) && slices.Equal(p.Private, private) && slices.Equal(p.Parents, parents) {
		return nil
	}
	p.Resolvers, p.Private, p.Parents = slices.Clone(resolvers), slices.Clone(private), slices.Clone(parents)
	if !f.state.Standing {
		return nil // the watcher puts it in
	}
	if err := f.load(); err != nil {
		return fmt.Errorf("bounding Bawn's own processes: %w", err)
	}
	return nil
}

// Remove takes back what Add gave. Call it once nothing of the slot runs any
// more. A slot that is not there is no error.
func (f *Firewall) Remove(slot int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.plan.Slots {
		if s.Slot != slot {
			continue
		}
		// Out of the plan first: should the table be lost, it comes back
		// without the slot.
		f.plan = f.plan.Without(slot)
		err := f.change(s, (*nftables.Conn).SetDeleteElements)
		delete(f.ids, f.plan.SlotCgroup(slot))
		if err != nil && f.state.Standing {
			return fmt.Errorf("removing slot %d: %w", slot, err)
		}
	}
	return nil
}

// change adds or deletes the slot's elements in all sets at once.
func (f *Firewall) change(slot netplan.UIDSlot, how func(*nftables.Conn, *nftables.Set, []nftables.SetElement) error) error {
	c, err := conn(f.cfg.Namespace)
	if err != nil {
		return err
	}
	table := &nftables.Table{Family: nftables.TableFamilyINet, Name: f.plan.Table}
	for _, plan := range f.plan.Rules().Sets {
		set, err := describeSet(table, plan)
		if err != nil {
			return err
		}
		key, err := elementKey(plan.Fields, f.plan.Element(slot), f.ids)
		if err != nil {
			return err
		}
		if err := how(c, set, []nftables.SetElement{{Key: key}}); err != nil {
			return err
		}
	}
	return c.Flush()
}

// State tells whether the rules stand.
func (f *Firewall) State() FirewallState {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state
}

// Counters reads the table's counters. They begin anew when the table is put
// back.
func (f *Firewall) Counters() (map[string]Counter, error) {
	return readCounters(f.cfg.Namespace, f.cfg.Plan.Table)
}

// Close removes the table and the routing rules. No agent of the uid placement
// may be left, and Run must have returned.
func (f *Firewall) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.Standing, f.state.Why = false, "closed"
	return errors.Join(f.dropTable(), clearPolicy(f.cfg.Namespace, f.plan.Policy()))
}

func (f *Firewall) dropTable() error {
	c, err := conn(f.cfg.Namespace)
	if err != nil {
		return fmt.Errorf("removing table %s: %w", f.plan.Table, err)
	}
	table := &nftables.Table{Family: nftables.TableFamilyINet, Name: f.plan.Table}
	c.AddTable(table) // so that the deletion finds one
	c.DelTable(table)
	if err := c.Flush(); err != nil {
		return fmt.Errorf("removing table %s: %w", f.plan.Table, err)
	}
	return nil
}
