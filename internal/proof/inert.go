// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf16"
	"unicode/utf8"
)

// An inertEncoder writes JSON lines in ASCII without control characters: what
// agents wrote, or somebody put into a journal, does nothing where the file is
// shown.
type inertEncoder struct{ out io.Writer }

// Encode writes one line.
func (e inertEncoder) Encode(v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := e.out.Write(ascii(b.Bytes()))
	return err
}

// ascii gives JSON text of the same meaning in ASCII. Outside of strings there is
// nothing else in it.
func ascii(text []byte) []byte {
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
