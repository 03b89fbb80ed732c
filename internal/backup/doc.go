// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package backup writes what an installation needs to come back into one
// archive, and brings it back.
//
// An archive is a gzipped tar whose last member is the manifest: every other
// member with its size, owner, mode and SHA-256. [Verify] reads all of it and
// checks all of it before anything is written; an archive may come from
// anywhere, so what does not fit is refused and nothing in it is followed.
//
// What lies in an archive is named by its part, not by its place: admin/,
// proxy/, etc/, and on demand journal/ and agents/. It holds the keys of the CA
// and of the record.
//
// # Numbers
//
// Generations and revisions that were handed out after the backup must not be
// handed out again. [Restore] keeps the higher of the host's own floor and the
// archive's, see [store.Floor]; where the host is another one, it goes beyond
// what can have been handed out in the time since. The record, that is the
// journals with their checkpoints and the key that signs them, is never set
// back: a host that has one keeps it.
package backup
