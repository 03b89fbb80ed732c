// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"testing"

	"bawn/internal/roottest"
	"bawn/internal/world"
	"bawn/internal/world/operator"
)

func TestDoctorScratch(t *testing.T) {
	roottest.Require(t)
	w := world.New(t)
	op, err := operator.Start(t.Context(), w, operator.Options{Binary: built.bawn(t)})
	if err != nil {
		t.Log(err)
		t.Log(op)
		return
	}
	h := &host{op, w}
	out, err := h.Bawn(t.Context(), "doctor", "-v")
	t.Logf("%v\n%s", err, out)
	t.Log(h.bawn(t, "status"))
	t.Log(h.Log())
	t.Log(h.root(t, "grep -h decision /var/lib/bawn/proxy/journal/* | grep -v summary | tail -n 40 | cut -c1-600"))
}
