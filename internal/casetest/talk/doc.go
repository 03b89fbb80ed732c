// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package talk speaks the protocols of case files that are more than bytes in
// one direction: as the agent's client, and as the server of the internet.
//
// The same code serves a case in memory and on the live proxy, on whatever
// connection it is handed. It is made of frame codecs only, so that it can send
// what no library would, and it never looks at time: who hands in a connection
// sets its deadline.
//
// [H2] is a client and [ServeH2] a server of HTTP/2. ServeH2 also reads back
// what a server got, from its bytes alone.
package talk
