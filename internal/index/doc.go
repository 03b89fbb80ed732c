// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package index is the audit index: what the planes' journals hold, in a form
// that can be asked.
//
// [Open] opens one SQLite file of its own. [Index.Run] reads the journals as
// they grow and puts each record into the index exactly once: the place up to
// which a journal has been read is kept in the transaction that keeps what was
// read. The journals are the record; the index can be thrown away at any time
// and is made anew from them, which also happens by itself when the file is
// damaged, gone or of another version. Nothing on the data path waits for it.
//
// # Form
//
// A part holds the entries of one day (UTC), in tables of its own, so that what
// is too old goes without touching the rest. An entry is a decision with its
// outcome, or whatever else a journal says. Its number is its time and so its
// order. What repeats from entry to entry (who, where to, what was decided, the
// kind of end) is its shape: a part has few of them, they are searched first,
// and requests, denials and bytes are counted by shape and hour, which is what
// [Index.Totals] adds up.
//
// # Concurrency
//
// An Index may be used by many goroutines. One goroutine writes, that of Run.
package index
