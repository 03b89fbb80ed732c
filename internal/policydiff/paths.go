// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package policydiff

import (
	"slices"
	"strconv"
	"strings"

	"bawn/internal/policy"
)

// A class is the paths that match exactly the same patterns of a list: one of
// them, and which patterns they are.
type class struct {
	path    string // one of them
	matches []bool // by the place in the list
}

// maxStates bounds how far [classes] looks.
const maxStates = 20_000

// classes divides all paths by which of the patterns they match. It reports
// false where there are too many to go through.
func classes(patterns []policy.Path) ([]class, bool) {
	w := walk{seen: map[string]bool{}, found: map[string]bool{}}
	for _, p := range patterns {
		segments, rest := p.Segments()
		w.forms = append(w.forms, form{segments, rest})
		w.deepest = max(w.deepest, len(segments))
	}
	w.fresh = w.freshSegment()
	active := make([]bool, len(patterns))
	for i := range active {
		active[i] = true
	}
	w.from("", 0, active)
	return w.classes, len(w.seen) <= maxStates
}

// A form is a pattern taken apart.
type form struct {
	segments []string
	rest     bool
}

// A walk goes through paths segment by segment, and never twice through the
// same state: a depth, and which patterns can still match.
type walk struct {
	forms   []form
	deepest int
	fresh   string // a segment that no pattern names
	seen    map[string]bool
	found   map[string]bool
	classes []class
}

func (w *walk) freshSegment() string {
	for n := 0; ; n++ {
		s := "any" + strconv.Itoa(n)
		if !slices.ContainsFunc(w.forms, func(f form) bool { return slices.Contains(f.segments, s) }) {
			return s
		}
	}
}

// from goes on behind path, which has depth segments.
func (w *walk) from(path string, depth int, active []bool) {
	key := strconv.Itoa(depth) + bits(active)
	if w.seen[key] || len(w.seen) > maxStates {
		return
	}
	w.seen[key] = true
	for _, segment := range w.choices(depth, active) {
		next := make([]bool, len(active))
		any := false
		for i, on := range active {
			next[i] = on && w.forms[i].takes(depth, segment)
			any = any || next[i]
		}
		here := path + "/" + segment
		w.note(here, depth+1, next)
		if segment != "" && any && depth <= w.deepest {
			w.from(here, depth+1, next)
		}
	}
}

// choices are the segments that make a difference at a depth. The empty one can
// only be the last.
func (w *walk) choices(depth int, active []bool) []string {
	list := []string{w.fresh, ""}
	for i, f := range w.forms {
		if active[i] && depth < len(f.segments) && f.segments[depth] != "*" && !slices.Contains(list, f.segments[depth]) {
			list = append(list, f.segments[depth])
		}
	}
	return list
}

// takes reports whether a path that matched so far may go on with segment.
func (f form) takes(depth int, segment string) bool {
	switch {
	case depth >= len(f.segments):
		return f.rest
	case f.segments[depth] == "*":
		return segment != ""
	}
	return f.segments[depth] == segment
}

// bits is a list of truths as a key.
func bits(list []bool) string {
	b := make([]byte, len(list))
	for i, yes := range list {
		if yes {
			b[i] = 1
		}
	}
	return string(b)
}

// note keeps the class of a path that ends after n segments.
func (w *walk) note(path string, n int, active []bool) {
	matches := make([]bool, len(active))
	for i, on := range active {
		f := w.forms[i]
		matches[i] = on && (f.rest && n > len(f.segments) || !f.rest && n == len(f.segments))
	}
	key := bits(matches)
	if !w.found[key] {
		w.found[key] = true
		w.classes = append(w.classes, class{path, matches})
	}
}

// meet gives the one pattern that stands for what all of the patterns stand for
// together. There is one wherever some path matches them all.
func meet(patterns []policy.Path) (policy.Path, bool) {
	if len(patterns) == 0 {
		return policy.Path{}, false
	}
	segments, rest := patterns[0].Segments()
	for _, p := range patterns[1:] {
		more, moreRest := p.Segments()
		if len(more) > len(segments) {
			segments, more = more, segments
			rest, moreRest = moreRest, rest
		} else if len(more) == len(segments) {
			rest = rest && moreRest
		}
		for i, s := range more {
			if segments[i] == "*" {
				segments[i] = s
			}
		}
		_ = moreRest // the shorter goes on as the longer does
	}
	text := "/" + strings.Join(segments, "/")
	if rest {
		text = "/" + strings.Join(append(segments, "**"), "/")
	}
	p, err := policy.ParsePath(text)
	return p, err == nil
}
