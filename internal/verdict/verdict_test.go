// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package verdict_test

import (
	"testing"

	"bawn/internal/codes"
	"bawn/internal/verdict"
)

func TestI12UndecidedIsDeny(t *testing.T) {
	var v verdict.Verdict
	if v.Allowed() || v.Effect != verdict.Deny || v.Why() != codes.InternalError {
		t.Errorf("the zero verdict is %v with code %q", v.Effect, v.Why())
	}
	for e := verdict.Effect(0); e < 255; e++ {
		if (verdict.Verdict{Effect: e}).Allowed() != (e == verdict.Allow) {
			t.Errorf("effect %d lets through", e)
		}
	}
}
