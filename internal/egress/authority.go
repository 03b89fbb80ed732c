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
// which some frameworks take a request for one of another method.
func stripped(name string) bool {
	switch len(name) {
	case len("X-HTTP-Method"), len("X-Method-Override"), len("X-HTTP-Method-Override"):
		if (name[0] == 'x' || name[0] == 'X') && overridesMethod(name) {
			return true
		}
	}
	return httpwire.HopByHop(name) || name[0]|0x20 == 'p' && hasPrefixFold(name, "proxy-")
}

func overridesMethod(name string) bool {
	for _, o := range [...]string{"x-http-method", "x-method-override", "x-http-method-override"} {
		if strings.EqualFold(name, o) {
			return true
		}
	}
	return false
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
