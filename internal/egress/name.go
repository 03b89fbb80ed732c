// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"errors"

	"bawn/internal/codes"
	"bawn/internal/names"
	"bawn/internal/verdict"
)

// allowed is the verdict of a stage that has nothing against a request.
var allowed = verdict.Verdict{Effect: verdict.Allow}

// authority reads the authority that a request is for: of CONNECT, or of an
// absolute-form target. An address is refused, whatever it is: rules are about
// names.
func authority(s string, defaultPort uint16) (names.Host, uint16, verdict.Verdict) {
	a, err := names.ParseAuthority(s)
	switch {
	case err != nil:
		return names.Host{}, 0, badName(err)
	case a.IsIP():
		return names.Host{}, a.PortOr(defaultPort), verdict.Refuse("name", codes.IPLiteralDenied, a.String())
	}
	return a.Host, a.PortOr(defaultPort), allowed
}

// badName makes the refusal of a name that is none.
func badName(err error) verdict.Verdict {
	if e, ok := errors.AsType[*names.Error](err); ok {
		return verdict.Refuse("name", e.Code, e.Detail)
	}
	return verdict.Refuse("name", codes.HostInvalid, err.Error())
}

// hostAgrees reports whether a Host field names the host and port that the
// request is for; the port may be left out where it is the scheme's own
// (RFC 9110 section 7.2).
func hostAgrees(field string, host names.Host, port uint16, plain bool) bool {
	if field == host.String() && port == schemePort(plain) {
		return true // as almost every request has it
	}
	a, err := names.ParseAuthority(field)
	return err == nil && !a.IsIP() && a.Host == host && a.PortOr(schemePort(plain)) == port
}

func schemePort(plain bool) uint16 {
	if plain {
		return 80
	}
	return 443
}

func scheme(plain bool) string {
	if plain {
		return "http"
	}
	return "https"
}

// canonicalHost gives the Host field that goes up: the canonical name, and the
// port where the agent wrote one.
func canonicalHost(field string, host names.Host) string {
	if field == host.String() {
		return field
	}
	a, err := names.ParseAuthority(field)
	if err != nil {
		return host.String()
	}
	return a.String()
}
