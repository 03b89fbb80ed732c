// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package names

import "testing"

// TestTenantZonesAreCanonical: the list is written as Hosts, past Parse.
func TestTenantZonesAreCanonical(t *testing.T) {
	seen := map[Host]bool{}
	for _, z := range tenantZones {
		if h, err := Parse(z.zone.s); err != nil || h != z.zone {
			t.Errorf("%q is not canonical: %v", z.zone, err)
		}
		if seen[z.zone] {
			t.Errorf("%q stands twice", z.zone)
		}
		seen[z.zone] = true
		if z.why == "" {
			t.Errorf("%q has no reason", z.zone)
		}
		if _, wide := TooWide(Pattern{host: z.zone, wild: true}); !wide {
			t.Errorf("*.%s is not too wide", z.zone)
		}
	}
}
