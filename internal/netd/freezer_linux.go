// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netd

import (
	"log/slog"
	"sync"
	"time"

	"bawn/internal/proc"
)

// A freezer holds still every session of the uid placement while the firewall
// does not stand (I1).
type freezer struct {
	log *slog.Logger

	mu     sync.Mutex
	frozen bool
	groups map[int]*proc.Cgroup // by slot
}

// add has the slot's group frozen with the others from now on.
func (f *freezer) add(slot int, g *proc.Cgroup) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.frozen {
		if err := g.Freeze(); err != nil {
			return err
		}
	}
	f.groups[slot] = g
	return nil
}

func (f *freezer) remove(slot int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.groups, slot)
}

func (f *freezer) isFrozen() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.frozen
}

// set freezes or thaws all groups. Freezing waits until they stand still. One
// that cannot be frozen is killed: it must not run without its firewall.
func (f *freezer) set(frozen bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.frozen = frozen
	for slot, g := range f.groups {
		err := g.Thaw
		if frozen {
			err = g.Freeze
		}
		if err := err(); err != nil {
			f.kill(slot, g, err)
		}
	}
	if !frozen {
		return
	}
	for slot, g := range f.groups {
		if err := stands(g); err != nil {
			f.kill(slot, g, err)
		}
	}
}

func (f *freezer) kill(slot int, g *proc.Cgroup, why error) {
	f.log.Error("a session that cannot be frozen is killed", "slot", slot, "error", why)
	if err := g.Kill(); err != nil {
		f.log.Error("killing a session", "slot", slot, "error", err)
	}
}

// freezeTime is how long a group may take to stand still. A process that waits
// for a disk stops when it comes back.
const freezeTime = 2 * time.Second

func stands(g *proc.Cgroup) error {
	for deadline := time.Now().Add(freezeTime); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		frozen, err := g.Frozen()
		if err != nil || frozen {
			return err
		}
	}
	return nil // on its way: nothing of it runs outside of the kernel
}
