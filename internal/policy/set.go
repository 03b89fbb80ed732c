// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"strings"

	"bawn/internal/names"
)

// A set finds the rules that are about a name: exact names in one map,
// wildcards by the name behind the star in another. Lists keep the order of the
// file, so that of several matching rules always the same is named.
type set struct {
	exact map[string][]*rule
	below map[string][]*rule
	every []*rule
}

func newSet(rules []*rule) *set {
	s := &set{exact: map[string][]*rule{}, below: map[string][]*rule{}}
	for _, ru := range rules {
		rest := ru.host.Host().String()
		switch {
		case ru.host.IsZero():
			// cidr and preset rules: Compile has refused them
		case !ru.host.Wildcard():
			s.exact[rest] = append(s.exact[rest], ru)
		case rest == "":
			s.every = append(s.every, ru)
		default:
			s.below[rest] = append(s.below[rest], ru)
		}
	}
	return s
}

// around calls do with every rule whose host could cover pattern p, until do
// returns false.
func (s *set) around(p names.Pattern, do func(*rule) bool) {
	host := p.Host().String()
	var all []*rule
	if !p.Wildcard() {
		all = append(all, s.exact[host]...)
	} else if host != "" {
		all = append(all, s.below[host]...)
	}
	for rest := host; ; {
		_, after, found := strings.Cut(rest, ".")
		if !found {
			break
		}
		rest = after
		all = append(all, s.below[rest]...)
	}
	for _, ru := range append(all, s.every...) {
		if !do(ru) {
			return
		}
	}
}

// about lists the allowing rules about a name.
func (s *set) about(h names.Host) []*rule {
	if s == nil {
		return nil
	}
	var list []*rule
	s.around(names.Exact(h), func(ru *rule) bool {
		if !ru.deny {
			list = append(list, ru)
		}
		return true
	})
	return list
}

// scan shows t every rule that is about host. It allocates nothing.
func (s *set) scan(host string, t *tally) {
	if s == nil {
		return
	}
	for _, ru := range s.exact[host] {
		t.see(ru)
	}
	for rest := host; ; {
		i := strings.IndexByte(rest, '.')
		if i < 0 {
			break
		}
		rest = rest[i+1:]
		for _, ru := range s.below[rest] {
			t.see(ru)
		}
	}
	for _, ru := range s.every {
		t.see(ru)
	}
}

func contains(list []string, word string) bool { return slices.Contains(list, word) }
