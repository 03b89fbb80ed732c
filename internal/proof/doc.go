// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package proof makes the record provable to others: that nothing in it was
// changed, removed or put in another order since it was written.
//
// A [Signer] in admin reads every journal as it grows and signs a [Checkpoint]
// every second or 1,000 records. It signs only what follows, in the journal's
// own chain, from what it signed before, and what is on the disk. Where a
// journal was changed it says so, signs nothing of what was changed and goes on
// in a new tree. The planes that write the journals have no part in it and no
// key.
//
// [Verify] checks a directory of journals and checkpoints with the public key
// alone. [Choose] takes records out with a proof for each, which [CheckChoice]
// checks. The forms and the algorithm are in docs/proof.md, from which alone a
// third party can do the same.
//
// # Concurrency
//
// A Signer may be asked by many goroutines while it runs. All else is for one
// at a time.
package proof
