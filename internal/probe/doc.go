// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package probe attacks the boundary from an agent's place and judges what came
// of it.
//
// [Run] is the program that stands in the agent's place: Bawn's own binary, run
// as an agent whose policy allows nothing. It tries every way out that it
// knows, all at once, and writes one [Try] a line. [Evaluate] is pure: it turns
// the tries, and what the firewall counted meanwhile, into findings of package
// doctor.
//
// # What is harmed if the wall is open
//
// Nothing. Tries aim at addresses of documentation, at local stubs that answer
// for "invalid" themselves, at metadata services, of which a page is asked that
// tells nothing, and at listeners opened for the purpose.
//
// # What counts as out
//
// A connection alone proves nothing in a network namespace: Bawn's own listener
// accepts every TCP port there. Out is whatever came back from anything but
// Bawn: bytes, a certificate that is not Bawn's, an answer without a Bawn-Code,
// or any connection at all where Bawn has no such listener. What was sent into
// silence cannot be seen from inside; that is what the counters are for. A
// check of which no try was reported has failed.
package probe
