// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package httpwire

import (
	"fmt"
	"slices"
)

// A Field is one header or trailer field. Name is as sent, Value without the
// blanks around it.
type Field struct{ Name, Value string }

// Fields are the fields of a message in the order in which they were sent.
type Fields []Field

// Get returns the value of the first field of that name, which must be given
// in lower case.
func (f Fields) Get(lower string) (string, bool) {
	for i := range f {
		if equalLower(f[i].Name, lower) {
			return f[i].Value, true
		}
	}
	return "", false
}

// Count returns how many fields have that name, given in lower case.
func (f Fields) Count(lower string) int {
	n := 0
	for i := range f {
		if equalLower(f[i].Name, lower) {
			n++
		}
	}
	return n
}

// Values returns the values of all fields of that name, given in lower case.
func (f Fields) Values(lower string) []string {
	var out []string
	for i := range f {
		if equalLower(f[i].Name, lower) {
			out = append(out, f[i].Value)
		}
	}
	return out
}

// Del removes every field of that name, given in lower case.
func (f *Fields) Del(lower string) {
	f.DelFunc(func(name string) bool { return equalLower(name, lower) })
}

// DelFunc removes every field whose name drop reports true for, and keeps the
// order of the others.
func (f *Fields) DelFunc(drop func(name string) bool) {
	*f = slices.DeleteFunc(*f, func(x Field) bool { return drop(x.Name) })
}

// Set gives the first field of that name the value, removes the others, and
// adds the field at the end if there was none. It refuses a name or a value
// that could not be written exactly.
func (f *Fields) Set(name, value string) error {
	if !validName(name) || !validValue(value) {
		return fmt.Errorf("setting field %q: name or value holds bytes that no field may", name)
	}
	out, done := (*f)[:0], false
	for _, x := range *f {
		switch {
		case !equalFold(x.Name, name):
			out = append(out, x)
		case !done:
			done = true
			out = append(out, Field{x.Name, value})
		}
	}
	if !done {
		out = append(out, Field{name, value})
	}
	*f = out
	return nil
}

// validName reports whether s is a token (RFC 9110 section 5.6.2).
func validName(s string) bool {
	for i := range len(s) {
		if octets[s[i]]&isToken == 0 {
			return false
		}
	}
	return s != ""
}

// validValue reports whether s is a field value without blanks around it
// (RFC 9110 section 5.5).
func validValue(s string) bool {
	for i := range len(s) {
		if octets[s[i]]&isValue == 0 {
			return false
		}
	}
	return s == trimBlank(s)
}

// trimBlank removes the spaces and tabs around s (OWS, RFC 9110 section 5.6.3).
func trimBlank(s string) string {
	for s != "" && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for s != "" && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}

// equalLower reports whether s is lower but for the case of ASCII letters.
func equalLower(s, lower string) bool {
	if len(s) != len(lower) {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// equalFold is equalLower for two strings of any case.
func equalFold(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		x, y := a[i], b[i]
		if 'A' <= x && x <= 'Z' {
			x |= 0x20
		}
		if 'A' <= y && y <= 'Z' {
			y |= 0x20
		}
		if x != y {
			return false
		}
	}
	return true
}
