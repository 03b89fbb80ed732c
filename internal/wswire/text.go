// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package wswire

import "unicode/utf8"

// A textCheck finds the first octet that makes a text no UTF-8, in pieces of
// any size.
type textCheck struct {
	part [utf8.UTFMax]byte // a character that has begun
	n    int
}

// write reports whether what came so far can be UTF-8 still.
func (c *textCheck) write(p []byte) bool {
	for c.n > 0 && len(p) > 0 {
		c.part[c.n] = p[0]
		c.n, p = c.n+1, p[1:]
		if utf8.FullRune(c.part[:c.n]) {
			if r, _ := utf8.DecodeRune(c.part[:c.n]); r == utf8.RuneError && !utf8.Valid(c.part[:c.n]) {
				return false
			}
			c.n = 0
		}
	}
	if len(p) == 0 {
		return true
	}
	cut := len(p)
	for i := 1; i < utf8.UTFMax && i <= len(p); i++ {
		if b := p[len(p)-i]; utf8.RuneStart(b) {
			if !utf8.FullRune(p[len(p)-i:]) {
				cut = len(p) - i
			}
			break
		}
	}
	c.n = copy(c.part[:], p[cut:])
	return utf8.Valid(p[:cut])
}

// end reports whether no character is left unfinished.
func (c *textCheck) end() bool { return c.n == 0 }
