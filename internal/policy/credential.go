// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"slices"
	"strings"

	"bawn/internal/names"
)

// A CredentialKind is what a credential is.
type CredentialKind string

// TLSClient is a certificate with its key, shown to a server that asks for one.
const TLSClient CredentialKind = "tls-client"

// A Credential is what policy has to know of one: never the secret.
type Credential struct {
	Kind  CredentialKind
	Hosts []names.Host // that it may be used for
}

// credentials refuses rules whose credential there is not, or that it is not
// for. One is used for exactly the host of its rule, over TLS.
func credentials(d *Document, known Known, problems *Problems) {
	d.each(func(_ *body, ru *rule) {
		if ru.credential == "" {
			return
		}
		where, line := ru.id+" credential", ru.at("credential")
		if ru.host.Wildcard() {
			problems.add(line, where, "make a rule for each host", "a credential is for one host, not for all that %s stands for", show(ru.spelled))
		}
		for _, p := range ru.ports {
			if p.Plain {
				problems.add(line, where, "make a rule of its own for that port", "port %s is HTTP without TLS, where no credential is sent", p)
			}
		}
		if known.AnyCredential {
			return
		}
		c, ok := known.Credentials[ru.credential]
		switch {
		case !ok:
			problems.add(line, where, didYouMean(ru.credential, slices.Sorted(maps.Keys(known.Credentials))),
				"%s is no client certificate of the configuration, and other credentials are %s", show(ru.credential), notYetEnforced)
		case c.Kind != TLSClient:
			problems.add(line, where, "remove the rule or the key", "credentials of kind %s are %s", show(string(c.Kind)), notYetEnforced)
		case !ru.host.IsZero() && !ru.host.Wildcard() && !slices.Contains(c.Hosts, ru.host.Host()):
			problems.add(line, where, "the configuration says what it is for: "+hostList(c.Hosts), "credential %s is not for %s", show(ru.credential), ru.host)
		}
	})
}

func hostList(hosts []names.Host) string {
	list := make([]string, len(hosts))
	for i, h := range hosts {
		list[i] = h.String()
	}
	return strings.Join(list, ", ")
}

// oneCredential refuses two rules that some request could match together and
// whose credentials differ. Which of the two to use would be a guess.
func oneCredential(list []*rule, all *set, problems *Problems) {
	for _, ru := range list {
		if ru.credential == "" {
			continue
		}
		all.around(ru.host, func(other *rule) bool {
			if other.credential == "" || other.credential == ru.credential || !ru.meets(other) {
				return true
			}
			problems.add(ru.at("credential"), ru.id+" credential", "give them paths, methods or ports that no request can match together",
				"rule %s (line %d) has credential %s, and some requests match both", other.id, other.line, show(other.credential))
			return false
		})
	}
}

// meets reports whether some request could match both rules, which are about
// one host. That one of them expires makes no difference.
func (ru *rule) meets(other *rule) bool {
	return slices.ContainsFunc(ru.ports, other.hasPort) && meetWords(ru.methods, other.methods) && meetPaths(ru.paths, other.paths)
}

func meetWords(a, b []string) bool {
	if a == nil || b == nil {
		return len(a)+len(b) > 0 || a == nil && b == nil
	}
	return slices.ContainsFunc(a, func(w string) bool { return contains(b, w) })
}

func meetPaths(a, b []glob) bool {
	if a == nil || b == nil {
		return len(a)+len(b) > 0 || a == nil && b == nil
	}
	for i := range a {
		for j := range b {
			if a[i].meets(&b[j]) {
				return true
			}
		}
	}
	return false
}

// meets reports whether some path matches both patterns.
func (g *glob) meets(other *glob) bool {
	short, long := g, other
	if len(short.segments) > len(long.segments) {
		short, long = long, short
	}
	for i, a := range short.segments {
		switch b := long.segments[i]; {
		case a == b:
		case a == "*" && b != "", b == "*" && a != "":
		default:
			return false
		}
	}
	// What the shorter has left is nothing, or "**": one segment or more.
	if len(short.segments) == len(long.segments) {
		return short.rest == long.rest
	}
	return short.rest
}
