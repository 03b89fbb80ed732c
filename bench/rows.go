// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

// A row is one thing that is measured of every peer that can do it.
type row struct {
	name string
	what string // for the report
	unit string // what is counted

	kind    string // of load
	proto   string // h1, h2 or ws: what a peer has to read
	conns   int
	streams int
	deflate bool
	host    string // of the upstream; empty: the one that is looked into
	last    string // element of the path, which tells the upstream what is wanted

	open   bool    // latencies are measured from when something was due
	rate   float64 // arrivals a second; 0 in an open row: half of what the peer can do
	denied bool    // nothing must reach the upstream
	perTie bool    // on record for each connection, not each unit
	fresh  bool    // peers start anew: their memory is measured, not their CPU
	only   string  // the one peer that it is about, beside the floor
	once   bool    // in the first run only
}

// half reports whether the row's rate depends on the peer.
func (r *row) half() bool { return r.kind == "h1open" && r.rate == 0 }

// units is the plural of what is counted.
func (r *row) units() string {
	if r.unit == "MB" {
		return r.unit
	}
	return r.unit + "s"
}

// idle reports whether the row is about connections that wait.
func (r *row) idle() bool { return r.fresh }

// large reports whether it is about many of them.
func (r *row) large() bool { return r.conns >= 10_000 }

// path is what the row asks for. Its first element behind the prefix is the
// row's name, by which its lines are found in logs.
func (r *row) path() string {
	prefix, last := allowedPath, r.last
	if r.denied {
		prefix = deniedPath
	}
	if last == "" {
		last = "small"
	}
	return prefix + r.name + "/" + last
}

// word is what the row's lines in logs are found by.
func (r *row) word() string {
	if r.host == spliceHost {
		return r.host
	}
	return r.name
}

// calibration measures what a peer can do where the row that does is left out.
var calibration = row{name: "calibration", unit: "request", kind: "h1", proto: "h1", conns: 32}

var rows = []row{
	{name: "keep-h1", what: "1 KB over 32 connections that stay open, HTTP/1.1 on both sides", unit: "request", kind: "h1", proto: "h1", conns: 32},
	{name: "keep-h2", what: "1 KB over 4 connections that stay open, 8 streams at a time on each, HTTP/2 on both sides", unit: "request", kind: "h2", proto: "h2", conns: 4, streams: 8, host: originH2},
	{name: "keep-h1-h2", what: "1 KB over 32 connections that stay open, HTTP/1.1 to an upstream that offers HTTP/2", unit: "request", kind: "h1", proto: "h1", conns: 32, host: originH2},
	{name: "new-h1", what: "1 KB over a new connection each time, 16 at a time, HTTP/1.1", unit: "request", kind: "h1new", proto: "h1", conns: 16},
	{name: "new-h2", what: "1 KB over a new connection each time, 16 at a time, HTTP/2", unit: "request", kind: "h2new", proto: "h2", conns: 16, host: originH2},
	{name: "down-10mb", what: "10 MB down, 4 connections, HTTP/1.1", unit: "MB", kind: "down", proto: "h1", conns: 4, last: "down"},
	{name: "up-50mb", what: "50 MB up, 2 connections, HTTP/1.1", unit: "MB", kind: "up", proto: "h1", conns: 2, last: "up"},
	{name: "ws-echo", what: "WebSocket, 1 KB of JSON out and back, each message judged and on record, 32 connections", unit: "echo", kind: "ws", proto: "ws", conns: 32, last: "ws"},
	{name: "ws-echo-deflate", what: "the same, compressed on each leg (permessage-deflate)", unit: "echo", kind: "ws", proto: "ws", conns: 32, last: "ws", deflate: true},
	{name: "sse", what: "event streams: 200 connections, 20 events of 200 B a second on each", unit: "event", kind: "sse", proto: "h1", conns: 200, last: "sse", open: true, perTie: true},
	{name: "deny", what: "refusals by path within TLS, 32 connections that stay open", unit: "refusal", kind: "deny", proto: "h1", conns: 32, denied: true},
	{name: "half-h1", what: "1 KB at half of the rate that the peer can do, constant arrivals, HTTP/1.1", unit: "request", kind: "h1open", proto: "h1", conns: 64, open: true},
	{name: "open-h1", what: "1 KB at 1,000 requests a second, constant arrivals, HTTP/1.1", unit: "request", kind: "h1open", proto: "h1", conns: 64, open: true, rate: 1000},
	{name: "idle-1000", what: "1,000 idle connections: TLS ended, one request made", unit: "connection", kind: "idle", proto: "h1", conns: 1000, fresh: true},
	{name: "idle-10000", what: "10,000 idle connections: TLS ended, one request made", unit: "connection", kind: "idle", proto: "h1", conns: 10_000, fresh: true, once: true},
	{name: "idle-splice-10000", what: "10,000 idle tunnels that are not looked into", unit: "connection", kind: "idle", proto: "tcp", conns: 10_000, host: spliceHost, fresh: true, once: true},
	{name: "idle-ws-10000", what: "10,000 idle WebSockets, one message echoed", unit: "connection", kind: "idlews", proto: "ws", conns: 10_000, last: "ws", fresh: true, once: true},
	{name: "idle-mix-10000", what: "10,000 idle tunnels: a third each of TLS ended, not looked into, and WebSockets", unit: "connection", kind: "idlemix", proto: "ws", conns: 10_000, last: "ws", fresh: true, once: true, only: "bawn"},
}
