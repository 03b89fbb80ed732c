// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package termfilter_test

import (
	"bytes"
	"strings"
	"testing"

	"bawn/internal/termfilter"

	"github.com/google/go-cmp/cmp"
)

func filtered(s string) string {
	var f termfilter.Filter
	return string(f.Append(nil, []byte(s)))
}

func plain(s string) string {
	f := termfilter.Filter{Plain: true}
	return string(f.Append(nil, []byte(s)))
}

// A verdict on what a program with a terminal of its own writes: kept passes
// unchanged, and of dropped nothing passes.
var (
	kept = map[string]string{
		"text":                                  "plain text",
		"text in UTF-8":                         "héllo мир 世界 ✜ 👨‍👩‍👧 \U0010ffff",
		"letters with bytes of C1 inside":       "ě\u26db\u1f00ś", // C4 9B, E2 9B 9B ...
		"right-to-left text":                    "שלום مرحبا",
		"a replacement character":               "\ufffd",
		"bell, backspace, tab":                  "\a\b\t",
		"line ends":                             "a\r\nb\n",
		"vertical tab and form feed":            "\v\f",
		"shift out and in":                      "\x0elqk\x0f",
		"save and restore cursor":               "\x1b7\x1b8",
		"index, next line, reverse index":       "\x1bD\x1bE\x1bM",
		"keypad modes":                          "\x1b=\x1b>",
		"line drawing":                          "\x1b(0lqqk\x1b(B\x1b)0\x1b)B",
		"cursor movement":                       "\x1b[A\x1b[2B\x1b[3C\x1b[4D\x1b[E\x1b[F\x1b[5G\x1b[I\x1b[Z\x1b[6`\x1b[7a\x1b[8d\x1b[9e",
		"cursor position":                       "\x1b[H\x1b[;5H\x1b[24;80H\x1b[1;1f\x1b[9999;9999H",
		"save and restore cursor (ANSI)":        "\x1b[s\x1b[u",
		"erase":                                 "\x1b[J\x1b[0J\x1b[1J\x1b[2J\x1b[K\x1b[0K\x1b[1K\x1b[2K\x1b[3X",
		"insert and delete":                     "\x1b[@\x1b[2@\x1b[L\x1b[3M\x1b[4P",
		"scroll":                                "\x1b[S\x1b[3S\x1b[T\x1b[3T",
		"scroll region":                         "\x1b[r\x1b[1;24r",
		"repeat":                                "-\x1b[79b\x1b[1024b",
		"colours":                               "\x1b[m\x1b[0m\x1b[1;31;42m\x1b[38;5;208m\x1b[48;2;1;2;3m\x1b[38:2::1:2:3m\x1b[4:3m\x1b[58:5:9m",
		"insert mode":                           "\x1b[4h\x1b[4l",
		"soft reset":                            "\x1b[!p",
		"cursor shape":                          "\x1b[ q\x1b[0 q\x1b[6 q",
		"cursor shape on the Linux console":     "\x1b[?0c\x1b[?1c\x1b[?8c",
		"cursor keys":                           "\x1b[?1h\x1b[?1l",
		"flash":                                 "\x1b[?5h\x1b[?5l",
		"wrap":                                  "\x1b[?7l\x1b[?7h",
		"cursor seen and blinking":              "\x1b[?25l\x1b[?12l\x1b[?25h\x1b[?12;25h",
		"alternate screen":                      "\x1b[?1049h\x1b[?1049l\x1b[?47h\x1b[?47l\x1b[?1047h\x1b[?1048h\x1b[?1048l\x1b[?1047l",
		"mouse":                                 "\x1b[?1000h\x1b[?1002h\x1b[?1003h\x1b[?1006h\x1b[?1006;1000l",
		"wheel":                                 "\x1b[?1007h",
		"focus":                                 "\x1b[?1004h\x1b[?1004l",
		"bracketed paste":                       "\x1b[?2004h\x1b[?2004l",
		"synchronized output":                   "\x1b[?2026h\x1b[?2026l",
		"emoji width and colour scheme":         "\x1b[?2027h\x1b[?2031h",
		"saved titles":                          "\x1b[22t\x1b[22;0;0t\x1b[22;2t\x1b[23;2t\x1b[23;0;0t",
		"titles":                                "\x1b]0;vim: a;b\a\x1b]1;icon\x1b\\\x1b]2;世界 ✅\a\x1b]2;\a",
		"question: colours":                     "\x1b]10;?\a\x1b]11;?\x1b\\\x1b]12;?\a",
		"question: palette":                     "\x1b]4;0;?\a\x1b]4;1;?;255;?\x1b\\",
		"question: status and cursor":           "\x1b[5n\x1b[6n",
		"question: dark or light":               "\x1b[?996n",
		"question: device attributes":           "\x1b[c\x1b[0c\x1b[>c\x1b[>0c",
		"question: mode":                        "\x1b[?2026$p\x1b[?2004$p",
		"question: keyboards":                   "\x1b[?u\x1b[?4m",
		"kitty's keyboard: push, pop, set":      "\x1b[>1u\x1b[>31u\x1b[>u\x1b[<u\x1b[<2u\x1b[=5u\x1b[=1;3u",
		"modifyOtherKeys":                       "\x1b[>4;2m\x1b[>4;1m\x1b[>4;m\x1b[>4m",
		"numbers and parameters at their bound": "\x1b[65535B\x1b[" + strings.Repeat("1;", 31) + "1m",
	}
	dropped = map[string]string{
		"NUL":                           "\x00",
		"answerback (ENQ)":              "\x05",
		"flow control":                  "\x11\x13",
		"other C0":                      "\x01\x02\x03\x04\x06\x10\x12\x14\x15\x16\x17\x19\x1c\x1d\x1e\x1f",
		"cancel, substitute":            "\x18\x1a",
		"delete":                        "\x7f",
		"C1 in UTF-8":                   "\u0080\u0085\u0090\u009b\u009c\u009d\u009f",
		"clipboard, write":              "\x1b]52;c;cm0gLXJmIH4K\a",
		"clipboard, read":               "\x1b]52;c;?\x1b\\",
		"clipboard, with zeros":         "\x1b]0052;c;cm0=\a",
		"clipboard (5522)":              "\x1b]5522;type=write\a",
		"hyperlink":                     "\x1b]8;;https://example.com/?d=secret\x1b\\\x1b]8;;\x1b\\",
		"hyperlink to a file":           "\x1b]8;id=1;file:///etc/passwd\a",
		"working folder":                "\x1b]7;file://host/tmp\a",
		"notification":                  "\x1b]9;hello\a\x1b]777;notify;a;b\a\x1b]99;;x\x1b\\",
		"progress":                      "\x1b]9;4;1;50\a",
		"iTerm2's commands":             "\x1b]1337;File=inline=1:AAAA\a\x1b]1337;SetUserVar=a=b\a",
		"prompt marks":                  "\x1b]133;A\a\x1b]633;E;ls\a",
		"X property":                    "\x1b]3;A=b\a",
		"font":                          "\x1b]50;fixed\a",
		"text size":                     "\x1b]66;s=2;x\a",
		"set a palette colour":          "\x1b]4;1;#000000\a\x1b]4;1;?;2;#000000\a",
		"palette question out of range": "\x1b]4;256;?\a\x1b]4;00;?\a\x1b]4;;?\a\x1b]4;?\a\x1b]4\a",
		"set colours":                   "\x1b]10;red\a\x1b]11;#000\a\x1b]12;#fff\a\x1b]10;?;red\a",
		"reset colours":                 "\x1b]104\a\x1b]110\a\x1b]111\a\x1b]112\a",
		"highlight colour question":     "\x1b]17;?\a",
		"titles of Sun":                 "\x1b]lx\x1b\\\x1b]Lx\x1b\\",
		"palette of the Linux console":  "\x1b]P0000000\a\x1b]R\a",
		"OSC without a command":         "\x1b]\a\x1b];\a\x1b]0\a\x1b]00;x\a\x1b]+0;x\a",
		"request status (DECRQSS)":      "\x1bP$qm\x1b\\",
		"sixel":                         "\x1bPq#0;2;0;0;0#0~~\n~~$-\x1b\\",
		"user-defined keys":             "\x1bP1;1|17/6c730d\x1b\\",
		"termcap question":              "\x1bP+q544e\x1b\\",
		"through tmux":                  "\x1bPtmux;\x1b\x1b]52;c;cm0=\a\x1b\\",
		"through tmux, 7-bit inside":    "\x1bPtmux;\x1b\x1b[21t\x1b\\",
		"through screen":                "\x1bP\x1b]52;c;cm0=\a\x1b\\",
		"APC, PM, SOS":                  "\x1b_Gi=1;AAAA\x1b\\\x1b^x\x1b\\\x1bXx\x1b\\",
		"title of screen":               "\x1bkname\x1b\\",
		"ST alone":                      "\x1b\\",
		"title reports":                 "\x1b[20t\x1b[21t",
		"window operations":             "\x1b[1t\x1b[2t\x1b[3;0;0t\x1b[4;9;9t\x1b[5t\x1b[6t\x1b[7t\x1b[8;24;80t\x1b[9;1t\x1b[10;1t",
		"window reports":                "\x1b[11t\x1b[13t\x1b[14t\x1b[16t\x1b[18t\x1b[19t",
		"lines of the page (DECSLPP)":   "\x1b[24t\x1b[36t",
		"title modes":                   "\x1b[>0t\x1b[>1T",
		"odd saving of titles":          "\x1b[22;3t\x1b[22;0;1t\x1b[22;0;0;0t\x1b[24;0t",
		"printing":                      "\x1b[i\x1b[5i\x1b[4i\x1b[?5i",
		"scrollback":                    "\x1b[3J\x1b[22J\x1b[0;3J",
		"selective erase":               "\x1b[?J\x1b[?2K",
		"name and version":              "\x1b[>q\x1b[>0q",
		"unit id":                       "\x1b[=c",
		"identify (DECID)":              "\x1bZ",
		"checksum of the screen":        "\x1b[1;1;1;1;24;80*y",
		"terminal parameters":           "\x1b[x",
		"self test":                     "\x1b[2;1y",
		"other status reports":          "\x1b[?6n\x1b[?15n\x1b[?25n\x1b[?26n\x1b[0n\x1b[5;6n",
		"mouse highlight":               "\x1b[1;2;3;4;5T\x1b[?1001h",
		"old mouse forms":               "\x1b[?9h\x1b[?1005h\x1b[?1015h\x1b[?1016h",
		"locator":                       "\x1b[1;1'z\x1b['|",
		"VT52":                          "\x1b[?2l",
		"132 columns":                   "\x1b[?3h\x1b[?40h",
		"8-bit meta":                    "\x1b[?1034h",
		"backspace sends":               "\x1b[?67h",
		"win32 keys":                    "\x1b[?9001h",
		"margins":                       "\x1b[?69h\x1b[5;10s",
		"sizes in band":                 "\x1b[?2048h\x1b[?2048$p",
		"paste with types":              "\x1b[?5522h",
		"save and restore of modes":     "\x1b[?1049s\x1b[?1049r",
		"ANSI modes":                    "\x1b[2h\x1b[12l\x1b[20h\x1b[4;20h",
		"modes without a number":        "\x1b[?h\x1b[?;h\x1b[h",
		"ANSI mode question":            "\x1b[4$p",
		"conformance level":             "\x1b[62\"p",
		"protection":                    "\x1b[1\"q",
		"LEDs":                          "\x1b[1q",
		"rectangles":                    "\x1b[1;1;9;9$r\x1b[1;1;9;9$z\x1b[65;1;1;9;9$x",
		"other key resources":           "\x1b[>1;2m\x1b[>2;2m\x1b[>4;3m\x1b[>4;1;1m\x1b[>m\x1b[>1p\x1b[>4n\x1b[>4f",
		"kitty's keyboard, beyond":      "\x1b[>32u\x1b[>1;1u\x1b[<100u\x1b[=1;4u\x1b[=1;1;1u\x1b[?1u",
		"repeat without end":            "\x1b[1025b\x1b[65535b",
		"cursor shape, beyond":          "\x1b[7 q\x1b[1;2 q",
		"huge numbers":                  "\x1b[65536B\x1b[99999999999999999999m",
		"too many parameters":           "\x1b[" + strings.Repeat("1;", 32) + "1m",
		"too long":                      "\x1b[" + strings.Repeat("0", 300) + "m",
		"colons outside of colours":     "\x1b[1:2H\x1b[?25:1h\x1b[4:1h",
		"bytes out of order":            "\x1b[1<2m\x1b[1 2q\x1b[?1?2h\x1b[    q",
		"unknown final bytes":           "\x1b[1^\x1b[1~\x1b[1|\x1b[{\x1b[\\\x1b[]\x1b[_",
		"full reset":                    "\x1bc",
		"tab stops":                     "\x1bH\x1b[g\x1b[3g\x1b[?5W",
		"out of UTF-8":                  "\x1b%@\x1b%G",
		"8-bit answers":                 "\x1b F\x1b G",
		"other character sets":          "\x1b(A\x1b(%5\x1b*0\x1b+0\x1b-A\x1b$B\x1b((0",
		"shifts":                        "\x1bN\x1bO\x1bn\x1bo\x1b|\x1b}\x1b~",
		"alignment and big letters":     "\x1b#8\x1b#3\x1b#6",
		"memory lock":                   "\x1bl\x1bm",
		"other escapes":                 "\x1b6\x1b9\x1bF\x1bV\x1bW\x1ba\x1b`\x1b<",
		"cut sequences":                 "\x1b[1;2\x18\x1b[\x1a\x1b]0;x\x18\x1bPx\x18\x1b",
		"cut by another":                "\x1b[12\x1b]0;x\x1b[?9h",
		"unfinished OSC":                "\x1b]0;title",
		"unfinished DCS":                "\x1bPtmux;" + strings.Repeat("x", 5000),
	}
)

func TestI14ATerminalGetsWhatProgramsNeed(t *testing.T) {
	for name, in := range kept {
		if got := filtered(in); got != in {
			t.Errorf("%s:\n got %q\nwant %q", name, got, in)
		}
	}
}

func TestI14ATerminalGetsNothingThatAttacks(t *testing.T) {
	for name, in := range dropped {
		if got := filtered(in); got != "" {
			t.Errorf("%s: %q came through", name, got)
		}
		if got := filtered("a" + in + "\x18b"); got != "ab" {
			t.Errorf("%s: with text around: %q", name, got)
		}
	}
}

func TestI14FilterChanges(t *testing.T) {
	tests := map[string]struct{ in, want string }{
		"text after a dropped sequence stays":     {"\x1b]52;c;AA\aafter", "after"},
		"a hyperlink's text stays":                {"\x1b]8;;https://a.example/\x1b\\click\x1b]8;;\x1b\\", "click"},
		"allowed modes stay among others":         {"\x1b[?3;25;1005;1006h\x1b[?3;4l", "\x1b[?25;1006h"},
		"mode numbers lose zeros":                 {"\x1b[?0025;01h", "\x1b[?25;1h"},
		"controls inside a sequence come first":   {"\x1b[3\r\n1m\x1b\a7\x1b[\x00\x7f1m", "\r\n\x1b[31m\a\x1b7\x1b[1m"},
		"a letter inside a sequence ends it":      {"\x1b[31ém\x1bé\x1b(é", "ém" + "é" + "é"},
		"an ESC inside a sequence begins anew":    {"\x1b[31\x1b[1m\x1b\x1b[2m\x1b]0;t\x1b[3m", "\x1b[1m\x1b[2m\x1b[3m"},
		"bytes that are not UTF-8":                {"a\xffb\xc3(\xe2\x9b\xc0\x80\xed\xa0\x80", "a\ufffdb\ufffd(" + strings.Repeat("\ufffd", 7)},
		"8-bit C1 bytes are commands to nobody":   {"\x9b31m\x9d0;x\x9c\x90q", "\ufffd31m\ufffd0;x\ufffd\ufffdq"},
		"C1 in UTF-8 leaves its tail to be read":  {"\u009b21t", "21t"},
		"a cut letter before an escape":           {"\xe2\x9b\x1b[1m", "\ufffd\ufffd\x1b[1m"},
		"C1 in a title does not end it":           {"\x1b]0;a\u009cb\u009b21tc\a", "\x1b]0;ab21tc\a"},
		"controls in a title go":                  {"\x1b]0;a\n\x01\x7fb\a", "\x1b]0;ab\a"},
		"direction and invisible in a title go":   {"\x1b]2;a\u202eb\u200bc\u2066d\U000e0041e\u2028f\x1b\\", "\x1b]2;abcdef\x1b\\"},
		"bytes that are not UTF-8, in a title":    {"\x1b]2;a\xffb\xe2\x9b\a", "\x1b]2;a\ufffdb\a"},
		"a long title is cut":                     {"\x1b]2;" + strings.Repeat("x", 5000) + "\a", "\x1b]2;" + strings.Repeat("x", 255) + "\a"},
		"a long title is cut between characters":  {"\x1b]2;" + strings.Repeat("\u200b", 340) + "世界\a", "\x1b]2;\a"},
		"a title of wide characters is cut":       {"\x1b]2;a" + strings.Repeat("👍", 400) + "\a", "\x1b]2;a" + strings.Repeat("👍", 254) + "\a"},
		"a question too long is no question":      {"\x1b]4;" + strings.Repeat("1;?;", 300) + "1;?\a", ""},
		"BEL does not end a DCS":                  {"\x1bPq\ax\x1b\\y", "y"},
		"sequences inside what tmux passes on go": {"\x1bPtmux;\x1b\x1b[5n\x1b\\", "\x1b[5n"}, // as if it stood alone
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, filtered(tt.in)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What a program writes into a pipe must not make the terminal talk: nobody but
// the person's shell would listen.
func TestI14PlainOutputMakesNoTerminalTalk(t *testing.T) {
	tests := map[string]struct{ in, want string }{
		"colours stay":               {"\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m"},
		"progress bars stay":         {"\r\x1b[K50%\x1b[1A\x1b[2K", "\r\x1b[K50%\x1b[1A\x1b[2K"},
		"no questions":               {"\x1b[c\x1b[>c\x1b[5n\x1b[6n\x1b[?996n\x1b[?2026$p\x1b[?u\x1b[?4m\x1b]10;?\a\x1b]4;1;?\a", ""},
		"no modes":                   {"\x1b[?1003h\x1b[?1049h\x1b[?25l\x1b[4h\x1b=\x1b>", ""},
		"no keyboard":                {"\x1b[>1u\x1b[<u\x1b[=1u\x1b[>4;2m", ""},
		"no titles":                  {"\x1b]0;x\a\x1b[22t", ""},
		"no character sets":          {"\x1b(0\x0e\x0f", ""},
		"no scroll region, no shape": {"\x1b[2;3r\x1b[5 q\x1b[!p", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, plain(tt.in)); diff != "" {
				t.Error(diff)
			}
		})
	}
	for name, in := range dropped {
		if got := plain(in); got != "" {
			t.Errorf("%s: %q came through", name, got)
		}
	}
}

// everything is all the samples of this package's tests in one stream.
func everything() []byte {
	var b bytes.Buffer
	for _, group := range []map[string]string{kept, dropped, fullScreen} {
		for _, s := range group {
			b.WriteString(s)
			b.WriteString("\x18é")
		}
	}
	return b.Bytes()
}

func TestAnySplitGivesTheSameOutput(t *testing.T) {
	in := everything()
	for _, isPlain := range []bool{false, true} {
		whole := termfilter.Filter{Plain: isPlain}
		want := whole.Append(nil, in)
		for size := 1; size < 40; size++ {
			f := termfilter.Filter{Plain: isPlain}
			var got []byte
			for from := 0; from < len(in); from += size {
				got = f.Append(got, in[from:min(from+size, len(in))])
			}
			if !bytes.Equal(got, want) {
				t.Fatalf("in pieces of %d bytes the output differs", size)
			}
		}
	}
}
