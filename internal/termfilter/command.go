// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package termfilter

import (
	"bytes"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxTitle is the length of a window's title, in characters.
const maxTitle = 255

// endCommand judges the operating system command (OSC) in hand, which
// terminator ended.
func (f *Filter) endCommand(dst []byte, terminator string) []byte {
	number, rest, some := bytes.Cut(f.seq, []byte(";"))
	if some && !f.Plain {
		switch string(number) {
		case "0", "1", "2":
			dst = append(dst, esc, ']')
			dst = append(dst, number...)
			dst = append(dst, ';')
			dst = appendTitle(dst, rest)
			dst = append(dst, terminator...)
		case "4":
			if !f.over && asksColours(string(rest)) {
				dst = f.command(dst, terminator)
			}
		case "10", "11", "12":
			if string(rest) == "?" {
				dst = f.command(dst, terminator)
			}
		}
	}
	f.enter(ground)
	return dst
}

// command appends the command in hand as it came.
func (f *Filter) command(dst []byte, terminator string) []byte {
	dst = append(dst, esc, ']')
	dst = append(dst, f.seq...)
	return append(dst, terminator...)
}

// appendTitle appends what a title may hold of text.
func appendTitle(dst, text []byte) []byte {
	n := 0
	for len(text) > 0 && n < maxTitle {
		if !utf8.FullRune(text) {
			return dst // cut at the bound
		}
		r, size := utf8.DecodeRune(text)
		text = text[size:]
		if !inTitle(r) {
			continue
		}
		dst = utf8.AppendRune(dst, r)
		n++
	}
	return dst
}

// inTitle reports whether a title may hold r. A title stands in the person's
// own lists of windows, outside of the agent's screen, so nothing in it may
// hide or turn text round. Emoji need joiners and variation selectors.
func inTitle(r rune) bool {
	switch r {
	case '\u200c', '\u200d', '\ufe0e', '\ufe0f':
		return true
	}
	return !unicode.IsControl(r) && !invisible(r)
}

// asksColours reports whether the parameters of OSC 4 only ask: pairs of an
// index up to 255 and a question mark.
func asksColours(rest string) bool {
	fields := strings.Split(rest, ";")
	if len(fields)%2 != 0 || len(fields) > maxParams {
		return false
	}
	for i := 0; i < len(fields); i += 2 {
		n, err := strconv.ParseUint(fields[i], 10, 8)
		if err != nil || strconv.FormatUint(n, 10) != fields[i] || fields[i+1] != "?" {
			return false
		}
	}
	return true
}
