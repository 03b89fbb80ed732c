// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package roottest gates the tests that need root and a Linux kernel.
//
// One switch decides what a missing condition means: with BAWN_TESTS=all a
// skip is a failure, so that continuous integration cannot pass by not
// running.
package roottest

import (
	"os"
	"testing"
)

// All reports whether every ring must run (BAWN_TESTS=all).
func All() bool { return os.Getenv("BAWN_TESTS") == "all" }

// Require skips t unless it runs as root.
func Require(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		Skip(t, "needs root")
	}
}

// Skip skips t for the reason given, and fails it where every ring must run.
func Skip(t testing.TB, why string) {
	t.Helper()
	if All() {
		t.Fatalf("BAWN_TESTS=all, and this test cannot run: %s", why)
	}
	t.Skip(why)
}

// Count returns how often a test that draws cases repeats: few in the usual
// run, which is seeded and quick, all with BAWN_SOAK set ("make soak").
func Count(few, all int) int {
	if os.Getenv("BAWN_SOAK") != "" {
		return all
	}
	return few
}
