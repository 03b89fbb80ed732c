// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package termfilter makes text that an agent wrote safe for a person's
// terminal.
//
// A terminal obeys what it is shown. Most of what it can be told is what a
// full-screen program needs, and some of it works against the person who
// looks: it writes to the clipboard, types an answer of the agent's choice on
// the person's keyboard, changes what keys send, moves windows or drives the
// printer. Writer and Filter let the first kind through and drop the second,
// for output which must stay a terminal's output. Line makes one string
// visible and harmless, for a cell of a table.
//
// The package decides by an allow list: a sequence that it does not know is
// dropped.
package termfilter
