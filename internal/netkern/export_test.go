// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netkern

import "net/netip"

// For tests: the parts that Build is made of.
var (
	BuildChecked = build
	InNamespace  = inNamespace
	OnThread     = onThread
)

// For tests: the parts that OpenFirewall is made of, and one look.
var (
	OpenFirewallChecked = openFirewall
	FindCgroup2         = findCgroup2
	CheckPolicy         = checkPolicy
)

// Keep looks once, as Run does.
func (f *Firewall) Keep() { f.keep() }

// WithoutPrograms has Add leave the cgroups of slots unlocked, so that a test
// sees what the table does alone.
func (f *Firewall) WithoutPrograms() { f.attach = func(string, netip.AddrPort) error { return nil } }
