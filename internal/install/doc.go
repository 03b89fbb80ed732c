// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package install puts Bawn on a host for good, and takes it away again: the
// units that have systemd do what "bawn up" does, the files that make accounts
// and directories at each start of the machine, and a configuration to begin
// with. The package of a distribution holds the same files ([Packaged]).
//
// A [Plan] says what would be done, file by file, and does nothing;
// [Plan.Apply] does it. What is put on the host carries a mark with a sum of
// the text: only marked files are replaced or removed, and one that somebody
// has changed since is kept unless it is told otherwise. What was there before
// and is not ours is never touched.
package install
