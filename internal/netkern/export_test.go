// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netkern

// For tests: the parts that Build is made of.
var (
	BuildChecked = build
	InNamespace  = inNamespace
	OnThread     = onThread
	LoadTable    = loadTable
)
