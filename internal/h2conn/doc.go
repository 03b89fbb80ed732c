// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package h2conn speaks HTTP/2 on one connection, as a server to agents and as
// a client to upstreams.
//
// It takes frames apart with the Framer of golang.org/x/net/http2 and header
// blocks with its hpack, and nothing else of it: streams, windows, bounds and
// the order of everything are here, because here is where a proxy is attacked.
// Package h2head turns header lists into heads and refuses what could be read
// in two ways.
//
// # Use
//
// A [Server] calls its handler in a goroutine of its own for each request, a
// [Client] opens a stream for each. A stream has one reader and one writer at
// a time; Reset, Done and the methods of Server and Client may be called from
// anywhere, and none of them waits for the peer. Every [ClientStream] ends by
// its body read to the end, or by Reset.
//
// What is written is gathered, across streams, and sent by Flush, by End, or
// when there is much of it. A Flush does not wait for the socket: who writes
// waits only while the peer gives no window, or while a buffer of the
// connection is full, and a Reset wakes it.
//
// # What is bounded
//
// Each connection has one reader, which never waits for anything but the peer's
// next octet: what it answers is queued, and a queue that the peer lets grow
// ends the connection. Bodies wait in memory up to the window of their stream,
// and windows are given back as bodies are read. Header blocks are bounded in
// octets, fields and frames. Frames that ask for work and carry none (pings,
// settings, priorities, resets, empty or tiny ones) draw on a budget that
// useful ones refill; see budget.go.
//
// While nothing happens a connection holds no buffers: they are taken when
// octets come, and given back when no more are there.
package h2conn
