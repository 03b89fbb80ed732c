// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
)

// markBefore and markAfter stand around the sum in a file's first line.
const (
	markBefore = "# Installed by Bawn, sha256 "
	markAfter  = " of what follows. "
)

// marked puts the mark in front of text, with advice for whoever wants to
// change it.
func marked(text []byte, advice string) []byte {
	sum := sha256.Sum256(text)
	return append([]byte(markBefore+hex.EncodeToString(sum[:])+markAfter+advice+"\n"), text...)
}

// A state is what a file of the host is to us.
type state int

const (
	foreign  state = iota // somebody else's
	edited                // ours, and changed since
	pristine              // as we wrote it, in this version or another
)

// stateOf reads the mark of a file.
func stateOf(text []byte) state {
	first, rest, ok := bytes.Cut(text, []byte("\n"))
	sum, isMark := bytes.CutPrefix(first, []byte(markBefore))
	if !ok || !isMark {
		return foreign
	}
	hexed, _, ok := bytes.Cut(sum, []byte(markAfter))
	want, err := hex.DecodeString(string(hexed))
	if !ok || err != nil {
		return foreign
	}
	if got := sha256.Sum256(rest); !bytes.Equal(got[:], want) {
		return edited
	}
	return pristine
}
