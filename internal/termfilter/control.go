// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package termfilter

import (
	"slices"
	"strconv"
)

const (
	maxParams = 32
	maxNumber = 65535
	maxRepeat = 1024 // more than the columns of any screen
)

// absent is the value of a parameter that was left out.
const absent = -1

// A sequence is a control sequence (CSI), taken apart.
type sequence struct {
	raw    []byte // all between the introducer and the final byte
	key    [4]byte
	keyLen int
	params [maxParams]int
	n      int  // parameters in use
	colon  bool // some are parts of one parameter (SGR)
}

// parse takes raw and the final byte apart. It reports false for what ECMA-48
// does not allow and for what is beyond the bounds.
func (s *sequence) parse(raw []byte, final byte) bool {
	s.raw = raw
	i := 0
	if len(raw) > 0 && '<' <= raw[0] && raw[0] <= '?' {
		s.addKey(raw[0])
		i++
	}
	for ; i < len(raw) && raw[i] >= '0'; i++ {
		if !s.param(raw[i]) {
			return false
		}
	}
	if len(raw)-i > 2 {
		return false
	}
	for ; i < len(raw); i++ {
		if raw[i] >= '0' {
			return false
		}
		s.addKey(raw[i])
	}
	s.addKey(final)
	return true
}

func (s *sequence) addKey(b byte) {
	s.key[s.keyLen] = b
	s.keyLen++
}

// param takes one byte of the parameters.
func (s *sequence) param(b byte) bool {
	if s.n == 0 {
		s.params[0], s.n = absent, 1
	}
	last := &s.params[s.n-1]
	switch {
	case '0' <= b && b <= '9':
		*last = max(*last, 0)*10 + int(b-'0')
		return *last <= maxNumber
	case b == ';' || b == ':':
		s.colon = s.colon || b == ':'
		if s.n == maxParams {
			return false
		}
		s.params[s.n] = absent
		s.n++
		return true
	}
	return false
}

// atMost reports whether there are no more than n parameters, none above most.
func (s *sequence) atMost(n, most int) bool {
	return s.n <= n && !slices.ContainsFunc(s.params[:s.n], func(v int) bool { return v > most })
}

// is reports whether the parameters are these.
func (s *sequence) is(want ...int) bool { return slices.Equal(s.params[:s.n], want) }

// first returns the first parameter, or otherwise if there is none.
func (s *sequence) first(otherwise int) int {
	if s.n == 0 || s.params[0] == absent {
		return otherwise
	}
	return s.params[0]
}

// control judges the control sequence in hand and appends what may pass.
func (f *Filter) control(dst []byte, final byte) []byte {
	var s sequence
	if !s.parse(f.seq, final) {
		return dst
	}
	key := string(s.key[:s.keyLen])
	if s.colon && key != "m" {
		return dst
	}
	if !draws(key, &s) {
		if f.Plain {
			return dst
		}
		if key == "?h" || key == "?l" {
			return f.modes(dst, &s, key == "?h")
		}
		if !steers(key, &s) && !asks(key, &s) {
			return dst
		}
	}
	f.left.note(key, &s)
	dst = append(dst, esc, '[')
	dst = append(dst, s.raw...)
	return append(dst, final)
}

// draws judges what only changes the picture.
func draws(key string, s *sequence) bool {
	switch key {
	case "A", "B", "C", "D", "E", "F", "G", "I", "Z", "`", "a", "d", "e", // move the cursor
		"@", "L", "M", "P", "X", // insert, delete, erase
		"S", "T": // scroll; T with more parameters is a mouse mode
		return s.n <= 1
	case "H", "f": // move the cursor
		return s.n <= 2
	case "J", "K": // erase; 3 J is the scrollback
		return s.atMost(1, 2)
	case "b": // repeat
		return s.atMost(1, maxRepeat)
	case "s", "u": // save and restore the cursor; s with parameters sets margins
		return s.n == 0
	case "m": // colours and attributes
		return true
	}
	return false
}

// steers judges what changes how the terminal behaves, other than private
// modes. Restore puts all of it back.
func steers(key string, s *sequence) bool {
	switch key {
	case "h", "l": // insert mode; the others lock the keyboard, echo, or change Enter
		return s.is(4)
	case "r": // scroll region
		return s.n <= 2
	case " q": // cursor shape
		return s.atMost(1, 6)
	case "!p": // soft reset
		return s.n == 0
	case "?c": // cursor shape of the Linux console
		return s.is(0) || s.is(1) || s.is(8)
	case "t": // save and restore titles: 22 and 23
		return (s.first(0) == 22 || s.first(0) == 23) && (s.n < 2 || s.params[1] <= 2) && (s.n < 3 || s.is(s.params[0], s.params[1], 0))
	case ">m": // modifyOtherKeys; the other resources change other keys
		return s.first(0) == 4 && s.atMost(2, 4) && (s.n == 1 || s.params[1] <= 2)
	case ">u": // kitty's keyboard protocol: push, pop, set
		return s.atMost(1, 31)
	case "<u":
		return s.atMost(1, 99)
	case "=u":
		return s.atMost(2, 31) && (s.n < 2 || s.params[1] <= 3)
	}
	return false
}

// asks judges what the terminal answers.
func asks(key string, s *sequence) bool {
	switch key {
	case "c", ">c": // what kind of terminal, in numbers
		return s.n == 0 || s.is(0)
	case "n": // status, and where the cursor is
		return s.is(5) || s.is(6)
	case "?n": // dark or light
		return s.is(996)
	case "?u": // kitty's keyboard protocol
		return s.n == 0
	case "?m": // modifyOtherKeys
		return s.is(4)
	case "?$p": // the state of a mode
		return s.n == 1 && modeIndex(s.params[0]) >= 0
	}
	return false
}

// privateModes are the DEC private modes that may be set, reset and asked for.
// The order is the one in which Restore puts them back.
var privateModes = [...]struct {
	number int
	on     bool // as a terminal starts
}{
	{1, false},    // cursor keys send application codes
	{5, false},    // reverse video: programs flash with it
	{6, false},    // origin mode
	{7, true},     // wrap at the margin
	{12, false},   // blinking cursor
	{25, true},    // visible cursor
	{1000, false}, // mouse buttons
	{1002, false}, // mouse drags
	{1003, false}, // mouse moves
	{1004, false}, // focus reports
	{1006, false}, // mouse reports in digits; 1005 and 1015 are older forms that nobody needs with it
	{1007, false}, // wheel sends arrows on the alternate screen
	{2004, false}, // bracketed paste
	{2026, false}, // synchronized output: terminals end it by themselves after a while
	{2027, false}, // width of emoji by cluster
	{2031, false}, // tell when the colours turn dark or light
	{1048, false}, // save the cursor; a command rather than a mode
	{47, false},   // alternate screen, three ways
	{1047, false},
	{1049, false},
}

// modeIndex returns the place of a mode in privateModes, or -1.
func modeIndex(number int) int {
	for i := range privateModes {
		if privateModes[i].number == number {
			return i
		}
	}
	return -1
}

// modes passes on those modes of s that are allowed: programs put several into
// one sequence.
func (f *Filter) modes(dst []byte, s *sequence, on bool) []byte {
	began := false
	for _, n := range s.params[:s.n] {
		i := modeIndex(n)
		if i < 0 {
			continue
		}
		f.left.mode(i, on)
		if began {
			dst = append(dst, ';')
		} else {
			dst = append(dst, "\x1b[?"...)
		}
		began = true
		dst = strconv.AppendInt(dst, int64(n), 10)
	}
	switch {
	case !began:
		return dst
	case on:
		return append(dst, 'h')
	}
	return append(dst, 'l')
}
