// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package termfilter makes text that an agent wrote safe for a person's
// terminal.
//
// A terminal obeys what it is shown. Most of what it can be told is what a
// full-screen program needs, and some of it works against the person who
// looks: it writes to the clipboard, types an answer of the agent's choice on
// the person's keyboard, changes what keys send, moves windows or drives the
// printer. [Writer] and [Filter] let the first kind through and drop the
// second, for output which must stay a terminal's output. [Line] makes one
// string visible and harmless, for a cell of a table.
//
// The filter decides by an allow list: a sequence that it does not know is
// dropped. What it lets through it writes whole and never in pieces, so that a
// terminal which reads broken sequences otherwise than this package sees none.
//
// # What passes
//
//   - Text in valid UTF-8. Each other byte becomes U+FFFD: bytes from 0x80 to
//     0x9f are commands to some terminals, and those above mean nothing to a
//     terminal in UTF-8 mode.
//   - BEL BS HT LF VT FF CR; and SO SI, with which some terminal types draw
//     lines. VT and FF only move down, and text files hold FF.
//   - Cursor movement and saving, erasing, inserting, deleting, scrolling,
//     scroll regions, colours and attributes (SGR), repetition of a character
//     up to 1024 times (more is a cheap way to keep a terminal busy), cursor
//     shape, soft reset, line-drawing characters.
//   - The modes in the table privateModes, each as full-screen programs use it.
//   - Questions which the terminal answers with numbers of its own: status and
//     cursor position, device attributes, colours, modes of that table. The
//     agent can choose nothing in the answer but a colour's index or a mode's
//     number, and no answer ends a line.
//   - Window titles (OSC 0, 1, 2), at most 255 characters without controls and
//     invisible ones, and the saving and restoring of a title.
//   - The keyboard protocols that today's editors and agents need: kitty's, and
//     xterm's modifyOtherKeys. Restore ends them.
//
// # What does not, and why
//
//   - OSC 52 and its like: the clipboard belongs to the person.
//   - OSC 8, hyperlinks, of every scheme: the text stays, the link goes. A link
//     hides where it leads, so one click of the person would carry what the
//     agent wrote in the address past the boundary, in the person's browser.
//     Terminals find addresses that stand in the text by themselves, and then
//     the reader sees them.
//   - The other OSC: notifications (9, 99, 777), the terminal's own commands
//     (633, 1337), working folder and prompt marks (7, 133), which the person's
//     shell integration trusts, fonts (50), and setting colours (4, 10 to 12,
//     104 to 112), which would outlive the session.
//   - DCS, APC, PM, SOS and the title strings of screen (ESC k), whole: images,
//     key programming, and passing sequences through tmux to the terminal
//     outside. Their answers repeat text of the agent's choice.
//   - Reports of the title (CSI 21 t), the classic way to type a command into
//     the person's shell, and all window operations but saving titles.
//   - ENQ (answerback), printing (CSI i), checksums of screen content (CSI * y),
//     the terminal's name and version as text (CSI > q), its identity (CSI = c).
//   - C1 controls as single bytes and as U+0080 to U+009F: they are second
//     spellings, and no program of today needs them.
//   - Everything that changes how the terminal reads: other character sets,
//     leaving UTF-8 (ESC % @), 8-bit answers (ESC SP G), VT52 mode, keyboard
//     lock, new-line mode, meta as eighth bit, the size of the page (132
//     columns), tab stops, full reset (ESC c).
//   - Erasing the scrollback (CSI 3 J): it holds what the person did before,
//     and what the agent showed before. The screen itself may be erased.
//   - The other control characters: NUL and DEL are padding, XON and XOFF stop
//     the flow on some lines, CAN and SUB cancel a sequence and are dropped
//     with it.
//   - Numbers above 65535, more than 32 parameters, and sequences over 256
//     bytes: terminals have overflowed on them.
//
// # What it cannot do
//
// The agent still owns the whole screen: it can draw anything, also a picture
// of a shell's prompt. A terminal that is not in UTF-8 mode is not protected,
// because there parts of ordinary letters are control characters.
//
// # Concurrency
//
// A Filter and a Writer belong to one goroutine. Two streams which end on one
// terminal need a Writer each, over one writer that lets every Write finish
// before the next.
package termfilter
