// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package addr_test

import (
	"encoding/csv"
	"net/netip"
	"os"
	"strings"
	"testing"

	"bawn/internal/addr"
)

// notPublic holds, by attack, addresses that a name must never lead to.
var notPublic = map[string][]string{
	"unspecified":                   {"0.0.0.0", "::"},
	"this network":                  {"0.0.0.1", "0.255.255.255"},
	"loopback":                      {"127.0.0.1", "127.127.127.127", "127.255.255.255", "::1"},
	"private":                       {"10.0.0.0", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.0.1"},
	"shared (CGNAT)":                {"100.64.0.1", "100.127.255.255"},
	"link-local":                    {"169.254.0.1", "169.254.169.254", "fe80::1", "fe81::1", "febf:ffff::1"},
	"unique-local":                  {"fc00::1", "fd00::1", "fdff:ffff::1"},
	"site-local":                    {"fec0::1", "feff::1"},
	"cloud metadata":                {"169.254.169.254", "168.63.129.16", "100.100.100.200", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254"},
	"benchmarking":                  {"198.18.0.0", "198.19.255.255", "2001:2::1"},
	"documentation":                 {"192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "3fff::1", "3fff:fff::1"},
	"IETF protocol assignments":     {"192.0.0.1", "192.0.0.8", "192.0.0.170", "192.0.0.171", "192.0.0.255", "2001:1::4"},
	"reserved":                      {"240.0.0.1", "255.255.255.254"},
	"broadcast":                     {"255.255.255.255"},
	"multicast":                     {"224.0.0.1", "239.255.255.255", "ff02::1", "ff0e::1", "ff00::"},
	"6to4 relay":                    {"192.88.99.1", "192.88.99.2"},
	"IPv4-mapped":                   {"::ffff:169.254.169.254", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::ffff:10.0.0.1"},
	"IPv4-compatible":               {"::169.254.169.254", "::7f00:1", "::8.8.8.8", "::2"},
	"IPv4-translated":               {"::ffff:0:a9fe:a9fe", "::ffff:0:808:808"},
	"NAT64 of what is not public":   {"64:ff9b::a9fe:a9fe", "64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b::", "64:ff9b::a83f:8110", "64:ff9b::6464:64c8", "64:ff9b::e000:1"},
	"NAT64 of a site":               {"64:ff9b:1::808:808", "64:ff9b:1:ffff::1"},
	"other neighbours of NAT64":     {"64:ff9b:0:1::1", "64:ff9a::1", "64:ff9b::1:0:0"},
	"6to4":                          {"2002:a9fe:a9fe::", "2002:a9fe:a9fe::1", "2002:7f00:1::", "2002:808:808::1"},
	"Teredo":                        {"2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2"},
	"ORCHID, withdrawn":             {"2001:10::1"},
	"discard-only and dummy prefix": {"100::1", "100:0:0:1::1"},
	"segment routing":               {"5f00::1"},
	"6bone, returned":               {"3ffe::1"},
	"not allocated":                 {"4000::1", "8000::1", "1::1", "200::1", "1fff:ffff::1", "e000::1"},
	"zone":                          {"fe80::1%eth0", "2606:4700::1111%eth0", "::1%.ok.example"},
}

var public = []string{
	"1.1.1.1", "8.8.8.8", "140.82.114.4", "100.63.255.255", "100.128.0.0", "128.0.0.1", "172.15.255.255", "172.32.0.0",
	"168.63.129.15", "192.0.0.9", "192.0.0.10", "192.0.1.0", "198.17.255.255", "198.20.0.0", "223.255.255.255",
	"2606:4700:4700::1111", "2001:4860:4860::8888", "2001:200::1", "2a00:1450:4001::1", "3ffd::1", "3fff:1000::1",
	"2001:4:112::1", "2001:20::1", "64:ff9b::808:808",
}

// TestI6OnlyPublicAddresses: the rows of the attack catalogue on addresses.
func TestI6OnlyPublicAddresses(t *testing.T) {
	for attack, addrs := range notPublic {
		for _, s := range addrs {
			a := netip.MustParseAddr(s)
			if name, pub := addr.Class(a); pub || name == "" {
				t.Errorf("%s: Class(%s) = %q, public %v", attack, s, name, pub)
			}
			detail, ok := (addr.Vet{}).Check(a)
			if ok || !strings.Contains(detail, a.String()) {
				t.Errorf("%s: Check(%s) = %q, %v", attack, s, detail, ok)
			}
		}
	}
	for _, s := range public {
		a := netip.MustParseAddr(s)
		if name, pub := addr.Class(a); !pub {
			t.Errorf("Class(%s) = %q, not public", s, name)
		}
		if detail, ok := (addr.Vet{}).Check(a); !ok {
			t.Errorf("Check(%s): refused: %s", s, detail)
		}
	}
	if _, pub := addr.Class(netip.Addr{}); pub {
		t.Error("no address is public")
	}
	if _, ok := (addr.Vet{}).Check(netip.Addr{}); ok {
		t.Error("no address is let in")
	}
}

func TestIsMetadata(t *testing.T) {
	for _, s := range notPublic["cloud metadata"] {
		if !addr.IsMetadata(netip.MustParseAddr(s)) {
			t.Errorf("%s is no metadata address", s)
		}
	}
	for _, s := range []string{"::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "169.254.170.2"} {
		if !addr.IsMetadata(netip.MustParseAddr(s)) {
			t.Errorf("%s is no metadata address", s)
		}
	}
	for _, s := range []string{"8.8.8.8", "169.254.1.1", "fd00::1", "64:ff9b::808:808"} {
		if addr.IsMetadata(netip.MustParseAddr(s)) {
			t.Errorf("%s is a metadata address", s)
		}
	}
	if addr.IsMetadata(netip.Addr{}) {
		t.Error("no address is a metadata address")
	}
}

// registry is the second reader of the committed files: no order, no table.
type registryRow struct {
	prefix netip.Prefix
	public bool
}

func registry(t testing.TB) []registryRow {
	t.Helper()
	var rows []registryRow
	for _, name := range []string{"ipv4", "ipv6", "more"} {
		f, err := os.Open("iana/" + name + ".csv")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		r := csv.NewReader(f)
		r.Comment = '#'
		records, err := r.ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		for _, rec := range records[1:] {
			rows = append(rows, registryRow{netip.MustParsePrefix(rec[0]), rec[3] == "true"})
		}
	}
	return rows
}

// reachable walks all rows and keeps the longest that holds a; the IPv4 space
// outside of them is public.
func reachable(rows []registryRow, a netip.Addr) bool {
	best, pub := -1, a.Is4()
	for _, r := range rows {
		if r.prefix.Contains(a) && r.prefix.Bits() > best {
			best, pub = r.prefix.Bits(), r.public
		}
	}
	return pub
}

// FuzzI6Class: the table agrees with a brute-force reading of the registry
// files, and nothing that net/netip calls private, local or multicast is public.
func FuzzI6Class(f *testing.F) {
	rows := registry(f)
	for _, addrs := range notPublic {
		for _, s := range addrs {
			f.Add(netip.MustParseAddr(s).WithZone("").AsSlice())
		}
	}
	for _, r := range rows { // both edges of each block and their outer neighbours
		first, last := r.prefix.Addr(), lastOf(r.prefix)
		for _, a := range []netip.Addr{first, last, first.Prev(), last.Next()} {
			if a.IsValid() {
				f.Add(a.AsSlice())
			}
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, ok := netip.AddrFromSlice(b)
		if !ok {
			return
		}
		_, got := addr.Class(a)
		want := reachable(rows, a)
		if b := a.As16(); netip.MustParsePrefix("64:ff9b::/96").Contains(a) {
			want = reachable(rows, netip.AddrFrom4([4]byte(b[12:])))
		}
		if got != want {
			t.Fatalf("Class(%s): public %v, registry %v", a, got, want)
		}
		if u := a.Unmap(); got && (u.IsPrivate() || u.IsLoopback() || u.IsMulticast() || u.IsUnspecified() || u.IsLinkLocalUnicast() || !u.IsGlobalUnicast()) {
			t.Fatalf("Class(%s) is public", a)
		}
		if _, pub := addr.Class(a.WithZone("x")); pub && a.Is6() {
			t.Fatalf("%s%%x is public", a)
		}
		if _, ok := (addr.Vet{}).Check(a); ok != got {
			t.Fatalf("Check(%s) lets in: %v, public: %v", a, ok, got)
		}
	})
}

func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

func TestBlocksMostSpecificFirst(t *testing.T) {
	n, v4, bits := 0, true, 33
	for b := range addr.Blocks() {
		n++
		if b.Name == "" || b.Source == "" {
			t.Errorf("%s has no name or no source", b.Prefix)
		}
		if v4 && b.Prefix.Addr().Is6() {
			v4, bits = false, 129
		}
		if b.Prefix.Bits() > bits || b.Prefix.Addr().Is4() != v4 {
			t.Errorf("%s stands too late", b.Prefix)
		}
		bits = b.Prefix.Bits()
	}
	if want := len(registry(t)); n != want {
		t.Errorf("%d blocks, the files hold %d", n, want)
	}
}
