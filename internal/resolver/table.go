// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"fmt"
	"net/netip"
	"time"

	"bawn/internal/agentfile"
	"bawn/internal/codes"
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

// restDays is how many days nobody must have asked for a name, nor connected to
// its address, before a table that is full forgets it.
const restDays = 60

// An Error refuses a name with a code.
type Error struct {
	Code   codes.Code
	Detail string
}

// Error gives the code and the detail.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Detail }

// TableOptions are the settings of a [Table].
type TableOptions struct {
	Names int              // that one agent's table holds at most; 0: [DefaultNames]
	Now   func() time.Time // nil: time.Now
}

// A Table gives names synthetic addresses and addresses their names back, for
// each agent by itself: one agent cannot learn what another asked for.
//
// An address, once given, means its name. Agents cache answers, and a machine
// that is restored from a snapshot may come back with old ones. So each agent's
// names are kept in a file, for as long as the agent is registered (see
// [Table.Keep]), and a name is on disk before its address is answered.
//
// New names get the next address in turn, of which there are four times as many
// as a table has names. Only a table that is full forgets a name, the one that
// was not used for longest, and that not before it has rested for sixty days.
// Its address then means nothing until its turn comes round. Where no name has
// rested so long the table refuses new ones.
//
// A Table may be used by many goroutines. One process holds a folder at a time.
type Table struct {
	most  int
	now   func() time.Time
	files *agentfile.Folder[*agentTable]
}

// OpenTable takes the folder dir, which must exist, for the tables of all
// agents. Nobody has one before [Table.Keep] was called.
func OpenTable(dir string, o TableOptions) (*Table, error) {
	if o.Names == 0 {
		o.Names = DefaultNames
	}
	if o.Names < 0 || o.Names > maxSynthetic {
		return nil, fmt.Errorf("opening synthetic names %s: %d names an agent; at most %d are possible", dir, o.Names, maxSynthetic)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	files, err := agentfile.Open(dir, "names", readAgent)
	if err != nil {
		return nil, fmt.Errorf("opening synthetic names: %w", err)
	}
	return &Table{most: o.Names, now: o.Now, files: files}, nil
}

// Close gives the folder back. Nothing is left to be written.
func (t *Table) Close() error { return t.files.Close() }

// Keep says which agents are registered: id by name. The tables of others are
// removed, so that an agent that is made anew under an old name has none of the
// one before.
func (t *Table) Keep(agents map[string]string) error { return t.files.Keep(agents) }

// Synthetic returns the address that stands for h with the agent, and gives one
// if there is none yet. The error is an [*Error] when the table is full, and
// otherwise says why it cannot be read or written.
func (t *Table) Synthetic(agent string, h names.Host) (netip.Addr, error) {
	if h.IsZero() {
		return netip.Addr{}, &Error{codes.DNSNameNotAllowed, "no name"}
	}
	a, err := t.files.Of(agent)
	if err != nil {
		return netip.Addr{}, err
	}
	return a.synthetic(h, t.most, t.today())
}

// Name returns the name that a stands for with the agent. ok is false for every
// address that was not given to that agent.
func (t *Table) Name(agent string, addr netip.Addr) (h names.Host, ok bool) {
	i, ok := indexOf(addr)
	if !ok {
		return names.Host{}, false
	}
	a, err := t.files.Of(agent)
	if err != nil {
		return names.Host{}, false
	}
	return a.name(i, t.today())
}

func (t *Table) today() int64 { return t.now().Unix() / (24 * 60 * 60) }

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
