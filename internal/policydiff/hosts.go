// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package policydiff

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"bawn/internal/names"
	"bawn/internal/policy"
)

// A place is names that no rule tells apart: one name, or what is under a
// wildcard and under no narrower one. name is one of them.
type place struct {
	pattern names.Pattern
	name    names.Host
}

// places divides the names that rules are about. What no rule is about is
// denied by both policies.
func places(lists ...[]policy.Rule) []place {
	exact, wild := map[names.Pattern]bool{}, map[names.Pattern]bool{}
	for _, list := range lists {
		for _, r := range list {
			switch {
			case r.Host.IsZero():
			case r.Host.Wildcard():
				wild[r.Host] = true
			default:
				exact[r.Host] = true
			}
		}
	}
	var all []place
	for p := range exact {
		all = append(all, place{p, p.Host()})
	}
	for p := range wild {
		if h, ok := under(p, exact, wild); ok {
			all = append(all, place{p, h})
		}
	}
	slices.SortFunc(all, func(a, b place) int { return compareHosts(a.pattern.String(), b.pattern.String()) })
	return all
}

// compareHosts sorts by domain, the parent first.
func compareHosts(a, b string) int {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	slices.Reverse(as)
	slices.Reverse(bs)
	return cmp.Or(slices.Compare(as, bs), strings.Compare(a, b))
}

// under finds a name under a wildcard that no other pattern tells from the rest.
// There is none where every such name would be longer than names may be.
func under(p names.Pattern, exact, wild map[names.Pattern]bool) (names.Host, bool) {
	rest := p.Host().String()
	for n := range len(exact) + len(wild) + 1 {
		label := strconv.FormatInt(int64(n), 36) // the shortest first: there may be room for no other
		name := label + "." + rest
		if rest == "" {
			name = label + "-any"
		}
		h, err := names.Parse(name)
		if err != nil {
			return names.Host{}, false
		}
		if !exact[names.Exact(h)] {
			return h, true
		}
	}
	return names.Host{}, false
}

// about keeps the rules that are about a name.
func about(list []policy.Rule, h names.Host) []policy.Rule {
	var some []policy.Rule
	for _, r := range list {
		if r.Host.Match(h) {
			some = append(some, r)
		}
	}
	return some
}
