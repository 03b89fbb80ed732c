// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proc_test

import (
	"os"
	"testing"

	"bawn/internal/proc"
)

// TestMain lets the test binary be process 1 of an agent.
func TestMain(m *testing.M) {
	proc.MaybeStage()
	os.Exit(m.Run())
}
