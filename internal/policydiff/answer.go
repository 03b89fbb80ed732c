// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package policydiff

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"bawn/internal/names"
	"bawn/internal/policy"
)

// A reach is how much of a connection is let through.
type reach uint8

const (
	closed   reach = iota
	judged         // its requests are judged one by one
	anyTLS         // anything in TLS for the name
	anything       // any TCP
)

// An answer is what one policy says of a class.
type answer struct {
	reach     reach
	code      string // of a denial
	rule      string // that allowed or denied
	guards    []string
	key       string // credential
	addresses []netip.Prefix
	under     names.Pattern
	sensitive bool
	bounds    []string // budgets of rules that it counts for, without their limits
	plain     bool     // of a connection: its requests come without TLS
}

func answered(d policy.Decision) answer {
	a := answer{rule: d.Verdict.Rule, under: d.Under, key: d.Credential, addresses: d.Addresses, sensitive: d.Sensitive, plain: d.Plain}
	if !d.Verdict.Allowed() {
		a.code = string(d.Verdict.Why())
		return a
	}
	switch d.Inspect {
	case policy.InspectNone:
		a.reach = anything
	case policy.InspectSNI:
		a.reach = anyTLS
	default:
		a.reach = judged
	}
	for _, b := range d.Budgets {
		a.bounds = append(a.bounds, boundName(b.Key))
	}
	for _, g := range d.Guards {
		a.guards = append(a.guards, g.Name)
	}
	return a
}

// connection asks about name and port.
func connection(a *policy.Agent, h names.Host, port uint16, now time.Time) answer {
	return answered(a.Name(h, port, now))
}

// request asks about one request on a connection of which connection said conn.
// What is not inspected lets every request of its kind through.
func request(a *policy.Agent, q policy.Query, conn answer, now time.Time) answer {
	switch {
	case conn.reach == closed, conn.reach == anything, conn.reach == anyTLS && !q.Plain:
		return conn
	case conn.reach == anyTLS:
		return answer{code: "plain_http_denied"}
	}
	got := answered(a.Request(q, now))
	if got.reach != closed {
		got.reach = judged
	}
	return got
}

// A finding is one way in which two answers differ.
type finding struct {
	kind Kind
	what What
	more string // which guard, credential, range
	rule string // of B, or of A where B has none
}

// compare says how b differs from a, which are answers about the same.
func compare(a, b answer) []finding {
	switch {
	case a.reach == closed && b.reach == closed:
		return nil
	case a.reach == closed:
		return []finding{{Widened, Allowed, conditions(b), b.rule}}
	case b.reach == closed:
		return []finding{{Narrowed, Denied, b.code, cmpOr(b.rule, a.rule)}}
	}
	var list []finding
	switch {
	case b.reach > a.reach:
		list = append(list, finding{Widened, Unread, unread(b.reach), b.rule})
	case b.reach < a.reach:
		list = append(list, finding{Narrowed, Inspected, unread(a.reach), b.rule})
	}
	list = append(list, compareGuards(a, b)...)
	if a.key != b.key {
		list = append(list, finding{Widened, Credential, dash(a.key) + " -> " + dash(b.key), b.rule})
	}
	list = append(list, compareAddresses(a, b)...)
	list = append(list, compareUnder(a, b)...)
	for _, name := range a.bounds {
		if !slices.Contains(b.bounds, name) {
			list = append(list, finding{Widened, BudgetMore, name, b.rule})
		}
	}
	if a.sensitive != b.sensitive {
		list = append(list, finding{Neither, Sensitive, map[bool]string{true: "marked", false: "not marked"}[b.sensitive], b.rule})
	}
	return list
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func dash(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func unread(r reach) string {
	if r == anything {
		return "any TCP"
	}
	return "anything in TLS"
}

// conditions says what comes with an answer that allows.
func conditions(b answer) string {
	var list []string
	if b.reach > judged {
		list = append(list, unread(b.reach)+", not inspected")
	}
	if len(b.guards) > 0 {
		list = append(list, "guard "+strings.Join(b.guards, ", "))
	}
	if b.key != "" {
		list = append(list, "credential "+b.key)
	}
	if len(b.addresses) > 0 {
		list = append(list, "addresses "+prefixes(b.addresses))
	}
	return strings.Join(list, "; ")
}

// compareGuards: between two that are judged. What is not inspected has no
// guards, and that it has none is said by reach.
func compareGuards(a, b answer) []finding {
	if a.reach != judged || b.reach != judged {
		return nil
	}
	var list []finding
	for _, g := range a.guards {
		if !slices.Contains(b.guards, g) {
			list = append(list, finding{Widened, GuardGone, g, b.rule})
		}
	}
	for _, g := range b.guards {
		if !slices.Contains(a.guards, g) {
			list = append(list, finding{Narrowed, GuardAdded, g, b.rule})
		}
	}
	return list
}

func compareAddresses(a, b answer) []finding {
	var list []finding
	if more := beyond(b.addresses, a.addresses); len(more) > 0 {
		list = append(list, finding{Widened, AddressesMore, prefixes(more), b.rule})
	}
	if less := beyond(a.addresses, b.addresses); len(less) > 0 {
		list = append(list, finding{Narrowed, AddressesLess, prefixes(less), b.rule})
	}
	return list
}

// compareUnder: a name that an agent makes up under a wildcard counts, by the
// labels in front of what the wildcard says; one that a rule names does not.
func compareUnder(a, b answer) []finding {
	switch {
	case a.under == b.under:
		return nil
	case b.under.IsZero() || !a.under.IsZero() && a.under.Covers(b.under):
		return []finding{{Widened, CountedLess, counted(a.under) + " -> " + counted(b.under), b.rule}}
	}
	return []finding{{Narrowed, CountedMore, counted(a.under) + " -> " + counted(b.under), b.rule}}
}

func counted(p names.Pattern) string {
	if p.IsZero() {
		return "named by a rule"
	}
	return "made up under " + p.String()
}

func prefixes(list []netip.Prefix) string {
	text := make([]string, len(list))
	for i, p := range list {
		text[i] = p.String()
	}
	slices.Sort(text)
	return strings.Join(slices.Compact(text), ", ")
}

// beyond lists those of list that let an address in which within does not. How
// long a prefix is counts (addr.Vet): only one of a single address lets in the
// host's own and those of metadata services, and one shorter than loopback's
// block lets no loopback in.
func beyond(list, within []netip.Prefix) []netip.Prefix {
	var more []netip.Prefix
	for _, p := range list {
		if slices.Contains(within, p) {
			continue
		}
		var others []netip.Prefix
		for _, w := range within {
			if p.Addr().Is4() == w.Addr().Is4() && (p.Addr().Is6() || p.Bits() < loopbackBits || w.Bits() >= loopbackBits) {
				others = append(others, w)
			}
		}
		if p.IsSingleIP() || !covered(p, others) {
			more = append(more, p)
		}
	}
	return more
}

// loopbackBits is the length of 127.0.0.0/8.
const loopbackBits = 8

// covered reports whether each address of p is in one of within.
func covered(p netip.Prefix, within []netip.Prefix) bool {
	inside := false
	for _, w := range within {
		if w.Bits() <= p.Bits() && w.Contains(p.Addr()) {
			return true
		}
		inside = inside || p.Contains(w.Addr())
	}
	if !inside || p.IsSingleIP() {
		return false
	}
	low := netip.PrefixFrom(p.Addr(), p.Bits()+1)
	return covered(low, within) && covered(netip.PrefixFrom(setBit(p.Addr(), p.Bits()), p.Bits()+1), within)
}

// setBit sets the bit of a at place n, counted from the first.
func setBit(a netip.Addr, n int) netip.Addr {
	b := a.AsSlice()
	b[n/8] |= 0x80 >> (n % 8)
	out, _ := netip.AddrFromSlice(b)
	return out
}
