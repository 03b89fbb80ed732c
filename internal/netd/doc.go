// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package netd is the server of netd.sock: the only part of Bawn that is root,
// and the only one that touches namespaces, firewall, cgroups and accounts.
//
// It decides nothing about traffic and carries none. It is asked by admin, to
// make and remove accounts and to start and stop sessions, and by the proxy,
// which takes over the listeners of each session. Whoever asks is known by the
// kernel's word on the peer of the socket, and each request is checked as if
// it came from an enemy: the two accounts are not root, and this package must
// not make them so.
//
// # A session
//
// A session is built in steps, each of which can be taken back: cgroups,
// network, listeners handed to the proxy and acknowledged, program. Whatever
// ends the program takes the steps back in reverse.
//
// # What outlives netd
//
// Nothing. Programs die with the thread that started them, namespaces with
// their descriptors, and the next start removes what else carries Bawn's mark
// (I13). The firewall's table stays until then, so that it is gone only after
// the agents are.
//
// # Order of calls
//
// [DropCaps] first, then [Open], then [Server.Serve] until the end.
package netd
