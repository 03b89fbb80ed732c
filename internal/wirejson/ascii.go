// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package wirejson

import (
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// ASCII gives JSON text of the same meaning in ASCII: whatever an agent wrote does
// nothing where such text is shown. Outside of strings there is nothing else in
// it.
func ASCII(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r < 0x7f:
			out = append(out, text[0])
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		text = text[size:]
	}
	return out
}
