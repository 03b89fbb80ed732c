// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netd

import (
	"bawn/internal/doctor"
	"bawn/internal/netkern"
)

// WithCheck has check called before each step of every build, for tests that
// fail one.
func WithCheck(o Options, check func(step string) error) Options {
	o.check = check
	return o
}

// JudgeChains is judgeChains.
func JudgeChains(chains []netkern.OtherChain, err error) []doctor.Finding {
	return judgeChains(chains, err)
}
