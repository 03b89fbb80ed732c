// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package termfilter

import (
	"unicode/utf8"
)

// The control characters that the filter names.
const (
	bel = 0x07
	bs  = 0x08
	cr  = 0x0d
	so  = 0x0e
	si  = 0x0f
	can = 0x18
	sub = 0x1a
	esc = 0x1b
	del = 0x7f
)

// Bounds, in bytes: a Filter never holds more than one sequence of these.
const (
	maxCSI = 256
	maxOSC = 1024 // more than a title of maxTitle characters needs
)

// A Filter passes on what a full-screen program needs of a terminal and drops
// everything else. Its state is bounded, and sequences may be cut anywhere
// between calls. The zero Filter is ready to use.
type Filter struct {
	// Plain is for a program whose terminal this is not, because it writes into
	// a pipe: the terminal's answers and reports would be typed into the
	// person's shell. No question passes, no mode, no title, no keyboard
	// protocol; text, colours, cursor movement and erasing do.
	Plain bool

	state state
	seq   []byte // of the sequence in hand, without its introducer
	over  bool   // seq had no room for all of it
	part  [utf8.UTFMax]byte
	parts int // bytes of part that hold the beginning of a character
	left  changes
}

// A state says what the next byte belongs to. The states and what each byte
// does in them follow ECMA-48 and the DEC VT500 parser.
type state uint8

const (
	ground    state = iota
	escape          // after ESC, and after its intermediate bytes
	control         // CSI: after ESC [
	command         // OSC: after ESC ]
	commandST       // after an ESC in a command
	skip            // DCS, SOS, PM, APC, ESC k: to the string terminator
	skipST          // after an ESC in skip
)

// Append appends what a terminal may see of p to dst. An incomplete sequence or
// character at the end of p waits for the next call.
func (f *Filter) Append(dst, p []byte) []byte {
	for i := 0; i < len(p); {
		if f.state == ground && f.parts == 0 {
			n := printable(p[i:])
			dst = append(dst, p[i:i+n]...)
			i += n
			if i == len(p) {
				break
			}
		}
		dst = f.next(dst, p[i])
		i++
	}
	return dst
}

// printable returns how many bytes at the beginning of p are whole characters
// that pass as they are.
func printable(p []byte) int {
	i := 0
	for i < len(p) {
		if b := p[i]; b < utf8.RuneSelf {
			if b < ' ' || b == del {
				break
			}
			i++
			continue
		}
		r, size := utf8.DecodeRune(p[i:])
		if r == utf8.RuneError && size == 1 || isC1(r) {
			break
		}
		i += size
	}
	return i
}

func isC1(r rune) bool { return 0x80 <= r && r <= 0x9f }

// next takes one byte.
func (f *Filter) next(dst []byte, b byte) []byte {
	if f.parts > 0 && b < utf8.RuneSelf {
		dst = f.cutCharacter(dst)
	}
	switch {
	case b == esc:
		f.escaped()
		return dst
	case b == can || b == sub:
		f.enter(ground)
		return dst
	}
	switch f.state {
	case ground:
		return f.text(dst, b)
	case escape:
		return f.inEscape(dst, b)
	case control:
		return f.inControl(dst, b)
	case command:
		if b == bel {
			return f.endCommand(dst, "\a")
		}
		if b >= ' ' && b != del {
			f.collect(b, maxOSC)
		}
	case commandST:
		if b == '\\' {
			return f.endCommand(dst, "\x1b\\")
		}
		f.enter(escape)
		return f.inEscape(dst, b)
	case skip:
	case skipST:
		if b == '\\' {
			f.enter(ground)
			return dst
		}
		f.enter(escape)
		return f.inEscape(dst, b)
	}
	return dst
}

// escaped takes an ESC: it may begin the terminator of a string, and otherwise
// ends whatever was in hand.
func (f *Filter) escaped() {
	switch f.state {
	case command:
		f.state = commandST
	case skip:
		f.state = skipST
	default:
		f.enter(escape)
	}
}

func (f *Filter) enter(s state) {
	f.state, f.seq, f.over = s, f.seq[:0], false
}

func (f *Filter) collect(b byte, limit int) {
	if len(f.seq) == limit {
		f.over = true
		return
	}
	f.seq = append(f.seq, b)
}

// text takes a byte outside of sequences.
func (f *Filter) text(dst []byte, b byte) []byte {
	if b < utf8.RuneSelf {
		return f.character(dst, b)
	}
	f.part[f.parts] = b
	f.parts++
	for f.parts > 0 && utf8.FullRune(f.part[:f.parts]) {
		r, size := utf8.DecodeRune(f.part[:f.parts])
		if !isC1(r) {
			dst = utf8.AppendRune(dst, r) // U+FFFD for a byte that begins no character
		}
		f.parts = copy(f.part[:], f.part[size:f.parts])
	}
	return dst
}

// cutCharacter replaces the bytes of a character that does not go on.
func (f *Filter) cutCharacter(dst []byte) []byte {
	for range f.parts {
		dst = utf8.AppendRune(dst, utf8.RuneError)
	}
	f.parts = 0
	return dst
}

// character takes an ASCII character. A terminal obeys control characters also
// in the middle of a sequence, before it obeys the sequence.
func (f *Filter) character(dst []byte, b byte) []byte {
	switch {
	case b >= ' ' && b != del, b == bel, bs <= b && b <= cr:
		return append(dst, b)
	case (b == so || b == si) && !f.Plain:
		f.left.charset = true
		return append(dst, b)
	}
	return dst
}

// inEscape takes a byte after ESC.
func (f *Filter) inEscape(dst []byte, b byte) []byte {
	switch {
	case b >= utf8.RuneSelf:
		f.enter(ground)
		return f.text(dst, b)
	case b < ' ' || b == del:
		return f.character(dst, b)
	case b < '0':
		f.collect(b, 2)
		return dst
	}
	if len(f.seq) == 0 && !f.over {
		switch b {
		case '[':
			f.enter(control)
			return dst
		case ']':
			f.enter(command)
			return dst
		case 'P', 'X', '^', '_', 'k':
			f.enter(skip)
			return dst
		}
	}
	if !f.over && f.mayEscape(string(f.seq), b) {
		dst = append(dst, esc)
		dst = append(dst, f.seq...)
		dst = append(dst, b)
	}
	f.enter(ground)
	return dst
}

// mayEscape judges a sequence of ESC, intermediate bytes and a final byte.
func (f *Filter) mayEscape(between string, final byte) bool {
	switch between {
	case "":
		switch final {
		case '7', '8', // save and restore the cursor
			'D', 'E', 'M': // a line down, to the next line, a line up
			return true
		case '=', '>': // what the keypad sends
			f.left.keypad = final == '=' && !f.Plain
			return !f.Plain
		}
	case "(", ")": // ASCII or line drawing as the first or second character set
		if (final == '0' || final == 'B') && !f.Plain {
			f.left.charset = true
			return true
		}
	}
	return false
}

// inControl takes a byte after CSI.
func (f *Filter) inControl(dst []byte, b byte) []byte {
	switch {
	case b >= utf8.RuneSelf:
		f.enter(ground)
		return f.text(dst, b)
	case b < ' ' || b == del:
		return f.character(dst, b)
	case b < '@':
		f.collect(b, maxCSI)
		return dst
	}
	if !f.over {
		dst = f.control(dst, b)
	}
	f.enter(ground)
	return dst
}
