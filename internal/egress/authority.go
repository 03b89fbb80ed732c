// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"strings"

	"bawn/internal/httpwire"
)

// strip takes out what is not the agent's to send. It comes before the guards,
// so that what they judge is what goes up.
func (x *exchange) strip() {
	x.q.Fields.DelFunc(stripped)
}

// stripped reports whether a request field never goes up: what is for one
// connection only (an h2c upgrade among it), what is for proxies, and fields by
// which some servers take a request for one of another method, path or host.
func stripped(name string) bool {
	switch name[0] | 0x20 {
	case 'f', 'x':
		return overrides(name)
	case 'p':
		if isField(name, "proxy") || len(name) > len("proxy-") && isField(name[:len("proxy-")], "proxy-") {
			return true
		}
	}
	return httpwire.HopByHop(name)
}

// overrides reports whether a field names another method, path or host than the
// request line and Host do. A request that comes through no proxy has none of
// them.
func overrides(name string) bool {
	for _, o := range [...]string{
		"x-http-method", "x-method-override", "x-http-method-override",
		"x-original-url", "x-original-uri", "x-original-path", "x-original-method", "x-rewrite-url",
		"x-forwarded-uri", "x-forwarded-path", "x-forwarded-method", "x-forwarded-server",
		"forwarded", "x-forwarded-host", "x-original-host", "x-host", "x-http-host-override",
	} {
		if isField(name, o) {
			return true
		}
	}
	return false
}

// isField reports whether a server could read the field name as lower: in any
// case, and with underscores for hyphens, since programs behind a CGI-like
// interface (RFC 3875 section 4.1.18) cannot tell the two apart.
func isField(name, lower string) bool {
	if len(name) != len(lower) {
		return false
	}
	for i := range len(name) {
		c := name[i]
		switch {
		case c == '_':
			c = '-'
		case 'A' <= c && c <= 'Z':
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// withheld reports whether a response field never reaches the agent: what is
// for one connection only, offers of a road around the proxy (RFC 7838), and
// the field by which only Bawn itself says why it refused.
func withheld(name string) bool {
	switch len(name) {
	case len("Alt-Svc"):
		if strings.EqualFold(name, "Alt-Svc") {
			return true
		}
	case len("Bawn-Code"):
		if strings.EqualFold(name, "Bawn-Code") {
			return true
		}
	}
	return httpwire.HopByHop(name) || name[0]|0x20 == 'p' && hasPrefixFold(name, "proxy-")
}
