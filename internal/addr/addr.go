// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package addr decides which addresses a proxy may dial.
//
// [Class] names the block that an address belongs to and says whether that
// block is public. The blocks come from IANA's special-purpose registries and a
// short list of our own (folder iana, one row a block with its source); table.go
// is generated from them, and the most specific block decides. Everything that
// the tables do not call public is not public: in IPv6 that is all but 2000::/3.
//
// [Vet] adds what one host and one rule know: the host's own addresses and the
// private ranges that the rule names. See [Vet.Check] for what a rule can let in
// and what it never can.
//
// # Embedded IPv4
//
// An IPv6 address can carry an IPv4 address that some machine on the way will
// unwrap. Mapped (::ffff:0:0/96), compatible (::/96), translated
// (::ffff:0:0:0/96), 6to4 (2002::/16) and Teredo (2001::/32) addresses are
// refused whole: nothing that a client of today needs is there. The well-known
// NAT64 prefix 64:ff9b::/96 is how a host without IPv4 reaches the IPv4
// internet, so it is judged by the address inside, which must be public (RFC
// 6052 section 3.1).
//
// Only values of type [netip.Addr] are judged. Spellings (octal, hexadecimal,
// short forms) never come this far: package names refuses them.
//
// Everything here is pure and safe for concurrent use.
package addr

//go:generate go run ./gen -in iana -out table.go

import (
	"iter"
	"net/netip"
	"slices"
)

// A Block is one range of addresses, as a registry describes it.
type Block struct {
	Prefix   netip.Prefix
	Name     string
	Source   string // the document that assigns it
	Public   bool   // globally reachable, so that anybody may be behind it
	Metadata bool   // a cloud's metadata service, which hands out credentials
}

// global stands for the IPv4 addresses that no row of the tables holds. IPv6 has
// rows for all.
var global = Block{Prefix: netip.MustParsePrefix("0.0.0.0/0"), Name: "Global unicast", Source: "RFC1122", Public: true}

// nat64 is the well-known prefix of RFC 6052.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// Blocks yields the rows of the tables, the most specific first. The first that
// holds an address decides about it.
func Blocks() iter.Seq[Block] { return slices.Values(table[:]) }

// Lookup returns the most specific block that holds a. It looks at a as it
// stands: what a embeds is for [Class] to judge. The zero Block, which is not
// public, stands for no address at all. A zone is not looked at.
func Lookup(a netip.Addr) Block {
	a = a.WithZone("")
	for i := range table {
		if table[i].Prefix.Contains(a) {
			return table[i]
		}
	}
	if a.Is4() {
		return global
	}
	return Block{}
}

// Class names the block of a and reports whether a is public. An address with a
// zone, and no address, are not.
func Class(a netip.Addr) (name string, public bool) {
	switch {
	case !a.IsValid():
		return "no address", false
	case a.Zone() != "":
		return "address with a zone", false
	}
	b := Lookup(a)
	if !nat64.Contains(a) {
		return b.Name, b.Public
	}
	inner := Lookup(embedded(a))
	if inner.Public {
		return b.Name, true
	}
	return b.Name + " of " + inner.Name, false
}

// IsMetadata reports whether a, or the IPv4 address inside a NAT64 or mapped
// address, belongs to a cloud's metadata service. A try at one is worth a
// record of high sensitivity, allowed or not.
func IsMetadata(a netip.Addr) bool {
	if nat64.Contains(a.WithZone("")) {
		a = embedded(a)
	}
	return Lookup(a.Unmap()).Metadata
}

// embedded returns the IPv4 address in the last 32 bits of an IPv6 address.
func embedded(a netip.Addr) netip.Addr {
	b := a.As16()
	return netip.AddrFrom4([4]byte(b[12:]))
}
