// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package codes

import (
	"strings"
	"testing"
)

// TestGuidanceNamesWhatIsKnown: who knows code and agent is not told to fill them
// in.
func TestGuidanceNamesWhatIsKnown(t *testing.T) {
	e, _ := Lookup(HostInvalid)
	if got := e.OperatorFor("dev"); !strings.HasPrefix(got, "`bawn log --code host_invalid --agent dev` ") {
		t.Error(got)
	}
	e, _ = Lookup(HostNotAllowed)
	if got := e.OperatorFor("dev"); !strings.HasPrefix(got, "`bawn policy explain dev METHOD URL` ") {
		t.Error(got)
	}
	for _, e := range Catalogue() {
		if got := e.OperatorFor("dev"); strings.Contains(got, "--code CODE") || strings.Contains(got, "NAME`") {
			t.Errorf("%s: %s", e.Code, got)
		}
	}
}
