// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package wswire

import (
	"crypto/sha1" //nolint:gosec // what the protocol says; nothing rests on it
	"encoding/base64"
	"strings"
)

// Version is the one version of the protocol.
const Version = "13"

// ValidKey reports whether a Sec-WebSocket-Key is 16 octets in base64 (RFC 6455
// section 4.1).
func ValidKey(key string) bool {
	if len(key) != 24 {
		return false
	}
	b, err := base64.StdEncoding.Strict().DecodeString(key)
	return err == nil && len(b) == 16
}

// NewKey makes a Sec-WebSocket-Key of 16 random octets.
func NewKey(random [16]byte) string { return base64.StdEncoding.EncodeToString(random[:]) }

// Accept returns the Sec-WebSocket-Accept that answers a key (RFC 6455 section
// 4.2.2).
func Accept(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// ParseProtocols reads the values of all Sec-WebSocket-Protocol fields of a
// request: tokens, none of them twice. It reports false if they are malformed.
func ParseProtocols(values []string) ([]string, bool) {
	var list []string
	seen := map[string]bool{}
	for _, v := range values {
		for one := range strings.SplitSeq(v, ",") {
			one = strings.Trim(one, " \t")
			if !Token(one) || seen[one] {
				return nil, false
			}
			seen[one] = true
			list = append(list, one)
		}
	}
	return list, true
}

// Token reports whether s is a token (RFC 9110 section 5.6.2).
func Token(s string) bool {
	for i := range len(s) {
		if !isToken(s[i]) {
			return false
		}
	}
	return s != ""
}
