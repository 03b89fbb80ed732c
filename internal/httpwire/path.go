// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package httpwire

import (
	"strings"
	"unicode/utf8"

	"bawn/internal/codes"
)

// CanonicalTarget gives the one form of a target in origin-form: the form that
// is matched, recorded and sent. query is the part from the "?" on, empty if
// there is none; it is checked for octets and returned as it is.
//
// The path is split on "/" before anything is decoded. Escapes of unreserved
// octets are decoded, the digits of the others are put in upper case, and
// octets that a URI must escape but clients send raw are escaped. "%2F" stays
// data. Refused, with target_invalid, is what servers read in more than one
// way: an escape of NUL, of a line break (servers that hand the decoded path on
// write a second request with it) or of a backslash, a "%25" before two hexadecimal
// digits, a segment that is "." or ".." in any spelling (also with
// parameters, or between "%2F"), an empty segment before the last, text that
// is not UTF-8, a fragment, a raw backslash.
func CanonicalTarget(target string) (path, query string, err error) {
	if target == "" || target[0] != '/' {
		return "", "", badTarget("not in origin-form")
	}
	path = target
	if i := strings.IndexByte(target, '?'); i >= 0 {
		path, query = target[:i], target[i:]
		if !validQuery(query) {
			return "", "", badTarget("an octet that no query may hold")
		}
	}
	if isCanonical(path) {
		return path, query, nil
	}
	path, err = canonicalPath(path)
	return path, query, err
}

func badTarget(detail string) error { return refuse(codes.TargetInvalid, "the target has "+detail) }

func validQuery(q string) bool {
	for i := range len(q) {
		if octets[q[i]]&isTarget == 0 || q[i] == '#' {
			return false
		}
	}
	return true
}

// isCanonical reports, for most paths of real requests, that they are
// canonical as they are: plain octets, and no dot or slash after a slash.
func isCanonical(path string) bool {
	slash := false
	for i := range len(path) {
		c := path[i]
		if octets[c]&isPlain == 0 || slash && (c == '/' || c == '.') {
			return false
		}
		slash = c == '/'
	}
	return true
}

func canonicalPath(path string) (string, error) {
	out := make([]byte, 0, len(path)+8)
	rest := path[1:]
	for more := true; more; {
		var segment string
		segment, rest, more = strings.Cut(rest, "/")
		if segment == "" && more {
			return "", badTarget("an empty segment")
		}
		out = append(out, '/')
		start := len(out)
		var err error
		if out, err = appendSegment(out, segment); err != nil {
			return "", err
		}
		if err := checkSegment(out[start:]); err != nil {
			return "", err
		}
	}
	return string(out), nil
}

const upperHex = "0123456789ABCDEF"

// appendSegment appends the canonical form of one segment.
func appendSegment(out []byte, s string) ([]byte, error) {
	for i := 0; i < len(s); i++ {
		c, escaped := s[i], false
		switch {
		case c == '%':
			if i+2 >= len(s) || octets[s[i+1]]&isHex == 0 || octets[s[i+2]]&isHex == 0 {
				return nil, badTarget("an escape without two hexadecimal digits")
			}
			c, escaped = unhex(s[i+1])<<4|unhex(s[i+2]), true
			i += 2
		case octets[c]&isTarget == 0 || c == '#' || c == '\\':
			return nil, badTarget("an octet that no path may hold")
		}
		switch {
		case c == 0 || c == '\r' || c == '\n' || c == '\\':
			return nil, badTarget("an escape of NUL, of a line break or of a backslash")
		case escaped && octets[c]&isUnsplit == 0, octets[c]&isPlain == 0:
			out = append(out, '%', upperHex[c>>4], upperHex[c&15])
		default:
			out = append(out, c)
		}
	}
	return out, nil
}

// checkSegment judges a segment in its canonical form.
func checkSegment(s []byte) error {
	text := make([]byte, 0, len(s))
	piece := 0 // where the text after the last encoded slash begins
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			text = append(text, s[i])
			continue
		}
		c := unhex(s[i+1])<<4 | unhex(s[i+2])
		i += 2
		switch c {
		case '/':
			if isDots(text[piece:]) {
				return badTarget("a dot segment")
			}
			piece = len(text) + 1
		case '%':
			if i+2 < len(s) && octets[s[i+1]]&isHex != 0 && octets[s[i+2]]&isHex != 0 {
				return badTarget("an escape of an escape")
			}
		}
		text = append(text, c)
	}
	if isDots(text[piece:]) {
		return badTarget("a dot segment")
	}
	if !utf8.Valid(text) {
		return badTarget("text that is not UTF-8")
	}
	return nil
}

// isDots reports whether a segment is "." or "..", with or without parameters
// after a semicolon.
func isDots(s []byte) bool {
	name, _, _ := strings.Cut(string(s), ";")
	return name == "." || name == ".."
}
