// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package httpwire

import "strings"

// A kind says what a field means to the codec.
type kind uint8

const (
	plain            kind = iota // nothing
	host                         // RFC 9112 section 3.2
	contentLength                // RFC 9112 section 6.2
	transferEncoding             // RFC 9112 section 6.1
	connection                   // RFC 9110 section 7.6.1
	expect                       // RFC 9110 section 10.1.1
	upgrade                      // RFC 9110 section 7.8
	hop                          // another hop-by-hop field
	single                       // may appear once in a request
	lookalike                    // a framing name but for its hyphen, as CGI-like servers fold names
)

type knownField struct {
	lower string
	kind  kind
}

// knownFields are the names that the codec acts on. The single ones have one
// value by their definition; two of them are two meanings.
var knownFields = []knownField{
	{"host", host},
	{"content-length", contentLength},
	{"transfer-encoding", transferEncoding},
	{"connection", connection},
	{"expect", expect},
	{"upgrade", upgrade},

	// RFC 9110 sections 7.6.1 and 11.7, RFC 9112 appendix C.2.2.
	{"keep-alive", hop},
	{"proxy-connection", hop},
	{"proxy-authenticate", hop},
	{"proxy-authorization", hop},
	{"proxy-authentication-info", hop},
	{"te", hop},
	{"trailer", hop},
	{"http2-settings", hop},

	{"age", single},
	{"authorization", single},
	{"content-disposition", single},
	{"content-encoding", single},
	{"content-location", single},
	{"content-md5", single},
	{"content-range", single},
	{"content-type", single},
	{"date", single},
	{"from", single},
	{"if-modified-since", single},
	{"if-range", single},
	{"if-unmodified-since", single},
	{"max-forwards", single},
	{"origin", single},
	{"range", single},
	{"referer", single},
	{"sec-websocket-key", single},
	{"sec-websocket-version", single},
	{"user-agent", single},
	{"x-http-method", single},
	{"x-http-method-override", single},
	{"x-method-override", single},
}

// longest bounds the length of the names in knownFields.
const longest = 32

// byLength is knownFields by the length of the name, so that one comparison
// or two settle a name.
var byLength = indexKnown()

func indexKnown() (t [longest][]knownField) {
	for _, k := range knownFields {
		t[len(k.lower)] = append(t[len(k.lower)], k)
	}
	return t
}

func kindOf(name string) kind {
	if name == "" || len(name) >= longest {
		return plain
	}
	for _, k := range byLength[len(name)] {
		if name[0]|0x20 == k.lower[0] && equalLower(name, k.lower) {
			return k.kind
		}
	}
	if first := name[0] | 0x20; len(name) >= len("contentlength") && (first == 'c' || first == 't') {
		if sameLetters(name, "contentlength") || sameLetters(name, "transferencoding") {
			return lookalike
		}
	}
	return plain
}

// sameLetters reports whether the letters of s, in any case and with anything
// else between them, are letters.
func sameLetters(s, letters string) bool {
	n := 0
	for i := range len(s) {
		c := s[i] | 0x20
		if c < 'a' || c > 'z' {
			continue
		}
		if n == len(letters) || c != letters[n] {
			return false
		}
		n++
	}
	return n == len(letters)
}

// HopByHop reports whether a field of that name, in any case, is for one
// connection only and is never forwarded (RFC 9110 section 7.6.1). Only the
// names that the standards list count: a Connection field that names others
// cannot take an end-to-end field, such as Authorization, out of a message.
// The framing fields are not among them, since the writer owns them.
func HopByHop(name string) bool {
	switch kindOf(name) {
	case connection, upgrade, hop:
		return true
	}
	return false
}

// sensitive reports whether a malformed field whose letters are those of name
// must refuse the message, because somebody could read it as a field that the
// framing, the routing or a guard depends on.
func sensitive(name string) bool {
	if sameLetters(name, "") || sameLetters(name, "cookie") {
		return true
	}
	for _, k := range knownFields {
		if sameLetters(name, onlyLetters(k.lower)) {
			return true
		}
	}
	return false
}

func onlyLetters(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 'a' || r > 'z' {
			return -1
		}
		return r
	}, s)
}
