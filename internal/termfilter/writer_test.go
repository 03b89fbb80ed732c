// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package termfilter_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"bawn/internal/termfilter"

	"github.com/google/go-cmp/cmp"
)

func TestWriterPassesWholeSequences(t *testing.T) {
	var writes []string
	w := termfilter.NewWriter(writer(func(p []byte) (int, error) {
		writes = append(writes, string(p))
		return len(p), nil
	}))
	for _, s := range []string{"a\x1b", "[3", "1mb\xe4", "\xb8\x96", "\x1b]52;c;", "AA", "\ac", "\x1b[1;"} {
		if n, err := io.WriteString(w, s); n != len(s) || err != nil {
			t.Fatalf("Write(%q) = %d, %v", s, n, err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "\x1b[31mb", "世", "c", "\x1b[m"}, writes); diff != "" {
		t.Error(diff)
	}
}

type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// What completes a sequence that was written in part must never follow.
func TestWriterStopsForEverAtAFailure(t *testing.T) {
	broken := errors.New("broken")
	for name, tt := range map[string]struct {
		n    int
		err  error
		want error
	}{
		"failure":     {0, broken, broken},
		"short write": {1, nil, io.ErrShortWrite},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			w := termfilter.NewWriter(writer(func(p []byte) (int, error) {
				calls++
				return tt.n, tt.err
			}))
			for range 3 {
				if n, err := io.WriteString(w, "\x1b[31m"); n != 0 || !errors.Is(err, tt.want) {
					t.Errorf("Write = %d, %v", n, err)
				}
			}
			if err := w.Close(); !errors.Is(err, tt.want) {
				t.Errorf("Close: %v", err)
			}
			if calls != 1 {
				t.Errorf("%d writes behind the first failure", calls-1)
			}
		})
	}
}

func TestWriterTakesAnyLength(t *testing.T) {
	in := strings.Repeat("\x1b[31m世\xff", 100_000)
	var out bytes.Buffer
	w := termfilter.NewWriter(&out)
	if n, err := io.WriteString(w, in); n != len(in) || err != nil {
		t.Fatal(n, err)
	}
	if want := strings.ReplaceAll(in, "\xff", "\ufffd"); out.String() != want {
		t.Error("the output differs")
	}
}

func TestPlainWriterIsPlain(t *testing.T) {
	var out bytes.Buffer
	w := termfilter.NewPlainWriter(&out)
	io.WriteString(w, "\x1b[6n\x1b[?1003h\x1b[31mx")
	w.Close()
	if got, want := out.String(), "\x1b[31mx\x1b[m"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestI14RestorePutsTheTerminalBack(t *testing.T) {
	tests := map[string]struct{ in, want string }{
		"nothing to put back":               {"text\r\n\x1b[31mred\x1b[0m\x1b[2J\x1b[6n", ""},
		"colours":                           {"\x1b[8m", "\x1b[m"},
		"colours, ended":                    {"\x1b[8m\x1b[m\x1b[31m\x1b[;m", "\x1b[m"},
		"a pending sequence":                {"\x1b]0;", ""},
		"half a character":                  {"\xe2\x9b", ""},
		"line drawing":                      {"\x1b(0", "\x0f\x1b(B\x1b)B"},
		"mouse, focus, paste":               {"\x1b[?1003;1006h\x1b[?1004h\x1b[?2004h", "\x1b[?1003l\x1b[?1004l\x1b[?1006l\x1b[?2004l"},
		"mouse, ended":                      {"\x1b[?1003;1006h\x1b[?1006;1003l", ""},
		"cursor and wrap":                   {"\x1b[?25l\x1b[?7l", "\x1b[?7h\x1b[?25h"},
		"saved cursor":                      {"\x1b[?1048h", ""},
		"keypad, insert, shape, region":     {"\x1b=\x1b[4h\x1b[3 q\x1b[2;5r", "\x1b>\x1b[4l\x1b7\x1b[r\x1b8\x1b[0 q"},
		"the same, ended":                   {"\x1b=\x1b[4h\x1b[3 q\x1b[2;5r\x1b[r\x1b[ q\x1b[4l\x1b>", ""},
		"an editor killed":                  {"\x1b[?1049h\x1b[22;0;0t\x1b[>4;2m\x1b[?1h\x1b[?2004h", "\x1b[>4m\x1b[?1l\x1b[?2004l\x1b[?1049l\x1b[23;0t"},
		"an editor ended":                   {"\x1b[?1049h\x1b[22;0;0t\x1b[>4;2m\x1b[>4;m\x1b[?1049l\x1b[23;0;0t", ""},
		"keyboard pushed":                   {"\x1b[>1u\x1b[>5u", "\x1b[<2u"},
		"keyboard pushed and popped":        {"\x1b[>1u\x1b[>5u\x1b[<9u", ""},
		"keyboard set":                      {"\x1b[=1u", "\x1b[=0u"},
		"keyboards of both screens":         {"\x1b[>1u\x1b[?1049h\x1b[>1u\x1b[>1u", "\x1b[<2u\x1b[?1049l\x1b[<1u"},
		"keyboard of the screen left":       {"\x1b[?1049h\x1b[>1u\x1b[?1049l", "\x1b[?1049h\x1b[<1u\x1b[?1049l"},
		"keyboard pushed more than counted": {strings.Repeat("\x1b[>1u", 1000), "\x1b[<64u"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var f termfilter.Filter
			f.Append(nil, []byte(tt.in))
			if diff := cmp.Diff(tt.want, string(f.Restore(nil))); diff != "" {
				t.Error(diff)
			}
			if again := f.Restore(nil); len(again) != 0 {
				t.Errorf("the second time: %q", again)
			}
			if got := string(f.Append(nil, []byte("0m\x9b"))); got != "0m\ufffd" {
				t.Errorf("something was left: %q", got)
			}
			if got := filtered(tt.want); got != tt.want {
				t.Errorf("the filter would not pass what restores: %q", got)
			}
		})
	}
}
