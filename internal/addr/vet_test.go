// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package addr_test

import (
	"net/netip"
	"strings"
	"testing"

	"bawn/internal/addr"
)

func prefixes(list ...string) []netip.Prefix {
	var ps []netip.Prefix
	for _, s := range list {
		ps = append(ps, netip.MustParsePrefix(s))
	}
	return ps
}

// TestI6WhatARuleLetsIn: prefixes that a rule names open private ranges, and
// open nothing that their author cannot have meant.
func TestI6WhatARuleLetsIn(t *testing.T) {
	everything := prefixes("0.0.0.0/0", "::/0")
	for name, c := range map[string]struct {
		allowed []netip.Prefix
		addr    string
		want    bool
	}{
		"private range":                           {prefixes("10.20.0.0/16"), "10.20.1.1", true},
		"outside of the range":                    {prefixes("10.20.0.0/16"), "10.21.1.1", false},
		"public beside a private range":           {prefixes("10.20.0.0/16"), "1.1.1.1", true},
		"unique-local range":                      {prefixes("fd12::/16"), "fd12::1", true},
		"link-local range":                        {prefixes("169.254.0.0/16"), "169.254.3.4", true},
		"private under everything":                {everything, "10.1.2.3", true},
		"mapped form of a named range":            {prefixes("10.20.0.0/16"), "::ffff:10.20.1.1", false},
		"mapped form, named as such":              {prefixes("::ffff:0:0/96"), "::ffff:10.20.1.1", false},
		"loopback under everything":               {everything, "127.0.0.1", false},
		"loopback under a range across its edge":  {prefixes("126.0.0.0/7"), "127.0.0.1", false},
		"loopback, named":                         {prefixes("127.0.0.1/32"), "127.0.0.1", true},
		"loopback, whole block named":             {prefixes("127.0.0.0/8"), "127.9.9.9", true},
		"loopback, other address named":           {prefixes("127.0.0.1/32"), "127.0.0.2", false},
		"IPv6 loopback under everything":          {everything, "::1", false},
		"IPv6 loopback, named":                    {prefixes("::1/128"), "::1", true},
		"own private address in a named range":    {prefixes("10.20.0.0/16"), "10.20.0.5", false},
		"own private address, named":              {prefixes("10.20.0.5/32"), "10.20.0.5", true},
		"own public address":                      {nil, "93.184.216.34", false},
		"own public address under everything":     {everything, "93.184.216.34", false},
		"own public address, named":               {prefixes("93.184.216.34/32"), "93.184.216.34", true},
		"own IPv6 address with a zone on its own": {everything, "2606:4700::5", false},
		"own address through NAT64":               {everything, "64:ff9b::5db8:d822", false},
		"metadata under everything":               {everything, "169.254.169.254", false},
		"metadata in its block":                   {prefixes("169.254.0.0/16"), "169.254.169.254", false},
		"metadata, named":                         {prefixes("169.254.169.254/32"), "169.254.169.254", true},
		"public-looking metadata":                 {everything, "168.63.129.16", false},
		"IPv6 metadata in a named range":          {prefixes("fd00::/8"), "fd00:ec2::254", false},
		"metadata through NAT64, named":           {prefixes("169.254.169.254/32", "64:ff9b::/96"), "64:ff9b::a9fe:a9fe", false},
		"private through NAT64, named":            {prefixes("10.0.0.0/8", "64:ff9b::/96"), "64:ff9b::a00:1", false},
		"public through NAT64":                    {nil, "64:ff9b::808:808", true},
		"unspecified, named":                      {prefixes("0.0.0.0/32", "::/128"), "0.0.0.0", false},
		"IPv6 unspecified, named":                 {prefixes("0.0.0.0/32", "::/128"), "::", false},
		"multicast, named":                        {prefixes("224.0.0.0/4"), "224.0.0.1", false},
		"IPv6 multicast, named":                   {prefixes("ff02::1/128"), "ff02::1", false},
		"broadcast, named":                        {prefixes("255.255.255.255/32"), "255.255.255.255", false},
		"6to4, named":                             {prefixes("2002::/16"), "2002:a00:1::1", false},
		"Teredo, named":                           {prefixes("2001::/32"), "2001::1", false},
		"compatible, named":                       {prefixes("::/96"), "::10.0.0.1", false},
		"translated, named":                       {prefixes("::ffff:0:0:0/96"), "::ffff:0:a00:1", false},
		"zone, named":                             {prefixes("fe80::/10"), "fe80::1%eth0", false},
		"range of Bawn's own, named":              {prefixes("10.201.0.0/16"), "10.201.0.1", false},
		"listener of Bawn's own, named":           {prefixes("127.66.0.1/32"), "127.66.0.1", false},
		"range of Bawn's own through NAT64":       {nil, "64:ff9b::0ac9:1", false},
	} {
		t.Run(name, func(t *testing.T) {
			v := addr.Vet{
				Own: []netip.Addr{
					netip.MustParseAddr("10.20.0.5"), netip.MustParseAddr("::ffff:93.184.216.34"), netip.MustParseAddr("2606:4700::5%eth0"),
				},
				Never:   prefixes("10.201.0.0/16", "127.66.0.0/16"),
				Allowed: c.allowed,
			}
			detail, ok := v.Check(netip.MustParseAddr(c.addr))
			if ok != c.want {
				t.Errorf("let in: %v, want %v (%s)", ok, c.want, detail)
			}
			if ok != (detail == "") {
				t.Errorf("let in: %v, with detail %q", ok, detail)
			}
		})
	}
}

func TestDetailHelps(t *testing.T) {
	detail, _ := (addr.Vet{}).Check(netip.MustParseAddr("10.1.2.3"))
	for _, want := range []string{"10.1.2.3", "Private-Use", "10.0.0.0/8", "RFC1918"} {
		if !strings.Contains(detail, want) {
			t.Errorf("detail %q lacks %q", detail, want)
		}
	}
}

// FuzzI6Vet: whatever a rule names, what no rule can mean stays out.
func FuzzI6Vet(f *testing.F) {
	f.Add([]byte{127, 0, 0, 1}, []byte{126, 0, 0, 0}, 7)
	f.Add([]byte{10, 20, 0, 5}, []byte{10, 0, 0, 0}, 8)
	f.Add(netip.MustParseAddr("::ffff:127.0.0.1").AsSlice(), netip.IPv6Unspecified().AsSlice(), 0)
	f.Add(netip.MustParseAddr("64:ff9b::a9fe:a9fe").AsSlice(), netip.IPv6Unspecified().AsSlice(), 0)
	own := netip.MustParseAddr("10.20.0.5")
	f.Fuzz(func(t *testing.T, target, block []byte, bits int) {
		a, ok := netip.AddrFromSlice(target)
		base, ok2 := netip.AddrFromSlice(block)
		if !ok || !ok2 {
			return
		}
		p := netip.PrefixFrom(base, bits)
		v := addr.Vet{Own: []netip.Addr{own}, Allowed: []netip.Prefix{p}}
		detail, let := v.Check(a)
		if let == (detail != "") {
			t.Fatalf("Check(%s) = %q, %v", a, detail, let)
		}
		if !let {
			return
		}
		if a.IsMulticast() || a.IsUnspecified() || a.Is4In6() {
			t.Fatalf("%s let %s in", p, a)
		}
		if (a == own || addr.IsMetadata(a)) && !(p.IsSingleIP() && p.Addr() == a) {
			t.Fatalf("%s let %s in", p, a)
		}
		if a.IsLoopback() && !p.Addr().IsLoopback() {
			t.Fatalf("%s let %s in", p, a)
		}
		if _, pub := addr.Class(a); !pub && !p.Contains(a) {
			t.Fatalf("%s let %s in, which it does not hold", p, a)
		}
	})
}
