// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package strictjson says whether octets are one JSON document that every
// reader reads alike.
//
// Guards judge what an agent sends, and somebody else's reader acts on it.
// RFC 8259 leaves readers much freedom: which of two equal keys counts, what
// stands behind the document, what a lone surrogate is, how large a number may
// be. Whatever two readers could take differently is refused here, so that a
// guard may read what passed with any of them.
//
// [Check] keeps nothing and may be used by many goroutines.
package strictjson

import (
	"bytes"
	"strconv"
	"unicode/utf8"

	"bawn/internal/codes"
)

// Limits bound a document. A zero field means its default. The length is the
// caller's to bound.
type Limits struct {
	Depth  int // of arrays and objects within each other; 64
	Number int // octets of a number; 128
	Values int // values in the document, keys not counted; 1,000,000
}

func (l Limits) orDefault() Limits {
	if l.Depth == 0 {
		l.Depth = 64
	}
	if l.Number == 0 {
		l.Number = 128
	}
	if l.Values == 0 {
		l.Values = 1_000_000
	}
	return l
}

// An Error is a document that is refused.
type Error struct {
	Code   codes.Code // body_not_json, json_duplicate_key, json_too_deep or body_too_large
	Offset int        // of the octet at which it was
	Detail string
}

// Error gives the code, the place and the detail.
func (e *Error) Error() string {
	return string(e.Code) + " at octet " + strconv.Itoa(e.Offset) + ": " + e.Detail
}

// Check returns nil, or an [*Error] with the first thing that is wrong.
func Check(data []byte, lim Limits) error {
	c := checker{data: data, lim: lim.orDefault()}
	if at := firstInvalid(data); at >= 0 {
		c.at = at
		return c.refuse(codes.BodyNotJSON, "not UTF-8")
	}
	if bytes.HasPrefix(data, []byte("\ufeff")) {
		return c.refuse(codes.BodyNotJSON, "a byte order mark")
	}
	if err := c.value(0); err != nil {
		return err
	}
	if c.blanks(); c.at < len(data) {
		return c.refuse(codes.BodyNotJSON, "something behind the document")
	}
	return nil
}

// firstInvalid returns where data stops being UTF-8, or -1.
func firstInvalid(data []byte) int {
	if utf8.Valid(data) {
		return -1
	}
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n <= 1 {
			return i
		}
		i += n
	}
	return -1
}

// A checker walks over a document once.
type checker struct {
	data   []byte
	at     int
	lim    Limits
	values int
	keys   []string // folded, of the objects that are open
}

func (c *checker) refuse(code codes.Code, detail string) *Error {
	return &Error{Code: code, Offset: c.at, Detail: detail}
}

// unexpected refuses what stands where it may not.
func (c *checker) unexpected(what string) *Error {
	if c.at >= len(c.data) {
		return c.refuse(codes.BodyNotJSON, "the document ends where "+what+" should be")
	}
	return c.refuse(codes.BodyNotJSON, "not "+what)
}

func (c *checker) blanks() {
	for c.at < len(c.data) {
		switch c.data[c.at] {
		case ' ', '\t', '\n', '\r':
			c.at++
		default:
			return
		}
	}
}

// peek returns the next octet that is no blank, 0 at the end.
func (c *checker) peek() byte {
	c.blanks()
	if c.at >= len(c.data) {
		return 0
	}
	return c.data[c.at]
}

func (c *checker) value(depth int) error {
	if c.values++; c.values > c.lim.Values {
		return c.refuse(codes.BodyTooLarge, "too many values")
	}
	switch b := c.peek(); {
	case b == '{' || b == '[':
		if depth >= c.lim.Depth {
			return c.refuse(codes.JSONTooDeep, "nested deeper than "+strconv.Itoa(c.lim.Depth))
		}
		c.at++
		if b == '[' {
			return c.array(depth + 1)
		}
		return c.object(depth + 1)
	case b == '"':
		_, err := c.text()
		return err
	case b == '-' || '0' <= b && b <= '9':
		return c.number()
	case b == 't':
		return c.word("true")
	case b == 'f':
		return c.word("false")
	case b == 'n':
		return c.word("null")
	}
	return c.unexpected("a value")
}

func (c *checker) word(w string) error {
	if !bytes.HasPrefix(c.data[c.at:], []byte(w)) {
		return c.unexpected("a value")
	}
	c.at += len(w)
	return nil
}

func (c *checker) array(depth int) error {
	if c.peek() == ']' {
		c.at++
		return nil
	}
	for {
		if err := c.value(depth); err != nil {
			return err
		}
		if end, err := c.next(']'); end || err != nil {
			return err
		}
	}
}

// next takes the comma before another member, or the end of an array or object.
func (c *checker) next(closing byte) (end bool, err error) {
	switch c.peek() {
	case ',':
		c.at++
		return false, nil
	case closing:
		c.at++
		return true, nil
	}
	return false, c.unexpected("a comma or the end of the array or object")
}

func (c *checker) object(depth int) error {
	if c.peek() == '}' {
		c.at++
		return nil
	}
	first := len(c.keys)
	var many map[string]bool // the keys, once they are many
	for {
		if err := c.key(first, &many); err != nil {
			return err
		}
		if c.peek() != ':' {
			return c.unexpected("a colon")
		}
		c.at++
		if err := c.value(depth); err != nil {
			return err
		}
		if end, err := c.next('}'); err != nil {
			return err
		} else if end {
			c.keys = c.keys[:first]
			return nil
		}
	}
}

// few is how many keys are compared one by one.
const few = 16

// key reads a key of an object, whose other keys are c.keys from first on or
// in many, and refuses it if it is one of them but for the case of letters.
func (c *checker) key(first int, many *map[string]bool) error {
	if c.peek() != '"' {
		return c.unexpected("a key")
	}
	start := c.at
	raw, err := c.text()
	if err != nil {
		return err
	}
	k, ok := folded(raw)
	if !ok {
		c.at = start
		return c.refuse(codes.BodyNotJSON, "a key with NUL in it")
	}
	var twice bool
	if *many != nil {
		twice = (*many)[k]
		(*many)[k] = true
	} else {
		for _, other := range c.keys[first:] {
			twice = twice || other == k
		}
		c.keys = append(c.keys, k)
		if len(c.keys)-first > few {
			*many = make(map[string]bool, 4*few)
			for _, k := range c.keys[first:] {
				(*many)[k] = true
			}
		}
	}
	if twice {
		c.at = start
		return c.refuse(codes.JSONDuplicateKey, "a key that the object has already, or has in another case")
	}
	return nil
}
