// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package wswire reads and writes WebSocket streams (RFC 6455), compressed ones
// (RFC 7692) among them, strictly, in both roles.
//
// The boundary ends the WebSocket on each side and writes anew what it has
// judged. No frame, mask, extension parameter or compressed octet of one side
// reaches the other; messages do.
//
// # Use
//
// A [Reader] takes a peer's frames apart. [Reader.Next] waits for a message,
// [Reader.Read] gives its payload as it comes, decompressed and valid, and
// [Reader.Whole] all of it. Control frames may stand between the frames of a
// message: they are handed to [Reader.Control] where they stand. A [Writer]
// writes messages in pieces, each a frame, and control frames between them.
// [Accept], [Answer] and the like are the parts of the opening handshake; the
// heads themselves are those of package httpwire.
//
// # What is refused
//
// Everything that RFC 6455 says to fail a connection for: a mask on the wrong
// side, reserved bits and opcodes, lengths not in their shortest form, control
// frames in fragments or longer than 125 octets, fragments out of order, close
// frames with a status that may not be sent, text and close reasons that are
// not UTF-8 (found at the first wrong octet, not at the end). RFC 7692 adds: the
// compressed bit anywhere but on the first frame of a message, data that does
// not inflate or goes on behind its end. [Limits] bound what a message may
// hold, in how many frames it may come and how far it may inflate. An [*Error]
// has the close status that says so to the peer.
//
// # Memory
//
// Neither side keeps a compression context from one message to the next, so a
// stream that waits holds no window. What inflates or deflates is borrowed for
// one message or one piece.
//
// # Concurrency
//
// Nothing here is safe for use by more than one goroutine at a time, and
// nothing starts one. One goroutine may read and another write a stream.
package wswire
