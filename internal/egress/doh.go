// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"bawn/internal/codes"
	"bawn/internal/httpwire"
	"bawn/internal/verdict"
)

// noDNS refuses a request that says that it is a question to a resolver, or that
// it wants the answer of one (RFC 8484, RFC 9230): whoever answers it asks on,
// for a name that nobody has judged.
func noDNS(fields httpwire.Fields) verdict.Verdict {
	for i := range fields {
		if f := &fields[i]; (isField(f.Name, "content-type") || isField(f.Name, "accept")) && namesDNS(f.Value) {
			return verdict.Refuse("head", codes.ContentTypeDenied, "DNS over HTTPS: "+f.Name)
		}
	}
	return allowed
}

// namesDNS reports whether a media type, or one in a list of them, is of DNS:
// application/dns, dns-message, dns+json, dns-json, oblivious-dns-message.
func namesDNS(value string) bool {
	for i := range len(value) {
		if value[i] == '/' && (hasWord(value[i+1:], "dns") || hasWord(value[i+1:], "oblivious-dns")) {
			return true
		}
	}
	return false
}

// hasWord reports whether s begins with a word in lower case, in any case, and
// goes on with no letter or digit.
func hasWord(s, lower string) bool {
	if len(s) < len(lower) || !isField(s[:len(lower)], lower) {
		return false
	}
	if len(s) == len(lower) {
		return true
	}
	c := s[len(lower)] | 0x20
	return (c < 'a' || c > 'z') && (c < '0' || c > '9')
}
