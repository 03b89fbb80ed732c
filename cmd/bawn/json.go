// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

func printJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(visible(b.Bytes()))
	return err
}

// visible gives JSON text of the same meaning without characters that act on a
// terminal or hide: JSON itself escapes only those below U+0020, and what an
// agent wrote may hold others.
func visible(text []byte) []byte {
	if plain(text) {
		return text
	}
	out := make([]byte, 0, len(text)+16)
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == '\n' || r == '\t' || unicode.IsPrint(r) && r != utf8.RuneError:
			out = append(out, text[:size]...)
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

func plain(text []byte) bool {
	for _, c := range text {
		if c < ' ' && c != '\n' || c >= 0x7f {
			return false
		}
	}
	return true
}
