// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package termfilter

import "strconv"

// changes holds what passed and would outlive the program that sent it.
type changes struct {
	modes   uint32 // bit i: privateModes[i] is not as a terminal starts
	sgr     bool
	charset bool
	keypad  bool
	insert  bool
	shape   bool
	region  bool
	keys    bool     // modifyOtherKeys
	titles  uint8    // saved and not restored
	pushed  [2]uint8 // kitty's keyboard protocol, for the main and the alternate screen
	set     [2]bool  // and changed without a push
}

// mode notes that privateModes[i] was set or reset.
func (c *changes) mode(i int, on bool) {
	switch {
	case privateModes[i].number == 1048:
	case on == privateModes[i].on:
		c.modes &^= 1 << i
	default:
		c.modes |= 1 << i
	}
}

// alternate returns 1 while the alternate screen is shown: terminals keep the
// keyboard protocol of each screen apart.
func (c *changes) alternate() int {
	for i := range privateModes {
		switch privateModes[i].number {
		case 47, 1047, 1049:
			if c.modes&(1<<i) != 0 {
				return 1
			}
		}
	}
	return 0
}

// note notes a control sequence that passed.
func (c *changes) note(key string, s *sequence) {
	screen := c.alternate()
	switch key {
	case "m":
		c.sgr = s.n != 0 && !s.is(0) && !s.is(absent)
	case "h":
		c.insert = true
	case "l":
		c.insert = false
	case "r":
		c.region = s.n != 0
	case " q", "?c":
		c.shape = s.first(0) != 0
	case ">m":
		c.keys = s.n == 2 && s.params[1] > 0
	case "t":
		if s.params[0] == 22 {
			c.titles = add(c.titles, 1)
		} else {
			c.titles = take(c.titles, 1)
		}
	case ">u":
		c.pushed[screen] = add(c.pushed[screen], 1)
	case "<u":
		c.pushed[screen] = take(c.pushed[screen], s.first(1))
	case "=u":
		c.set[screen] = true
	}
}

// maxRestore bounds what is counted. Terminals keep fewer.
const maxRestore = 64

func add(n uint8, by int) uint8  { return uint8(min(int(n)+by, maxRestore)) }
func take(n uint8, by int) uint8 { return uint8(max(int(n)-by, 0)) }

// Restore appends what puts the terminal back into the state in which a program
// expects it, as far as the text that passed has changed it, and forgets an
// incomplete sequence. A session may end in the middle of anything: without
// this the person's shell would get mouse reports for input, or be written in
// invisible ink. A title that was set without being saved stays.
func (f *Filter) Restore(dst []byte) []byte {
	f.enter(ground)
	f.parts = 0
	c := f.left
	f.left = changes{}
	if c.charset {
		dst = append(dst, "\x0f\x1b(B\x1b)B"...)
	}
	dst = c.restoreKeys(dst)
	for i, m := range privateModes {
		if c.modes&(1<<i) == 0 {
			continue
		}
		dst = append(dst, "\x1b[?"...)
		dst = strconv.AppendInt(dst, int64(m.number), 10)
		if m.on {
			dst = append(dst, 'h')
		} else {
			dst = append(dst, 'l')
		}
	}
	dst = c.restoreOther(dst)
	if c.insert {
		dst = append(dst, "\x1b[4l"...)
	}
	if c.region { // which moves the cursor
		dst = append(dst, "\x1b7\x1b[r\x1b8"...)
	}
	if c.shape {
		dst = append(dst, "\x1b[0 q"...)
	}
	for range c.titles {
		dst = append(dst, "\x1b[23;0t"...)
	}
	if c.sgr {
		dst = append(dst, "\x1b[m"...)
	}
	return dst
}

// restoreKeys ends what changes the keyboard, while the screen is still the one
// that the program left.
func (c *changes) restoreKeys(dst []byte) []byte {
	dst = c.restoreScreen(dst, c.alternate())
	if c.keys {
		dst = append(dst, "\x1b[>4m"...)
	}
	if c.keypad {
		dst = append(dst, "\x1b>"...)
	}
	return dst
}

// restoreOther ends the keyboard protocol of the screen that the program did
// not leave, once the main screen is shown.
func (c *changes) restoreOther(dst []byte) []byte {
	if c.alternate() == 1 {
		return c.restoreScreen(dst, 0)
	}
	there := c.restoreScreen(nil, 1)
	if len(there) == 0 {
		return dst
	}
	dst = append(dst, "\x1b[?1049h"...)
	dst = append(dst, there...)
	return append(dst, "\x1b[?1049l"...)
}

// restoreScreen ends the keyboard protocol of one screen.
func (c *changes) restoreScreen(dst []byte, screen int) []byte {
	if n := c.pushed[screen]; n > 0 {
		dst = append(dst, "\x1b[<"...)
		dst = strconv.AppendInt(dst, int64(n), 10)
		dst = append(dst, 'u')
	}
	if c.set[screen] {
		dst = append(dst, "\x1b[=0u"...)
	}
	return dst
}
