// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2e holds the end-to-end tests: Bawn as it is built and documented,
// started by "bawn up" in a world of its own (package world), used by an
// operator without root, with real clients inside and an attacker who counts.
//
// Each invariant of the design has a test that names it. The tests look at
// what arrived (at servers, at the resolver, at the attacker) and at the
// journal files, and take no program's word for it.
//
// They need root, Linux and the programs that scripts/need installs.
package e2e
