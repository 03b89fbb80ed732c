// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package audit keeps the record of who did what.
//
// A plane opens one [Journal] and calls [Journal.Decide] before it acts: when
// Decide has returned nil, the decision is in the file (written, so that
// kill -9 keeps it) and the act may follow. When Decide returns an error the
// plane refuses the request, with the code that [CodeOf] gives. What came of
// the act follows by [Journal.Outcome], which may ride with a later write.
//
// # Files
//
// A journal is a series of files PLANE-NUMBER-DAY.jsonl, one JSON object a
// line. Each record carries "prev", the SHA-256 of the line before it, without
// the newline; the first record of a file names the file before it, so that
// the chain runs through the series. Sequence numbers grow by one over the
// whole series. A crash may leave a torn last line: the next start leaves it
// where it is, says so in the next file's first record, and chains on from the
// last whole record. [Verify] checks all of it.
//
// # Concurrency
//
// A Journal may be used by many goroutines; decisions that arrive while a
// write is under way share the next one. A lock on the series keeps a second
// process out. Readers ([Scan], [Follow], [Verify]) need no lock.
//
// # Text
//
// Records hold text that agents wrote. Control characters, also those beyond
// ASCII, are escaped, so that showing a journal file on a terminal is
// harmless; decoded text must be treated as hostile again.
package audit
