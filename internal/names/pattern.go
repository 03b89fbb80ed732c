// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package names

import "strings"

// A Pattern is the host of a rule: one exact name; "*.rest", which stands for
// one or more labels in front of rest and never for rest itself; or "*", every
// name. Patterns compare with ==. The zero Pattern matches nothing.
type Pattern struct {
	host Host // of "*.rest" the rest; zero for "*"
	wild bool
}

// ParsePattern reads a pattern. The part behind "*." passes through the same
// canonicaliser as every other name. A star anywhere else is refused. The error
// is always an [*Error].
func ParsePattern(s string) (Pattern, error) {
	if s == "*" {
		return Pattern{wild: true}, nil
	}
	rest, wild := strings.CutPrefix(s, "*.")
	if strings.Contains(rest, "*") {
		return Pattern{}, invalid(s, `a star may only be the whole first label ("*.example.com")`)
	}
	h, err := Parse(rest)
	if err != nil {
		return Pattern{}, err
	}
	return Pattern{host: h, wild: wild}, nil
}

// MustPattern is [ParsePattern] for patterns written in the program; it panics
// on error.
func MustPattern(s string) Pattern {
	p, err := ParsePattern(s)
	if err != nil {
		panic(err)
	}
	return p
}

// Exact returns the pattern that matches h alone.
func Exact(h Host) Pattern { return Pattern{host: h} }

// Wildcard reports whether p stands for more than one name.
func (p Pattern) Wildcard() bool { return p.wild }

// IsZero reports whether p is no pattern.
func (p Pattern) IsZero() bool { return p == Pattern{} }

// Host returns the exact name, or for "*.rest" the rest. It is zero for "*".
func (p Pattern) Host() Host { return p.host }

// String gives the canonical form, which [ParsePattern] reads back as p.
func (p Pattern) String() string {
	switch {
	case !p.wild:
		return p.host.s
	case p.host.IsZero():
		return "*"
	default:
		return "*." + p.host.s
	}
}

// MarshalText gives the form of [Pattern.String].
func (p Pattern) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// Match reports whether p stands for h. No pattern stands for the zero Host.
func (p Pattern) Match(h Host) bool {
	switch {
	case h.IsZero():
		return false
	case !p.wild:
		return h == p.host
	case p.host.IsZero():
		return true
	default:
		return below(h, p.host)
	}
}

// Covers reports whether p stands for every name that other stands for.
func (p Pattern) Covers(other Pattern) bool {
	switch {
	case p.IsZero() || other.IsZero():
		return false
	case !other.wild:
		return p.Match(other.host)
	case !p.wild:
		return false
	case p.host.IsZero() || p == other:
		return true
	default:
		return p.Match(other.host)
	}
}

// below reports whether h is parent with at least one more label in front: the
// dot is part of the comparison, so that "nottrusted.net" is not below
// "trusted.net".
func below(h, parent Host) bool {
	front, ok := strings.CutSuffix(h.s, parent.s)
	return ok && len(front) > 1 && front[len(front)-1] == '.'
}
