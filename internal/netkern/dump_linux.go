// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netkern

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/google/nftables"
	nfnetlink "github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"bawn/internal/netplan"
)

// A snapshot is what the kernel says of a table, in the kernel's own bytes.
type snapshot struct {
	chains map[string]string   // hook, priority, type, policy
	rules  map[string][][]byte // by chain: the expressions of each rule
	kinds  map[string]string   // of the sets
	sets   map[string][][]byte // by set: the sorted keys
}

// errNoTable says that the table does not exist.
var errNoTable = errors.New("the table is gone")

// takeSnapshot reads the table. A change in between makes the parts disagree;
// whoever compares sees a difference then, and looks again.
func takeSnapshot(ns *os.File, plan netplan.Table) (snapshot, error) {
	c, err := conn(ns)
	if err != nil {
		return snapshot{}, err
	}
	table, err := findTable(c, plan.Name)
	if err != nil {
		return snapshot{}, err
	}
	if table.Flags != 0 {
		return snapshot{}, errors.New("the table was put to sleep, or belongs to another process")
	}
	s := snapshot{sets: map[string][][]byte{}, kinds: map[string]string{}}
	if s.chains, err = readChains(c, plan.Name); err != nil {
		return snapshot{}, err
	}
	if s.rules, err = readRules(ns, plan.Name); err != nil {
		return snapshot{}, err
	}
	for _, set := range plan.Sets {
		if s.kinds[set.Name], s.sets[set.Name], err = readSet(c, table, set.Name); err != nil {
			return snapshot{}, fmt.Errorf("reading set %s: %w", set.Name, err)
		}
	}
	return s, nil
}

// readSet reads what kind of set it is, and its sorted keys. An element that is
// more than its key (a range, the rest of all, one that runs out) is told apart:
// it may begin with a key of the plan and match more.
func readSet(c *nftables.Conn, table *nftables.Table, name string) (kind string, keys [][]byte, err error) {
	set, err := c.GetSetByName(table, name)
	if err != nil {
		return "", nil, err
	}
	kind = fmt.Sprintf("type %s map %t ranges %t timeout %t dynamic %t", set.KeyType.Name, set.IsMap, set.Interval, set.HasTimeout, set.Dynamic)
	elements, err := c.GetSetElements(set)
	if err != nil {
		return "", nil, err
	}
	for _, e := range elements {
		key := e.Key
		if len(e.KeyEnd) > 0 || e.IntervalEnd || len(key) == 0 || e.Timeout != 0 || e.Expires != 0 {
			key = fmt.Appendf(nil, "%x to %x, end %t, for %s", e.Key, e.KeyEnd, e.IntervalEnd, e.Timeout)
		}
		keys = append(keys, key)
	}
	slices.SortFunc(keys, bytes.Compare)
	return kind, keys, nil
}

func findTable(c *nftables.Conn, name string) (*nftables.Table, error) {
	tables, err := c.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		return nil, fmt.Errorf("listing tables: %w", err)
	}
	for _, t := range tables {
		if t.Name == name {
			return t, nil
		}
	}
	return nil, errNoTable
}

func readChains(c *nftables.Conn, table string) (map[string]string, error) {
	all, err := c.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return nil, fmt.Errorf("listing chains: %w", err)
	}
	chains := map[string]string{}
	for _, chain := range all {
		if chain.Table.Name == table {
			chains[chain.Name] = chainText(chain)
		}
	}
	return chains, nil
}

func chainText(c *nftables.Chain) string {
	if c.Hooknum == nil || c.Priority == nil || c.Policy == nil {
		return "not a base chain"
	}
	return fmt.Sprintf("type %s hook %d priority %d policy %d", c.Type, *c.Hooknum, *c.Priority, *c.Policy)
}

// readRules dumps the rules as bytes. The nftables package leaves out the
// expressions that it cannot parse, the cgroup match among them, so it cannot
// be trusted to compare.
func readRules(ns *os.File, table string) (map[string][][]byte, error) {
	filter, err := nfnetlink.MarshalAttributes([]nfnetlink.Attribute{
		{Type: unix.NFTA_RULE_TABLE, Data: append([]byte(table), 0)},
	})
	if err != nil {
		return nil, err
	}
	messages, err := ask(ns, unix.NFT_MSG_GETRULE, nfnetlink.Dump, unix.NFPROTO_INET, filter)
	if err != nil {
		return nil, fmt.Errorf("listing rules: %w", err)
	}
	rules := map[string][][]byte{}
	for _, m := range messages {
		var in, chain string
		var exprs []byte
		err := attributes(m, func(ad *nfnetlink.AttributeDecoder) {
			switch ad.Type() {
			case unix.NFTA_RULE_TABLE:
				in = ad.String()
			case unix.NFTA_RULE_CHAIN:
				chain = ad.String()
			case unix.NFTA_RULE_EXPRESSIONS:
				exprs = bytes.Clone(ad.Bytes())
			}
		})
		if err != nil {
			return nil, fmt.Errorf("listing rules: %w", err)
		}
		if in == table {
			rules[chain] = append(rules[chain], exprs)
		}
	}
	return rules, nil
}

// generation reads the number that every change of any table counts up.
func generation(ns *os.File) (uint32, error) {
	messages, err := ask(ns, unix.NFT_MSG_GETGEN, 0, unix.NFPROTO_UNSPEC, nil)
	if err != nil {
		return 0, fmt.Errorf("reading the generation of the tables: %w", err)
	}
	for _, m := range messages {
		var id uint32
		var found bool
		err := attributes(m, func(ad *nfnetlink.AttributeDecoder) {
			if ad.Type() == unix.NFTA_GEN_ID {
				id, found = ad.Uint32(), true
			}
		})
		if err != nil {
			return 0, fmt.Errorf("reading the generation of the tables: %w", err)
		}
		if found {
			return id, nil
		}
	}
	return 0, errors.New("reading the generation of the tables: no answer")
}

// headerSize is that of struct nfgenmsg: family, version, resource.
const headerSize = 4

// ask sends one request to the firewall's netlink family.
func ask(ns *os.File, kind int, flags nfnetlink.HeaderFlags, family byte, attrs []byte) ([]nfnetlink.Message, error) {
	config := &nfnetlink.Config{}
	if ns != nil {
		config.NetNS = int(ns.Fd())
	}
	c, err := nfnetlink.Dial(unix.NETLINK_NETFILTER, config)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(netlinkPatience)); err != nil {
		return nil, err
	}
	return c.Execute(nfnetlink.Message{
		Header: nfnetlink.Header{
			Type:  nfnetlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | kind),
			Flags: nfnetlink.Request | flags,
		},
		Data: append([]byte{family, unix.NFNETLINK_V0, 0, 0}, attrs...),
	})
}

func attributes(m nfnetlink.Message, each func(*nfnetlink.AttributeDecoder)) error {
	if len(m.Data) < headerSize {
		return errors.New("short answer")
	}
	ad, err := nfnetlink.NewAttributeDecoder(m.Data[headerSize:])
	if err != nil {
		return err
	}
	ad.ByteOrder = binary.BigEndian
	for ad.Next() {
		each(ad)
	}
	return ad.Err()
}

// fits reports how a snapshot taken right after a load differs from the plan.
// The expressions themselves are the kernel's answer to what was just loaded.
func (s snapshot) fits(plan netplan.Table, ids cgroupIDs) error {
	table := &nftables.Table{Family: nftables.TableFamilyINet, Name: plan.Name}
	if len(s.chains) != len(plan.Chains) {
		return fmt.Errorf("%d chains, not %d", len(s.chains), len(plan.Chains))
	}
	for _, c := range plan.Chains {
		if want := chainText(describeChain(table, c)); s.chains[c.Name] != want {
			return fmt.Errorf("chain %s: %q, not %q", c.Name, s.chains[c.Name], want)
		}
		if got := len(s.rules[c.Name]); got != len(c.Rules) {
			return fmt.Errorf("chain %s: %d rules, not %d", c.Name, got, len(c.Rules))
		}
	}
	return s.setsFit(plan, ids)
}

func (s snapshot) setsFit(plan netplan.Table, ids cgroupIDs) error {
	for _, set := range plan.Sets {
		want := make([][]byte, len(set.Elements))
		missing := ""
		for i, e := range set.Elements {
			key, err := elementKey(set.Fields, e, ids)
			if err != nil {
				return fmt.Errorf("set %s: %w", set.Name, err)
			}
			want[i] = key
			if _, found := slices.BinarySearchFunc(s.sets[set.Name], key, bytes.Compare); !found && missing == "" {
				missing = ", without " + e.Text(set.Fields)
			}
		}
		slices.SortFunc(want, bytes.Compare)
		if !slices.EqualFunc(s.sets[set.Name], want, bytes.Equal) {
			return fmt.Errorf("set %s: %d elements are not the %d that were put in%s", set.Name, len(s.sets[set.Name]), len(want), missing)
		}
	}
	return nil
}

// same reports how a snapshot differs in chains, rules and kinds of sets from
// one that was taken when the plan had just been put in, and names the first
// difference in the plan's words.
func (s snapshot) same(loaded snapshot, plan netplan.Table) error {
	for _, name := range slices.Sorted(maps.Keys(s.chains)) {
		if _, planned := loaded.chains[name]; !planned {
			return fmt.Errorf("its chains were changed: there is a chain %s", name)
		}
	}
	for _, c := range plan.Chains {
		switch now, there := s.chains[c.Name]; {
		case !there:
			return fmt.Errorf("its chains were changed: chain %s is gone", c.Name)
		case now != loaded.chains[c.Name]:
			return fmt.Errorf("its chains were changed: chain %s: %s, not %s", c.Name, now, loaded.chains[c.Name])
		}
		if why := rulesDiffer(s.rules[c.Name], loaded.rules[c.Name], c); why != "" {
			return fmt.Errorf("its rules were changed: chain %s: %s", c.Name, why)
		}
	}
	for _, set := range plan.Sets {
		if now, was := s.kinds[set.Name], loaded.kinds[set.Name]; now != was {
			return fmt.Errorf("its sets were changed: set %s: %s, not %s", set.Name, now, was)
		}
	}
	if !maps.Equal(s.chains, loaded.chains) || !maps.EqualFunc(s.rules, loaded.rules, sameRules) {
		return errors.New("its rules were changed") // what is in neither chain of the plan
	}
	return nil
}

func sameRules(a, b [][]byte) bool { return slices.EqualFunc(a, b, bytes.Equal) }

// rulesDiffer says what became of the first rule of a chain that is not as it
// was put in.
func rulesDiffer(now, was [][]byte, plan netplan.Chain) string {
	if sameRules(now, was) {
		return ""
	}
	at := 0
	for at < len(now) && at < len(was) && bytes.Equal(now[at], was[at]) {
		at++
	}
	text := "the end"
	if at < len(plan.Rules) {
		text = plan.Rules[at].String()
	}
	switch {
	case at < len(was) && sameRules(now[at:], was[at+1:]):
		return fmt.Sprintf("rule %d is gone: %s", at+1, text)
	case at < len(now) && sameRules(now[at+1:], was[at:]):
		return fmt.Sprintf("there is a rule more, before %s", text)
	case at < len(now) && at < len(was) && sameRules(now[at+1:], was[at+1:]):
		return fmt.Sprintf("rule %d is another: %s", at+1, text)
	}
	return fmt.Sprintf("%d rules, not %d, from rule %d on: %s", len(now), len(was), at+1, text)
}
