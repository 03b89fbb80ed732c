// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package strictjson

import (
	"math"
	"strconv"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"bawn/internal/codes"
)

// text reads a string and returns what stands between its quotes, escapes as
// they are.
func (c *checker) text() ([]byte, error) {
	c.at++
	start := c.at
	for c.at < len(c.data) {
		switch b := c.data[c.at]; {
		case b == '"':
			c.at++
			return c.data[start : c.at-1], nil
		case b < ' ':
			return nil, c.refuse(codes.BodyNotJSON, "a control character in a string")
		case b != '\\':
			c.at++
		default:
			n, detail := escape(c.data[c.at:])
			if detail != "" {
				return nil, c.refuse(codes.BodyNotJSON, detail)
			}
			c.at += n
		}
	}
	return nil, c.unexpected("the end of a string")
}

// escape returns how long the escape at the beginning of b is, a pair of
// surrogates being one, or what is wrong with it.
func escape(b []byte) (n int, detail string) {
	if len(b) < 2 {
		return 0, "the document ends in an escape"
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2, ""
	case 'u':
	default:
		return 0, "an unknown escape"
	}
	r, ok := unhex(b)
	switch {
	case !ok:
		return 0, "an escape without four hexadecimal digits"
	case !utf16.IsSurrogate(r):
		return 6, ""
	}
	if low, ok := unhex(b[6:]); ok && utf16.DecodeRune(r, low) != utf8.RuneError {
		return 12, ""
	}
	return 0, "a surrogate alone"
}

// unhex reads \uXXXX.
func unhex(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, d := range b[2:6] {
		switch {
		case '0' <= d && d <= '9':
			d -= '0'
		case 'a' <= d|0x20 && d|0x20 <= 'f':
			d = d | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(d)
	}
	return r, true
}

// number reads a number that every reader can hold, if not exactly.
func (c *checker) number() error {
	start := c.at
	end := start
	for end < len(c.data) && isNumber(c.data[end]) {
		end++
	}
	s := c.data[start:end]
	switch {
	case len(s) > c.lim.Number:
		return c.refuse(codes.BodyNotJSON, "a number of more than "+strconv.Itoa(c.lim.Number)+" characters")
	case !wellFormed(s):
		return c.refuse(codes.BodyNotJSON, "not a number")
	}
	if f, _ := strconv.ParseFloat(string(s), 64); math.IsInf(f, 0) {
		return c.refuse(codes.BodyNotJSON, "a number that is too large")
	}
	c.at = end
	return nil
}

func isNumber(b byte) bool {
	return '0' <= b && b <= '9' || b == '-' || b == '+' || b == '.' || b == 'e' || b == 'E'
}

// wellFormed reports whether s is a number of RFC 8259 section 6.
func wellFormed(s []byte) bool {
	if len(s) > 0 && s[0] == '-' {
		s = s[1:]
	}
	whole := digits(s)
	if whole == 0 || whole > 1 && s[0] == '0' {
		return false
	}
	s = s[whole:]
	if len(s) > 0 && s[0] == '.' {
		n := digits(s[1:])
		if n == 0 {
			return false
		}
		s = s[1+n:]
	}
	if len(s) > 0 && s[0]|0x20 == 'e' {
		s = s[1:]
		if len(s) > 0 && (s[0] == '+' || s[0] == '-') {
			s = s[1:]
		}
		n := digits(s)
		if n == 0 {
			return false
		}
		s = s[n:]
	}
	return len(s) == 0
}

func digits(s []byte) int {
	n := 0
	for n < len(s) && '0' <= s[n] && s[n] <= '9' {
		n++
	}
	return n
}

// folded brings a key into the one form of all keys that a reader who does not
// regard case would take for it. It reports false for a key with NUL in it, at
// which some readers stop.
func folded(raw []byte) (string, bool) {
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); {
		b := raw[i]
		switch {
		case b == '\\':
			r, n := unescape(raw[i:])
			if r == 0 {
				return "", false
			}
			out = utf8.AppendRune(out, fold(r))
			i += n
		case b < utf8.RuneSelf:
			if 'a' <= b && b <= 'z' {
				b -= 'a' - 'A'
			}
			out = append(out, b)
			i++
		default:
			r, n := utf8.DecodeRune(raw[i:])
			out = utf8.AppendRune(out, fold(r))
			i += n
		}
	}
	return string(out), true
}

// unescape reads an escape that has been checked.
func unescape(b []byte) (r rune, n int) {
	switch b[1] {
	case 'u':
		r, _ = unhex(b)
		if utf16.IsSurrogate(r) {
			low, _ := unhex(b[6:])
			return utf16.DecodeRune(r, low), 12
		}
		return r, 6
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	}
	return rune(b[1]), 2
}

// fold returns the least of the characters that differ from r in case only.
func fold(r rune) rune {
	least := r
	for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
		least = min(least, next)
	}
	return least
}
