// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package termfilter

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxMarks is how many marks may stand on one letter. Written languages need
// fewer; dozens would cover the lines above and below.
const maxMarks = 8

// Line makes s safe for one line of a table: control characters, line ends,
// characters that turn the direction of text, invisible characters and bytes
// that are not UTF-8 become visible, in the forms \n, \x1b and \u202e. Text of
// every script stays as it is, with the invisible characters that it needs:
// joiners between letters of scripts that join, and within emoji.
//
// A backslash in s stays one, so that Line(Line(s)) is Line(s): the result is
// for reading, and cannot be turned back.
func Line(s string) string {
	if plainLine(s) {
		return s
	}
	var b strings.Builder
	l := liner{marks: maxMarks}
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		next, after := utf8.DecodeRuneInString(s[i+size:])
		if next == utf8.RuneError && after <= 1 {
			next = 0 // the end, or what is about to be escaped
		}
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
			l = liner{}
		case l.keep(r, next):
			b.WriteString(s[i : i+size])
		default:
			b.WriteString(escaped(r))
			l = liner{}
		}
		i += size
	}
	return b.String()
}

// plainLine reports whether s is printable ASCII, as most strings are.
func plainLine(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] >= del {
			return false
		}
	}
	return true
}

// escaped writes r visibly.
func escaped(r rune) string {
	switch {
	case r == '\n':
		return `\n`
	case r == '\r':
		return `\r`
	case r == '\t':
		return `\t`
	case r < utf8.RuneSelf:
		return fmt.Sprintf(`\x%02x`, r)
	case r <= 0xffff:
		return fmt.Sprintf(`\u%04x`, r)
	}
	return fmt.Sprintf(`\U%08x`, r)
}

// A liner remembers what stands before the next character of a line.
type liner struct {
	before rune // 0 after an escape
	marks  int  // that stand on one letter; maxMarks where there is none
}

// keep reports whether r may stand between what came before and next.
func (l *liner) keep(r, next rune) bool {
	mark := unicode.In(r, unicode.Mn, unicode.Me)
	switch {
	case unicode.IsControl(r), unicode.Is(unicode.Noncharacter_Code_Point, r):
		return false
	case invisible(r) && !l.joins(r, next):
		return false
	case mark && l.marks == maxMarks:
		return false
	}
	l.before = r
	if mark {
		l.marks++
	} else {
		l.marks = 0
	}
	return true
}

// joins reports whether the invisible r does its work here. Each case asks of
// next only that it be a character which always stays.
func (l *liner) joins(r, next rune) bool {
	switch r {
	case '\u200c', '\u200d':
		if joining(l.before) && joining(next) && unicode.IsLetter(next) {
			return true
		}
		return r == '\u200d' && pictures(next) && (pictures(l.before) || l.before == '\ufe0f')
	case '\ufe0e', '\ufe0f':
		return pictures(l.before) || next == '\u20e3' && strings.ContainsRune("0123456789#*", l.before)
	}
	return false
}

// pictures reports whether r may be shown as an emoji, or changes how the one
// before it looks.
func pictures(r rune) bool {
	switch r {
	case '\u203c', '\u2049', '\u2139', '\u3030', '\u303d':
		return true
	}
	return r >= utf8.RuneSelf && unicode.In(r, unicode.So, unicode.Sm, unicode.Sk)
}

// joining reports whether r belongs to a script in which letters join, so that
// an invisible joiner changes how the word looks.
func joining(r rune) bool {
	return unicode.In(r, unicode.Arabic, unicode.Syriac, unicode.Mongolian, unicode.Khmer, unicode.Myanmar,
		unicode.Devanagari, unicode.Bengali, unicode.Gurmukhi, unicode.Gujarati, unicode.Oriya,
		unicode.Tamil, unicode.Telugu, unicode.Kannada, unicode.Malayalam, unicode.Sinhala)
}

// invisible reports whether r takes part in text without being seen: Unicode's
// Default_Ignorable_Code_Point (UAX 44), which has the characters for
// direction, the joiners, fillers, variation selectors and tags; with the
// separators of lines and paragraphs, and the format characters that are not
// numerals' own signs. Any of them can hide text, or make one text look like
// another.
func invisible(r rune) bool {
	if r < 0xad {
		return false
	}
	return unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Variation_Selector,
		unicode.Other_Default_Ignorable_Code_Point) && !unicode.Is(unicode.Prepended_Concatenation_Mark, r)
}
