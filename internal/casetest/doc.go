// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package casetest runs case files: an agent's policy, what the agent sends,
// and what has to come of it, in one text file. docs/case-files.md has the
// format.
//
// [Main] is the verb "bawn policy test", [Run] runs one case. A case runs
// through the real egress server over connections in memory, with real TLS under
// a throw-away root, a pretend resolver and a pretend upstream: no root, no
// daemon, no socket, no network. Questions go to the real resolver of agents. What
// decides is the code that enforces. Package talk speaks HTTP/2 and WebSockets, on
// both sides, here and where the cases run on the live proxy.
//
// A section that this build cannot run makes the case fail with "not yet
// supported", and an unknown section is an error: a case never passes because
// part of it was not looked at.
package casetest
