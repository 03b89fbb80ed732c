// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package wswire_test

import (
	"bytes"
	"compress/flate"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"bawn/internal/wswire"
)

// squeezed compresses with the standard library: another compressor than the
// one that is tested.
func squeezed(t testing.TB, s string) string {
	t.Helper()
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, 9)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(w, s)
	w.Flush()
	return strings.TrimSuffix(b.String(), "\x00\x00\xff\xff")
}

func final(s string) string {
	var b bytes.Buffer
	w, _ := flate.NewWriter(&b, 9)
	io.WriteString(w, s)
	w.Close()
	return b.String()
}

func TestInflate(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", 10000)
	for name, c := range map[string]struct {
		in     string
		want   string
		status wswire.Status // 0: fine
	}{
		"RFC 7692 7.2.3.1":                 {"\x01\x00", "", 1007}, // a stored block that lacks its length is none
		"one block":                        {frame(text, true, 4, "\xf2\x48\xcd\xc9\xc9\x07\x00"), "Hello", 0},
		"a block in two fragments":         {frame(text, false, 4, "\xf2\x48\xcd") + frame(cont, true, 0, "\xc9\xc9\x07\x00"), "Hello", 0},
		"a stored block":                   {frame(text, true, 4, "\x00\x05\x00\xfa\xff\x48\x65\x6c\x6c\x6f\x00"), "Hello", 0},
		"a final block":                    {frame(text, true, 4, "\xf3\x48\xcd\xc9\xc9\x07\x00\x00"), "Hello", 0},
		"two blocks":                       {frame(text, true, 4, "\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00"), "Hello", 0},
		"nothing":                          {frame(text, true, 4, "\x00"), "", 0},
		"not compressed all the same":      {frame(text, true, 0, "Hello"), "Hello", 0},
		"a long one":                       {frame(text, true, 4, squeezed(t, long)), long, 0},
		"a ping between":                   {frame(text, false, 4, squeezed(t, long)[:10]) + frame(ping, true, 0, "x") + frame(cont, true, 0, squeezed(t, long)[10:]), long, 0},
		"a final block without more":       {frame(text, true, 4, final("Hello")), "Hello", 0},
		"a block behind the final one":     {frame(text, true, 4, final("Hello")+squeezed(t, "evil")), "", 1007},
		"one octet behind the final block": {frame(text, true, 4, final("Hello")+"\x01"), "", 1007},
		"behind it in another fragment":    {frame(text, false, 4, final("Hello")) + frame(cont, true, 0, squeezed(t, "evil")), "", 1007},
		"RSV1 on a continuation":           {frame(text, false, 4, "\xf2\x48\xcd") + frame(cont, true, 4, "\xc9\xc9\x07\x00"), "", 1002},
		"RSV1 on a continuation of plain":  {frame(text, false, 0, "Hel") + frame(cont, true, 4, "lo"), "", 1002},
		"RSV1 on a ping":                   {frame(ping, true, 4, ""), "", 1002},
		"RSV1 and RSV2":                    {frame(text, true, 6, "\xf2\x48\xcd\xc9\xc9\x07\x00"), "", 1002},
		"no deflate":                       {frame(text, true, 4, "\xff\xff\xff"), "", 1007},
		"cut short":                        {frame(text, true, 4, "\xf2\x48\xcd"), "", 1007},
		"a reference before the beginning": {frame(text, true, 4, "\xf2\x00\x11\x00\x00"), "", 1007},
		"inflated text that is no UTF-8":   {frame(text, true, 4, squeezed(t, "a\xff")), "", 1007},
		"inflated text cut in a character": {frame(text, true, 4, squeezed(t, "a\xe2")), "", 1007},
		"inflates to more than it may":     {frame(text, true, 4, squeezed(t, long+long)), "", 1009},
		"empty fragments":                  {frame(text, false, 4, "") + frame(cont, false, 0, "\xf2\x48\xcd\xc9\xc9\x07\x00") + frame(cont, true, 0, ""), "Hello", 0},
		"a message without a single octet": {frame(text, true, 4, ""), "", 1007},
	} {
		for _, slow := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, slow=%v", name, slow), func(t *testing.T) {
				in := c.in
				if strings.HasPrefix(name, "RFC") {
					in = frame(text, true, 4, in)
				}
				var src io.Reader = strings.NewReader(in)
				if slow {
					src = iotest.OneByteReader(src)
				}
				got, _, err := read(src, wswire.Client, true, wswire.Limits{Message: 300000})
				if c.status != 0 {
					if e, ok := errors.AsType[*wswire.Error](err); !ok || e.Status != c.status {
						t.Errorf("got %.60v, %v, want status %d", got, err, c.status)
					}
					return
				}
				if len(got) != 1 || got[0].data != c.want || !errors.Is(err, io.EOF) {
					t.Errorf("got %.60v, %v", got, err)
				}
			})
		}
	}
}

// TestRatio: what inflates a thousandfold is refused long before it is whole.
func TestRatio(t *testing.T) {
	bomb := frame(binary, true, 4, squeezed(t, strings.Repeat("\x00", 32<<20)))
	_, _, err := read(strings.NewReader(bomb), wswire.Client, true, wswire.Limits{})
	if e, ok := errors.AsType[*wswire.Error](err); !ok || e.Status != 1009 {
		t.Errorf("got %v", err)
	}
	small := frame(binary, true, 4, squeezed(t, strings.Repeat("\x00", 1<<20)))
	if got, _, err := read(strings.NewReader(small), wswire.Client, true, wswire.Limits{}); len(got) != 1 {
		t.Errorf("a megabyte of zeros: %v", err)
	}
}

// TestNoContextIsTakenOver: a message that refers to the one before it does not
// inflate, for its sender was told.
func TestNoContextIsTakenOver(t *testing.T) {
	var b bytes.Buffer
	w, _ := flate.NewWriter(&b, 9)
	cut := func(s string) string {
		b.Reset()
		io.WriteString(w, s)
		w.Flush()
		return strings.TrimSuffix(b.String(), "\x00\x00\xff\xff")
	}
	in := frame(text, true, 4, cut("a message that is long enough")) + frame(text, true, 4, cut("a message that is long enough"))
	got, _, err := read(strings.NewReader(in), wswire.Client, true, wswire.Limits{})
	if e, ok := errors.AsType[*wswire.Error](err); len(got) != 1 || !ok || e.Status != 1007 {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestExtensions(t *testing.T) {
	for in, want := range map[string]string{
		"permessage-deflate":       "[{permessage-deflate []}]",
		" a ; b = c ;d=\"e\" , f ": "[{a [{b c true} {d e true}]} {f []}]",
		"a;b=\"\\c\"":              "[{a [{b c true}]}]",
		"":                         "malformed",
		"a,":                       "malformed",
		",a":                       "malformed",
		"a;":                       "malformed",
		"a;b=":                     "malformed",
		"a;b=\"\"":                 "malformed",
		"a;b=\"c":                  "malformed",
		"a;b=\"c d\"":              "malformed",
		"a b":                      "malformed",
		"a=b":                      "malformed",
		"permessage-deflate; é":    "malformed",
	} {
		list, ok := wswire.ParseExtensions([]string{in})
		got := fmt.Sprint(list)
		if !ok {
			got = "malformed"
		}
		if got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
	if list, ok := wswire.ParseExtensions([]string{"a", "b;c"}); !ok || len(list) != 2 {
		t.Errorf("two fields: %v", list)
	}
}

const both = "; server_no_context_takeover; client_no_context_takeover"

func TestAnswer(t *testing.T) {
	for offer, want := range map[string]string{
		"permessage-deflate": "permessage-deflate" + both,
		"Permessage-Deflate": "permessage-deflate" + both,
		"x-webkit-deflate-frame, permessage-deflate; client_max_window_bits":         "permessage-deflate" + both,
		"permessage-deflate; client_max_window_bits=9":                               "permessage-deflate" + both,
		"permessage-deflate; server_max_window_bits=10":                              "permessage-deflate" + both + "; server_max_window_bits=10",
		"permessage-deflate; server_no_context_takeover; client_no_context_takeover": "permessage-deflate" + both,
		"permessage-deflate; server_max_window_bits=16, permessage-deflate":          "permessage-deflate" + both,
		"permessage-deflate; server_max_window_bits=7":                               "",
		"permessage-deflate; server_max_window_bits=08":                              "",
		"permessage-deflate; server_max_window_bits":                                 "",
		"permessage-deflate; client_max_window_bits=0":                               "",
		"permessage-deflate; client_max_window_bits; client_max_window_bits":         "",
		"permessage-deflate; server_no_context_takeover=1":                           "",
		"permessage-deflate; mode=fast":                                              "",
		"permessage-bzip2":                                                           "",
	} {
		list, ok := wswire.ParseExtensions([]string{offer})
		p, got := wswire.Answer(list)
		if !ok || got != want || p.Deflate != (want != "") {
			t.Errorf("%s: got %q, %+v", offer, got, p)
		}
	}
}

func TestAgreed(t *testing.T) {
	for answer, want := range map[string]bool{
		"permessage-deflate" + both:                                                                      true,
		"permessage-deflate; server_no_context_takeover":                                                 true,
		"permessage-deflate; server_no_context_takeover; server_max_window_bits=9":                       true,
		"permessage-deflate":                                                                             false, // it would keep its context
		"permessage-deflate; server_no_context_takeover; client_max_window_bits=9":                       false, // not offered
		"permessage-deflate; server_no_context_takeover; server_no_context_takeover":                     false,
		"permessage-deflate; server_no_context_takeover; server_max_window_bits":                         false,
		"permessage-deflate; server_no_context_takeover; x":                                              false,
		"permessage-deflate; server_no_context_takeover, permessage-deflate; server_no_context_takeover": false,
		"x-webkit-deflate-frame":                                                                         false,
	} {
		list, ok := wswire.ParseExtensions([]string{answer})
		if !ok {
			t.Fatal(answer)
		}
		if p, got := wswire.Agreed(list, true); got != want || p.Deflate != want {
			t.Errorf("%s: got %v, %+v", answer, got, p)
		}
		if _, got := wswire.Agreed(list, false); got {
			t.Errorf("%s: taken though nothing was offered", answer)
		}
	}
	if p, ok := wswire.Agreed(nil, true); !ok || p.Deflate {
		t.Error("no answer is one")
	}
}

func TestHandshake(t *testing.T) {
	if got := wswire.Accept("dGhlIHNhbXBsZSBub25jZQ=="); got != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" {
		t.Errorf("RFC 6455 1.3: %s", got)
	}
	if k := wswire.NewKey([16]byte{1}); !wswire.ValidKey(k) {
		t.Errorf("own key %s", k)
	}
	for _, k := range []string{"", "x", "dGhlIHNhbXBsZSBub25jZQ=", "dGhlIHNhbXBsZSBub25jZR==", "dGhlIHNhbXBsZSBub25jZ!==", "AAAAAAAAAAAAAAAAAAAAAAAA", "dGhlIHNhbXBsZSBub25j\nZQ="} {
		if wswire.ValidKey(k) {
			t.Errorf("%q is taken for a key", k)
		}
	}
	for in, want := range map[string]string{"a": "[a]", "a, b ,c": "[a b c]", "": "bad", "a,,b": "bad", "a, a": "bad", "a b": "bad", "\"a\"": "bad"} {
		list, ok := wswire.ParseProtocols([]string{in})
		if got := fmt.Sprint(list); ok && got != want || !ok && want != "bad" {
			t.Errorf("%q: %s, %v", in, got, ok)
		}
	}
}
