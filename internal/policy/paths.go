// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"strings"

	"bawn/internal/httpwire"
)

// A glob is a compiled pattern of paths.
type glob struct {
	text     string   // as written
	segments []string // between the slashes; "*" is any one segment that is not empty
	rest     bool     // ends in "**": at least one more segment, which may be empty
}

var errStar = errors.New(`"*" stands for a whole segment, and "**" for all that follows: it has to come last`)

// parseGlob reads a pattern. Its literal segments have to be in the canonical
// form that requests are matched in, or they would match nothing.
func parseGlob(s string) (glob, error) {
	g := glob{text: s, segments: strings.Split(s[1:], "/")}
	if last := len(g.segments) - 1; g.segments[last] == "**" {
		g.rest, g.segments = true, g.segments[:last]
	}
	for i, segment := range g.segments {
		switch {
		case segment == "*":
			continue
		case strings.Contains(segment, "*"):
			return glob{}, fmt.Errorf("path %s: %w", show(s), errStar)
		case segment == "" && (g.rest || i < len(g.segments)-1):
			return glob{}, fmt.Errorf("path %s: an empty segment, which no request that is let through has", show(s))
		}
		if canonical, err := canonicalSegment(segment); err != nil {
			return glob{}, fmt.Errorf("path %s: %w", show(s), err)
		} else if canonical != segment {
			return glob{}, fmt.Errorf("path %s: segment %s is matched as %s; write that", show(s), show(segment), show(canonical))
		}
	}
	return g, nil
}

// match reports whether g stands for the canonical path. It allocates nothing.
func (g *glob) match(path string) bool {
	if path == "" || path[0] != '/' {
		return false
	}
	left, more := path[1:], true
	for _, want := range g.segments {
		if !more {
			return false
		}
		var segment string
		segment, left, more = strings.Cut(left, "/")
		if want == "*" {
			if segment == "" {
				return false
			}
		} else if segment != want {
			return false
		}
	}
	return more == g.rest
}

// covers reports whether g stands for every path that other stands for; false
// where it cannot say.
func (g *glob) covers(other *glob) bool {
	if len(g.segments) > len(other.segments) || !g.rest && (other.rest || len(g.segments) < len(other.segments)) {
		return false
	}
	for i, want := range g.segments {
		if want != other.segments[i] && (want != "*" || other.segments[i] == "") {
			return false
		}
	}
	return g.rest && (other.rest || len(other.segments) > len(g.segments)) || !g.rest
}

// canonicalSegment returns a segment as requests are matched.
func canonicalSegment(s string) (string, error) {
	path, query, err := httpwire.CanonicalTarget("/" + s)
	if err != nil {
		return "", err
	}
	return path[1:] + query, nil
}
