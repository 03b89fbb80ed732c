// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package httpwire

// What an octet may be part of.
const (
	isToken   = 1 << iota // tchar, RFC 9110 section 5.6.2
	isValue               // field-content with blanks, RFC 9110 section 5.5
	isTarget              // visible ASCII: what a request target may hold at all
	isPlain               // stands for itself in a canonical path: pchar without "%", and "/"
	isHex                 // hexadecimal digit
	isUnsplit             // unreserved, RFC 3986 section 2.3: decoded where escaped
)

// octets says for each octet what it may be part of.
var octets = makeOctets()

func makeOctets() (t [256]uint8) {
	for c := 0x21; c <= 0x7e; c++ {
		t[c] |= isValue | isTarget
	}
	for c := 0x80; c <= 0xff; c++ {
		t[c] |= isValue // obs-text
	}
	t[' '] |= isValue
	t['\t'] |= isValue
	for c := byte('a'); c <= 'z'; c++ {
		t[c] |= isToken | isPlain | isUnsplit
		t[c-0x20] |= isToken | isPlain | isUnsplit
	}
	for c := byte('0'); c <= '9'; c++ {
		t[c] |= isToken | isPlain | isUnsplit | isHex
	}
	for c := byte('a'); c <= 'f'; c++ {
		t[c] |= isHex
		t[c-0x20] |= isHex
	}
	mark(&t, "!#$%&'*+-.^_`|~", isToken)
	mark(&t, "-._~", isPlain|isUnsplit)
	mark(&t, "!$&'()*+,;=:@/", isPlain)
	return t
}

func mark(t *[256]uint8, set string, as uint8) {
	for i := range len(set) {
		t[set[i]] |= as
	}
}

// unhex gives the value of a hexadecimal digit.
func unhex(c byte) byte {
	switch {
	case c <= '9':
		return c - '0'
	case c >= 'a':
		return c - 'a' + 10
	default:
		return c - 'A' + 10
	}
}
