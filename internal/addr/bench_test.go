// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package addr_test

import (
	"net/netip"
	"testing"

	"bawn/internal/addr"
)

// BenchmarkCheck: the worst case is a public address, which walks all rows.
func BenchmarkCheck(b *testing.B) {
	for _, s := range []string{"140.82.114.4", "2606:4700:4700::1111"} {
		b.Run(s, func(b *testing.B) {
			a := netip.MustParseAddr(s)
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := (addr.Vet{}).Check(a); !ok {
					b.Fatal("refused")
				}
			}
		})
	}
}
