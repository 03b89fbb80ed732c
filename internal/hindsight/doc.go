// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hindsight asks what policy would make of what is on record: what a
// candidate would change ([Replay]), and which rules would allow what was denied
// ([Suggest]).
//
// A record is not the request. It has name, port, method, path and verdict; of
// the query a hash, of header fields and bodies nothing. So rules can be asked
// again, by the code that enforces them ([policy.Agent]), and guards cannot: what
// only they decide is counted as such, and never as allowed or denied. Whatever
// cannot be asked again is counted with the reason.
//
// Text in records was written by agents. It goes into reports as it is, which
// whoever prints them filters, and into policy text only where it has been
// through the canonicaliser and the policy parser.
package hindsight
