// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package termfilter_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"bawn/internal/termfilter"
)

func TestI14LineLeavesOrdinaryText(t *testing.T) {
	for name, s := range map[string]string{
		"empty":                   "",
		"ASCII":                   `GET /a?b=c "quoted" \x1b {}~`,
		"Latin":                   "Žluťoučký kůň, naïve café\u00a0—",
		"marks apart":             "e\u0301 o\u0302\u0323",
		"Cyrillic and Greek":      "привет γειά",
		"Chinese, Japanese":       "世界　こんにちは",
		"Korean":                  "안녕하세요",
		"Hebrew with points":      "שָׁלוֹם",
		"Arabic":                  "مرحبا بالعالم",
		"Persian with non-joiner": "می\u200cخواهم",
		"Hindi":                   "क्\u200dषमा नमस्ते",
		"Tamil, Thai, Tibetan":    "தமிழ் ภาษาไทย བོད་ཡིག",
		"Arabic number sign":      "\u0600\u0661",
		"emoji":                   "👍 ✅ ❤️ ☎️ ☎︎",
		"emoji with a skin tone":  "👍🏽",
		"a family":                "👨\u200d👩\u200d👧",
		"a rainbow flag":          "🏳️\u200d🌈",
		"a health worker":         "👩🏽\u200d⚕️",
		"keycaps":                 "1\ufe0f\u20e3#\ufe0f\u20e3",
		"flags of countries":      "🇨🇭🇯🇵",
		"information":             "ℹ️ ‼️ ↔️ ©️",
		"replacement":             "\ufffd",
		"private use":             "\ue0b0",
	} {
		if got := termfilter.Line(s); got != s {
			t.Errorf("%s: %q became %q", name, s, got)
		}
	}
}

func TestI14LineShowsWhatHides(t *testing.T) {
	for in, want := range map[string]string{
		"a\nb\r\n\tc":                     `a\nb\r\n\tc`,
		"\x00\a\b\v\f\x1b[31m\x7f":        `\x00\x07\x08\x0b\x0c\x1b[31m\x7f`,
		"\u0080\u0085\u009b31m":           `\u0080\u0085\u009b31m`,
		"\x9b\xff\xc3(\xe2\x82":           `\x9b\xff\xc3(\xe2\x82`,
		"\xed\xa0\x80":                    `\xed\xa0\x80`,
		"\xc0\x8a":                        `\xc0\x8a`,
		"a\u2028b\u2029":                  `a\u2028b\u2029`,
		"exe\u202efdp.txt":                `exe\u202efdp.txt`,
		"\u202a\u202b\u202c\u202d":        `\u202a\u202b\u202c\u202d`,
		"\u2066\u2067\u2068\u2069":        `\u2066\u2067\u2068\u2069`,
		"\u200e\u200f\u061c":              `\u200e\u200f\u061c`,
		"a\u200bb\ufeffc\u2060d\u00ade":   `a\u200bb\ufeffc\u2060d\u00ade`,
		"pay\u200dpal\u200c":              `pay\u200dpal\u200c`,
		"a\u034fb":                        `a\u034fb`,
		"\u115f\u1160\u3164\uffa0":        `\u115f\u1160\u3164\uffa0`,
		"\u180e\u180b":                    `\u180e\u180b`,
		"\U000e0041\U000e007f\U000e0100":  `\U000e0041\U000e007f\U000e0100`,
		"\ufff9x\ufffa":                   `\ufff9x\ufffa`,
		"\U0001d173":                      `\U0001d173`,
		"\ufffe\uffff\U0001ffff\ufdd0":    `\ufffe\uffff\U0001ffff\ufdd0`,
		"a\ufe0f":                         `a\ufe0f`,
		"1\ufe0f":                         `1\ufe0f`,
		"❤\ufe0f\ufe0f":                   "❤\ufe0f" + `\ufe0f`,
		"👨\u200d\u200d👩":                  "👨" + `\u200d\u200d` + "👩",
		"👨\u200d":                         "👨" + `\u200d`,
		"👨\u200d\xff":                     "👨" + `\u200d\xff`,
		"م\u200d":                         "م" + `\u200d`,
		"\u0301a":                         `\u0301a`,
		"a" + strings.Repeat("\u0301", 9): "a" + strings.Repeat("\u0301", 8) + `\u0301`,
	} {
		if got := termfilter.Line(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// Whatever was not let through as a case of its own must be seen.
func TestI14LineLeavesNoInvisibleCharacter(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		hides := unicode.In(r, unicode.Cc, unicode.Bidi_Control, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
		if !hides || !utf8.ValidRune(r) {
			continue
		}
		if got := termfilter.Line("a" + string(r) + "b"); strings.ContainsRune(got, r) {
			t.Errorf("%U stays between Latin letters", r)
		}
	}
}

func FuzzLine(f *testing.F) {
	for _, s := range []string{"a", "\x1b[31m", "a\u202eb", "👨\u200d👩\ufe0f", "می\u200cخ", "1\ufe0f\u20e3", "\xe2\x82", "\u0301"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		line := termfilter.Line(s)
		if !utf8.ValidString(line) {
			t.Fatalf("%q is not UTF-8", line)
		}
		for _, r := range line {
			if unicode.In(r, unicode.Cc, unicode.Bidi_Control, unicode.Zl, unicode.Zp) {
				t.Fatalf("%q holds %U", line, r)
			}
		}
		if again := termfilter.Line(line); again != line {
			t.Fatalf("%q became %q the second time", line, again)
		}
		var filter termfilter.Filter
		if shown := string(filter.Append(nil, []byte(line))); shown != line {
			t.Fatalf("the filter changes the safe line %q to %q", line, shown)
		}
	})
}
