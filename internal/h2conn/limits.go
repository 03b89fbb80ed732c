// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package h2conn

import "bawn/internal/httpwire"

// Limits bound a connection. A zero field means its default.
type Limits struct {
	// Streams is how many streams a client may have open at a time, and how
	// many a [Client] opens if the server names no number. Default 128.
	Streams int
	// StreamWindow and ConnWindow are how many octets of one body, and of all
	// bodies of the connection, wait in memory until they are read. Default 256
	// KiB and 1 MiB for a server, 1 MiB and 4 MiB for a client, whose peer is
	// farther away.
	StreamWindow int
	ConnWindow   int
	// Room bounds the windows of the connections that share it. A connection
	// that finds none has the least that HTTP/2 allows. nil: no bound.
	Room *Room
	// Panicked is told of a panic over what the peer has sent, while it is
	// handled. nil: nobody is.
	Panicked func(any)
	// Wire bounds the heads.
	Wire httpwire.Limits
}

const (
	maxFrame   = 16 << 10               // octets of a frame's payload, in both directions: the least that HTTP/2 allows
	maxData    = maxFrame - frameHeader // of DATA that we send, so that a frame fits into one record of TLS
	maxWindow  = 1<<31 - 1              // of a flow-control window
	initWindow = 64<<10 - 1

	defaultTable = 4 << 10 // octets of an HPACK table, unless settings say otherwise
)

func (l Limits) orDefault(server bool) Limits {
	set := func(v *int, forServer, forClient int) {
		switch {
		case *v > 0:
		case server:
			*v = forServer
		default:
			*v = forClient
		}
	}
	set(&l.Streams, 128, 128)
	set(&l.StreamWindow, 256<<10, 1<<20)
	set(&l.ConnWindow, 1<<20, 4<<20)
	l.StreamWindow = min(l.StreamWindow, maxWindow)
	l.ConnWindow = min(max(l.ConnWindow, initWindow), maxWindow) // a connection's can only grow
	l.Wire = l.Wire.OrDefault()
	return l
}

// Bounds of one header block, beside those of [httpwire.Limits] on what it
// decodes to. Within these a list that is too long is answered; beyond them the
// connection ends.
const (
	maxContinuations = 64
	blockSlack       = 2 // times the octets of a head
)
