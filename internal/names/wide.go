// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package names

import (
	"fmt"
	"strings"

	"golang.org/x/net/publicsuffix"
)

// TooWide reports whether p hands out names that strangers can have: "*",
// wildcards at or above a public suffix ("*.com", "*.co.uk"), and wildcards in a
// zone where a provider gives each customer a name ("*.github.io",
// "*.blob.core.windows.net"). What is sent to such a pattern can reach anybody
// who registers. why says it in words for the policy's author.
//
// An exact name is never too wide: it can still be shared by path, but that is
// not a question of names.
func TooWide(p Pattern) (why string, wide bool) {
	if !p.wild {
		return "", false
	}
	rest := p.host.s
	if rest == "" {
		return "every name on the internet", true
	}
	if !strings.Contains(rest, ".") {
		return fmt.Sprintf("%s is a top level domain: anybody can have a name under it", rest), true
	}
	suffix, icann := publicsuffix.PublicSuffix(rest)
	switch {
	case suffix == rest && icann:
		return fmt.Sprintf("%s is a public suffix: anybody can register a name under it", rest), true
	case suffix == rest:
		return fmt.Sprintf("%s gives a name to each of its customers (public suffix list)", rest), true
	case childrenAreSuffixes(rest):
		return fmt.Sprintf("each name under %s is a public suffix", rest), true
	}
	// Below a private suffix of more than one label, rest belongs to one
	// customer: "*.team.github.io" is that team's.
	owned := !icann && strings.Contains(suffix, ".")
	return sharedZone(p.host, owned)
}

// Registrable returns the domain that somebody registered and that h belongs to:
// the name directly under a suffix of the public registries. Zones that a
// provider divides among its customers are the provider's here
// ("bucket.s3.amazonaws.com" is in amazonaws.com). A name that is such a suffix
// itself is its own domain.
func Registrable(h Host) Host {
	if h.IsZero() {
		return h
	}
	suffix, icann := publicsuffix.PublicSuffix(h.s)
	for !icann {
		_, shorter, more := strings.Cut(suffix, ".")
		if !more {
			break // a top level domain that is on no list
		}
		suffix, icann = publicsuffix.PublicSuffix(shorter)
	}
	front, below := strings.CutSuffix(h.s, "."+suffix)
	if !below {
		return h
	}
	return Host{front[strings.LastIndexByte(front, '.')+1:] + "." + suffix}
}

// childrenAreSuffixes reports whether a rule "*.rest" of the list makes every
// name directly under rest a public suffix, which rest itself then is not
// always. No real label equals the probe, so only such a rule can match it.
func childrenAreSuffixes(rest string) bool {
	probe := "bawn-probe." + rest
	suffix, _ := publicsuffix.PublicSuffix(probe)
	return suffix == probe
}

// sharedZone looks a wildcard's rest up in the project's own list. owned says
// that rest belongs to one customer of a zone on the public suffix list.
func sharedZone(rest Host, owned bool) (why string, wide bool) {
	for _, t := range &tenantZones {
		at := rest == t.zone
		above := below(t.zone, rest)
		inside := t.deep && !owned && below(rest, t.zone)
		if at || above || inside {
			return fmt.Sprintf("%s: %s", t.zone, t.why), true
		}
	}
	return "", false
}
