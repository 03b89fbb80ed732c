// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policy reads policies and decides by them.
//
// A policy is a YAML file of profiles (rule lists that agents share) and agents
// (a profile, and rules of their own). [Parse] reads it strictly and reports
// every problem with its line, [Compile] checks it against what exists and what
// this build can enforce, and [Policy.Agent] gives the part about one agent,
// which decides:
//
//	p, err := policy.Load(src, policy.Known{Agents: registered})
//	d := p.Agent("dev").Name(host, 443, now)       // a tunnel, a connection
//	d = p.Agent("dev").Request(query, now)         // the head of a request
//	e := p.Agent("dev").Explain(query, now)        // the same, with every rule's say
//
// # What rules mean
//
// A rule that denies wins over every rule that allows, the order makes no
// difference, and what no rule allows is denied. Where several rules allow a
// request, the strictest of their inspect values and all of their guards apply.
// The nil [Policy] and the nil [Agent] deny everything.
//
// What is in the format and not in this build is refused by [Compile], never
// ignored: an ignored line would allow what it was to prevent.
//
// # Rules of the house
//
// Decisions are pure: the time is handed in, and nothing is looked up. A Policy
// never changes and may be used by many goroutines. The keys of the format are
// listed once, in keys.go, from which the parser, the JSON Schema ([Schema]) and
// the reference page ([Reference]) are read off.
//
// The pages about the format are generated with go generate.
package policy

//go:generate go run ./docgen ../../docs
