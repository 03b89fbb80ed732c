// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package netplan decides what an agent's network place looks like: addresses,
// routes, listeners and firewall rules, as values that print.
//
// Nothing here touches the host. Package netkern applies a plan; tests compare
// its text. A plan depends on the slot's number and on nothing else, so that
// the same slot looks the same on every host and after every restart.
package netplan
