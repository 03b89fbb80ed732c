// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package termfilter_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fullScreen are sessions of full-screen programs as they write them with
// TERM=xterm-256color, shortened.
var fullScreen = map[string]string{
	"less": "\x1b[?1049h\x1b[22;0;0t\x1b[?1h\x1b=\rhello world\r\nhello world\r\n\x1b[7mf.txt\x1b[27m\x1b[K" +
		"\r\x1b[Khello world\r\n\x1b[1;1H\x1b[7mwor\x1b[27mld\r\n\x1bM\x1b[24;1H\r\x1b[K:\x1b[K" +
		"\r\x1b[K\x1b[?1l\x1b>\x1b[?1049l\x1b[23;0;0t",
	"top": "\x1b[?1h\x1b=\x1b[?25l\x1b[H\x1b[2J\x1b(B\x1b[mtop - 11:05:28 up 53 min,  load average: 1.81, 2.49\x1b(B\x1b[m\x1b[39;49m\x1b[K\r\n" +
		"Tasks:\x1b(B\x1b[m\x1b[39;49m\x1b[1m 109 \x1b(B\x1b[m\x1b[39;49mtotal,\r\n\x1b[7m    PID USER      PR  NI \x1b(B\x1b[m\x1b[K\r\n" +
		"\x1b[?1l\x1b>\x1b[25;1H\r\n\x1b[?12l\x1b[?25h\x1b[K",
	"htop": "\x1b[?1049h\x1b[22;0;0t\x1b[1;24r\x1b(B\x1b[m\x1b[4l\x1b[?7h\x1b[?1h\x1b=\x1b[?25l\x1b[39;49m\x1b[?1006;1000h\x1b[39;49m\x1b(B\x1b[m\x1b[H\x1b[2J" +
		"\x1b[2d  \x1b[36m1\x1b[39m\x1b(B\x1b[0;1m[\x1b(B\x1b[0;32m||||\x1b[31m|\x1b[30m\x1b[1m\x1b[39X\x1b[2;39H21.4%\x1b[39m]\x1b(B\x1b[m\r\x1b[3d" +
		"\x1b[6d\x1b[30m\x1b[42m    PID USER       PRI  NI  VIRT\x1b[K\x1b[24;1H\x1b[39;49mF1\x1b[30m\x1b[46mHelp  \x1b[39;49m" +
		"\x1b[24;1H\x1b[?12l\x1b[?25h\x1b[?1006;1000l\x1b[39;49m\r\x1b[24d\x1b[K\x1b[24;1H\x1b[?1049l\x1b[23;0;0t\r\x1b[?1l\x1b>",
	"tmux": "\x1b[?1049h\x1b[22;0;0t\x1b[?1h\x1b=\x1b[H\x1b[2J\x1b[?12l\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b(B\x1b[m" +
		"\x1b[?2004l\x1b[1;1H\x1b[1;24r\x1b[>c\x1b[1;1H\x1b[?25l\x1b[K\r\n\x1b[30m\x1b[42m\r\n[0] 0:sleep*\x1b(B\x1b[m\x1b[?12l\x1b[?25h\x1b[1;1H",
	"an agent's interface": "\x1b[?2026$p\x1b[?u\x1b[c\x1b]11;?\x1b\\\x1b[?2004h\x1b[?1004h\x1b[>7u\x1b]0;✳ Claude\a\x1b[?2026h\x1b[?25l" +
		"\x1b[2K\x1b[1A\x1b[2K\x1b[G\x1b[38;2;215;119;87m╭─\x1b[39m\x1b[1mready\x1b[22m \x1b[2m❯ \x1b[7m \x1b[27m\x1b[22m\r\n" +
		"\x1b[?2026l\x1b[5 q\x1b[?25h\x1b[<u\x1b[?1004l\x1b[?2004l",
	"a shell": "\x1b[?2004h\x1b]0;user@host: ~\a\x1b[01;32muser@host\x1b[00m:\x1b[01;34m~\x1b[00m$ ls\b\x1b[K\x1b[C\x1b[1@x\x1b[1P\r\n\x1b[?2004l\r",
	"a dialog on TERM=screen": "\x1b[?1049h\x1b(B\x1b)0\x1b[1;24r\x1b[m\x0f\x1b[4l\x1b[?1h\x1b=\x1b[H\x1b[J\x1b[5;10H\x0elqqqk\x0f\x1b[6;10H\x0ex\x0f" +
		" OK \x1b[?25h\x1b[?1049l",
}

func TestFullScreenProgramsPassUnchanged(t *testing.T) {
	for name, in := range fullScreen {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(in, filtered(in)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Vim sends two sequences to see whether the terminal ignores them: it does.
func TestVimPassesButForItsProbes(t *testing.T) {
	const probes = "\x1bPzz\x1b\\\x1b[0%m"
	in := "\x1b[?1049h\x1b[22;0;0t\x1b[>4;2m\x1b[?1h\x1b=\x1b[?2004h\x1b[?1004h\x1b[1;24r\x1b[?12h\x1b[?12l\x1b[22;2t\x1b[22;1t" +
		"\x1b[27m\x1b[23m\x1b[29m\x1b[m\x1b[H\x1b[2J\x1b[?25l\x1b[24;1H\"f.txt\" 60L, 720B\x1b[2;1H▽\x1b[6n\x1b[2;1H  \x1b[3;1H" +
		probes + "\x1b[6n\x1b[3;1H           \x1b[1;1H\x1b[>c\x1b]10;?\a\x1b]11;?\a\x1b[1;1Hhello world\r\nhello world\x1b[2;12H\x1b[K" +
		"\x1b[1;1H\x1b[?25h\x1b[?4m\r\n\x1b[?25l\x1b[24;1H\x1b[1m-- INSERT --\x1b[m\x1b[?25h\x1b[?25l\x1b[24;1H:q!\r\x1b[?2004l\x1b[>4;m" +
		"\x1b[23;2t\x1b[23;1t\x1b[24;1H\x1b[K\x1b[24;1H\x1b[?1004l\x1b[?2004l\x1b[?1l\x1b>\x1b[?1049l\x1b[23;0;0t\x1b[?25h\x1b[>4;m"
	if diff := cmp.Diff(strings.ReplaceAll(in, probes, ""), filtered(in)); diff != "" {
		t.Error(diff)
	}
}
