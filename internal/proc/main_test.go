// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proc_test

import (
	"os"
	"testing"

	"bawn/internal/proc"
)

// TestMain lets the test binary be process 1 of an agent, the program that
// tries things in the agent's place, and a starter that is then killed.
func TestMain(m *testing.M) {
	proc.MaybeStage()
	if len(os.Args) > 2 {
		switch os.Args[1] {
		case insideVerb:
			os.Exit(inside(os.Args[2:]))
		case starterVerb:
			os.Exit(starter(os.Args[2]))
		}
	}
	os.Exit(m.Run())
}
