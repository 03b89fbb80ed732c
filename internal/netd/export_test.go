// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netd

// WithCheck has check called before each step of every build, for tests that
// fail one.
func WithCheck(o Options, check func(step string) error) Options {
	o.check = check
	return o
}
