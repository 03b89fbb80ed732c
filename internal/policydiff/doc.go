// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policydiff says in words what one policy lets through that another
// does not.
//
// It compares what policies do, not their text. For each agent it divides all
// that can be asked for into finitely many classes within which no rule of
// either policy tells two requests apart: by name (each exact name, the rest
// under each wildcard), port, TLS, time, method, path, WebSocket. One request of
// each class is put to both policies, that is to the code that enforces them
// ([policy.Agent]); what they answer holds for the class. So the comparison
// cannot read a rule otherwise than the proxy does, and it is exact but for what
// it cannot enumerate, which it says and counts as wider.
//
// # Which way is wider
//
// Wider is whatever lets something through that was not let through before:
// more requests, a connection that is inspected less, a guard that is gone,
// special-purpose addresses, names that no longer count as made up, another
// credential or none (whose authority a request has is part of it), a budget
// that is greater or gone. What only tightens is narrower. Ids, reasons, the
// order of rules and marks on records are neither.
//
// Everything here is pure; the time is handed in. What is in force only later,
// or only until some time, counts like what is in force now.
package policydiff
