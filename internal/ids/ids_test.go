// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package ids_test

import (
	"testing"

	"bawn/internal/ids"
)

func TestNamesFitAccounts(t *testing.T) {
	for _, ok := range []string{"a", "dev", "build-7", "x01234567890123456789012345"} {
		if err := ids.CheckName(ok); err != nil {
			t.Errorf("%q refused: %v", ok, err)
		}
	}
	for _, bad := range []string{"", "A", "7up", "-a", "a-", "a.b", "a b", "ä", "a\n", "../x", "x0123456789012345678901234567"} {
		if err := ids.CheckName(bad); err == nil {
			t.Errorf("%q accepted", bad)
		}
	}
}

func FuzzGeneration(f *testing.F) {
	f.Add("3.14")
	f.Fuzz(func(t *testing.T, s string) {
		var g, again ids.Generation
		if g.UnmarshalText([]byte(s)) != nil {
			return
		}
		if err := again.UnmarshalText([]byte(g.String())); err != nil || again != g {
			t.Errorf("%q read as %v, written and read again as %v, %v", s, g, again, err)
		}
	})
}
