// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"bawn/internal/codes"
	"bawn/internal/ids"
	"bawn/internal/names"
)

// Synthetic addresses lie in 198.18.0.0/15, which RFC 2544 gave to benchmarks
// and nobody routes. Its first /24 holds Bawn's own addresses inside an agent's
// network. First and last address of each /24 are left out, since some programs
// take them for those of a network.
const (
	perBlock     = 254
	blocks       = 511
	maxSynthetic = perBlock * blocks
)

// DefaultNames is how many names one agent's table holds if nothing else is said.
const DefaultNames = 32768

// An Error refuses a name with a code.
type Error struct {
	Code   codes.Code
	Detail string
}

// Error gives the code and the detail.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Detail }

// A Table gives names synthetic addresses and addresses their names back, for
// each agent by itself: one agent cannot learn what another asked for.
//
// An address, once given, means its name for ever. Agents cache answers, and a
// machine that is restored from a snapshot may come back with old ones. So each
// agent's names are kept in a file of its own, which only grows: a name is on
// disk before its address is answered, and the table refuses new names when it
// is full rather than using an address again.
//
// A Table may be used by many goroutines. One process holds a folder at a time.
type Table struct {
	dir  string
	most int
	lock *os.File

	mu     sync.Mutex
	agents map[string]*agentTable
}

// OpenTable takes the folder dir, which must exist, for the tables of all
// agents. Each holds at most most names; 0 means [DefaultNames]. Files are read
// when their agent is first seen.
func OpenTable(dir string, most int) (*Table, error) {
	if most == 0 {
		most = DefaultNames
	}
	if most < 0 || most > maxSynthetic {
		return nil, fmt.Errorf("opening synthetic names %s: %d names an agent; at most %d are possible", dir, most, maxSynthetic)
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening synthetic names: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		return nil, fmt.Errorf("opening synthetic names %s: another process holds them: %w", dir, err)
	}
	return &Table{dir: dir, most: most, lock: lock, agents: map[string]*agentTable{}}, nil
}

// lockName cannot be the file of an agent: those end otherwise.
const lockName = "lock"

// Close gives the folder back. Nothing is left to be written.
func (t *Table) Close() error { return t.lock.Close() }

// Synthetic returns the address that stands for h with the agent, and gives one
// if there is none yet. The error is an [*Error] when the table is full, and
// otherwise says why it cannot be read or written.
func (t *Table) Synthetic(agent string, h names.Host) (netip.Addr, error) {
	if h.IsZero() {
		return netip.Addr{}, &Error{codes.DNSNameNotAllowed, "no name"}
	}
	a, err := t.of(agent)
	if err != nil {
		return netip.Addr{}, err
	}
	return a.synthetic(h, t.most)
}

// Name returns the name that a stands for with the agent. ok is false for every
// address that was not given to that agent.
func (t *Table) Name(agent string, addr netip.Addr) (h names.Host, ok bool) {
	i, ok := indexOf(addr)
	if !ok {
		return names.Host{}, false
	}
	a, err := t.of(agent)
	if err != nil {
		return names.Host{}, false
	}
	return a.name(i)
}

// of returns the agent's table, reading its file if it is the first time. A file
// that could not be read is tried again the next time.
func (t *Table) of(agent string) (*agentTable, error) {
	if err := ids.CheckName(agent); err != nil {
		return nil, fmt.Errorf("finding synthetic names: %w", err) // agent is part of a path
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if a, ok := t.agents[agent]; ok {
		return a, nil
	}
	a, err := readAgent(filepath.Join(t.dir, agent+".names"))
	if err != nil {
		return nil, err
	}
	t.agents[agent] = a
	return a, nil
}

var _ Addresses = (*Table)(nil)

// addressOf returns the address with the given place in a table.
func addressOf(i int) netip.Addr {
	block := 1 + i/perBlock // 0 is Bawn's own
	return netip.AddrFrom4([4]byte{198, byte(18 + block>>8), byte(block), byte(1 + i%perBlock)})
}

// indexOf is the inverse of addressOf. ok is false for addresses that stand for
// no place.
func indexOf(a netip.Addr) (i int, ok bool) {
	if !a.Is4() {
		return 0, false
	}
	b := a.As4()
	if b[0] != 198 || b[1]&^1 != 18 || b[3] == 0 || b[3] == 255 {
		return 0, false
	}
	block := int(b[1]&1)<<8 | int(b[2])
	if block == 0 {
		return 0, false
	}
	return (block-1)*perBlock + int(b[3]) - 1, true
}
