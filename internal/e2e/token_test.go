// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"crypto/rand"
	"encoding/hex"
)

// token returns a word that nothing else uses, to find a request again.
func token() string {
	b := make([]byte, 6)
	rand.Read(b)
	return "t" + hex.EncodeToString(b)
}
