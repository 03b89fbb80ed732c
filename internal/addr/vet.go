// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package addr

import (
	"fmt"
	"net/netip"
)

// A Vet decides about the addresses that a name resolved to. The zero Vet lets
// in public addresses only. It is not changed while in use.
type Vet struct {
	// Own holds the addresses of this host's interfaces, public ones included:
	// services that listen there trust their neighbours.
	Own []netip.Addr

	// Never holds ranges that nothing lets in: those which Bawn itself uses for
	// listeners, synthetic names and links.
	Never []netip.Prefix

	// Allowed holds the prefixes that the rule names under "addresses:".
	Allowed []netip.Prefix
}

// Check reports whether a may be dialled. For a refusal, detail says which block
// a lies in, in words for the record.
//
// Public addresses are let in, and so are special-purpose addresses inside a
// prefix of Allowed, with these exceptions:
//
//   - Unspecified, multicast and broadcast addresses, addresses with a zone,
//     IPv6 forms that embed IPv4 (but NAT64 of a public address) and the ranges
//     of Never are refused whatever Allowed says: no rule can mean them.
//   - Loopback is let in only by a prefix that lies wholly inside the loopback
//     block. Its author wrote loopback; the author of 0.0.0.0/0 did not.
//   - The host's own addresses and those of metadata services are let in only by
//     a prefix of that one address, for the same reason.
func (v Vet) Check(a netip.Addr) (detail string, ok bool) {
	name, public := Class(a)
	if why := v.never(a); why != "" {
		return describe(a, why), false
	}
	if nat64.Contains(a) {
		return v.checkNAT64(a, name, public)
	}
	switch {
	case a.IsLoopback():
		ok = v.named(a, loopbackOf(a).Bits())
	case v.isOwn(a):
		name, ok = "an address of this host", v.named(a, a.BitLen())
	case Lookup(a).Metadata:
		ok = v.named(a, a.BitLen())
	default:
		ok = public || v.named(a, 0)
	}
	if ok {
		return "", true
	}
	return describe(a, name), false
}

// checkNAT64 judges a NAT64 address by the IPv4 address inside. Allowed has no
// say: a gateway's private neighbours are not this host's.
func (v Vet) checkNAT64(a netip.Addr, name string, public bool) (detail string, ok bool) {
	inner := embedded(a)
	switch {
	case v.isOwn(inner):
		return describe(a, name+" of an address of this host"), false
	case v.never(inner) != "":
		return describe(a, name+" of "+v.never(inner)), false
	case !public:
		return describe(a, name), false
	}
	return "", true
}

// never says why a is refused whatever the rule names, or "".
func (v Vet) never(a netip.Addr) string {
	switch {
	case !a.IsValid():
		return "no address"
	case a.Zone() != "":
		return "an address with a zone"
	case a.IsUnspecified(), a.IsMulticast(), a == broadcast:
		return Lookup(a).Name
	case embeds(a):
		return Lookup(a).Name + ", which embeds another address"
	}
	for _, p := range v.Never {
		if p.Contains(a) {
			return "a range that Bawn uses itself (" + p.String() + ")"
		}
	}
	return ""
}

// named reports whether Allowed has a prefix of at least bits that holds a.
func (v Vet) named(a netip.Addr, bits int) bool {
	for _, p := range v.Allowed {
		if p.Bits() >= bits && p.Contains(a) {
			return true
		}
	}
	return false
}

func (v Vet) isOwn(a netip.Addr) bool {
	for _, own := range v.Own {
		if own.Unmap().WithZone("") == a {
			return true
		}
	}
	return false
}

// describe says where a lies. The block's range and source help to find the
// right "addresses:" for a rule.
func describe(a netip.Addr, name string) string {
	b := Lookup(a)
	if b.Prefix.IsValid() && !b.Public {
		return fmt.Sprintf("%s is %s (%s, %s)", a, name, b.Prefix, b.Source)
	}
	return fmt.Sprintf("%s is %s", a, name)
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// embedding lists the forms of IPv6 that carry another address and are refused
// whole. ::1 and :: lie inside ::/96 and are judged before.
var embedding = [...]netip.Prefix{
	netip.MustParsePrefix("::ffff:0:0/96"),   // mapped
	netip.MustParsePrefix("::ffff:0:0:0/96"), // translated
	netip.MustParsePrefix("::/96"),           // compatible
	netip.MustParsePrefix("2002::/16"),       // 6to4
	netip.MustParsePrefix("2001::/32"),       // Teredo
}

func embeds(a netip.Addr) bool {
	if a.IsLoopback() && !a.Is4In6() {
		return false
	}
	for _, p := range embedding {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

func loopbackOf(a netip.Addr) netip.Prefix {
	if a.Is4() {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{127}), 8)
	}
	return netip.PrefixFrom(netip.IPv6Loopback(), 128)
}
