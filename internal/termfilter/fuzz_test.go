// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package termfilter_test

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"bawn/internal/termfilter"
)

// The oracle says a second time, and in another way than the filter, what output
// may consist of.
const (
	oracleNumber = `0*(?:[0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])`
	oracleCount  = `(?:` + oracleNumber + `)?`
	oracleMode   = `(?:1|5|6|7|12|25|47|1000|1002|1003|1004|1006|1007|1047|1048|1049|2004|2026|2027|2031)`
	oracleTitle  = `[^\x00-\x1f\x7f-\x{9f}\x{200b}\x{202a}-\x{202e}\x{2066}-\x{2069}]{0,255}`
	oracleEnd    = `(?:\x07|\x1b\\)`
)

var (
	harmless = regexp.MustCompile(`^(?:` + strings.Join([]string{
		`[\x07-\x0f]`,
		`[ -~]`,
		`[^\x00-\x{9f}]`,
		`\x1b[78DEM=>]`,
		`\x1b[()][0B]`,
		`\x1b\[` + oracleCount + `[@A-GILMPSTXZade` + "`" + `]`,
		`\x1b\[` + oracleCount + `(?:;` + oracleCount + `)?[Hfr]`,
		`\x1b\[0*[012]?[JK]`,
		`\x1b\[0*(?:[0-9]{0,3}|10[01][0-9]|102[0-4])b`,
		`\x1b\[` + oracleCount + `(?:[;:]` + oracleCount + `){0,31}m`,
		`\x1b\[[su]`,
		`\x1b\[0*4[hl]`,
		`\x1b\[0*[0-6]? q`,
		`\x1b\[!p`,
		`\x1b\[\?0*[018]c`,
		`\x1b\[0*2[23](?:;0*[012]?)?(?:;0+)?t`,
		`\x1b\[>0*4(?:;0*[012]?)?m`,
		`\x1b\[>0*(?:[0-9]|[12][0-9]|3[01])?u`,
		`\x1b\[<0*[0-9]{0,2}u`,
		`\x1b\[=0*(?:[0-9]|[12][0-9]|3[01])?(?:;0*[0-3]?)?u`,
		`\x1b\[>?0*c`,
		`\x1b\[0*[56]n`,
		`\x1b\[\?(?:0*996n|u|0*4m)`,
		`\x1b\[\?0*` + oracleMode + `\$p`,
		`\x1b\[\?` + oracleMode + `(?:;` + oracleMode + `)*[hl]`,
		`\x1b\][012];` + oracleTitle + oracleEnd,
		`\x1b\]4;[0-9]{1,3};\?(?:;[0-9]{1,3};\?)*` + oracleEnd,
		`\x1b\]1[012];\?` + oracleEnd,
	}, "|") + `)*$`)
	overlong = regexp.MustCompile(`\x1b\[[ -?]{256}[ -?]`)
)

func FuzzFilter(f *testing.F) {
	for _, group := range []map[string]string{kept, dropped, fullScreen} {
		for _, s := range group {
			f.Add([]byte(s), false, 3)
		}
	}
	f.Fuzz(func(t *testing.T, in []byte, isPlain bool, at int) {
		whole := termfilter.Filter{Plain: isPlain}
		out := whole.Append(nil, in)
		checkOutput(t, out)
		checkOutput(t, whole.Restore(nil))

		again := termfilter.Filter{Plain: isPlain}
		if twice := again.Append(nil, out); !bytes.Equal(twice, out) {
			t.Fatalf("%q\nbecame %q the second time", out, twice)
		}
		at = max(0, min(at, len(in)))
		pieces := termfilter.Filter{Plain: isPlain}
		got := pieces.Append(nil, in[:at])
		checkOutput(t, got)
		if got = pieces.Append(got, in[at:]); !bytes.Equal(got, out) {
			t.Fatalf("cut at %d:\n got %q\nwant %q", at, got, out)
		}
		if !isPlain {
			return
		}
		var more termfilter.Filter
		if wide := more.Append(nil, out); !bytes.Equal(wide, out) {
			t.Fatalf("plain output %q is changed to %q", out, wide)
		}
	})
}

// checkOutput fails unless out is made of harmless sequences, each whole.
func checkOutput(t *testing.T, out []byte) {
	t.Helper()
	if !utf8.Valid(out) {
		t.Fatalf("%q is not UTF-8", out)
	}
	if !harmless.Match(out) || overlong.Match(out) {
		t.Fatalf("%q holds something else than the allowed sequences", out)
	}
}

func TestI14OutputIsMadeOfHarmlessSequences(t *testing.T) {
	in := everything()
	for _, isPlain := range []bool{false, true} {
		f := termfilter.Filter{Plain: isPlain}
		checkOutput(t, f.Append(nil, in))
	}
	for name, s := range dropped {
		if harmless.MatchString(s) && !overlong.MatchString(s) {
			t.Errorf("%s: the oracle allows what is dropped", name)
		}
	}
}

func BenchmarkFilter(b *testing.B) {
	for name, in := range map[string][]byte{
		"text":       []byte(strings.Repeat("the quick brown fox jumps over the lazy dog\r\n", 1000)),
		"fullscreen": []byte(strings.Repeat(fullScreen["htop"], 50)),
		"chinese":    []byte(strings.Repeat("世界", 5000)),
	} {
		b.Run(name, func(b *testing.B) {
			var f termfilter.Filter
			var out []byte
			b.SetBytes(int64(len(in)))
			b.ReportAllocs()
			for b.Loop() {
				out = f.Append(out[:0], in)
			}
		})
	}
}
