// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package contentcoding_test

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	kgzip "github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"bawn/internal/codes"
	"bawn/internal/contentcoding"
)

var all = []contentcoding.Coding{contentcoding.Gzip, contentcoding.Zstd, contentcoding.Brotli}

func encode(t testing.TB, c contentcoding.Coding, clear []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	var w io.WriteCloser
	switch c {
	case contentcoding.Gzip:
		w = gzip.NewWriter(&out)
	case contentcoding.Brotli:
		w = brotli.NewWriter(&out)
	case contentcoding.Zstd:
		var err error
		if w, err = zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Write(clear); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func code(err error) codes.Code {
	if e, ok := errors.AsType[*contentcoding.Error](err); ok {
		return e.Code
	}
	return ""
}

func TestOf(t *testing.T) {
	for _, tc := range []struct {
		values []string
		want   contentcoding.Coding
		ok     bool
	}{
		{nil, contentcoding.Identity, true},
		{[]string{"identity"}, contentcoding.Identity, true},
		{[]string{"gzip"}, contentcoding.Gzip, true},
		{[]string{"zstd"}, contentcoding.Zstd, true},
		{[]string{"br"}, contentcoding.Brotli, true},
		{[]string{"gzip, gzip"}, 0, false},
		{[]string{"gzip", "gzip"}, 0, false},
		{[]string{"gzip,"}, 0, false},
		{[]string{"identity, gzip"}, 0, false},
		{[]string{"x-gzip"}, 0, false},
		{[]string{"GZIP"}, 0, false},
		{[]string{"deflate"}, 0, false},
		{[]string{"compress"}, 0, false},
		{[]string{"aws-chunked"}, 0, false},
		{[]string{"gzip;q=1"}, 0, false},
		{[]string{""}, 0, false},
	} {
		c, err := contentcoding.Of(tc.values)
		if (err == nil) != tc.ok || tc.ok && c != tc.want || !tc.ok && code(err) != codes.BodyUndecodable {
			t.Errorf("%q: %v, %v", tc.values, c, err)
		}
	}
}

// TestDecode reads what encoders of other hands wrote: gzip of Python and of
// Node, Brotli of Node, zstd of its command line.
func TestDecode(t *testing.T) {
	for name, tc := range map[string]struct {
		c        contentcoding.Coding
		in, want string
	}{
		"gzip of Node":            {contentcoding.Gzip, "1f8b0800000000000003 ab564a54b232ac0500 afac1b56 07000000", `{"a":1}`},
		"gzip with a name":        {contentcoding.Gzip, "1f8b080800000000 02ff 6100 ab564a54b232ac0500 afac1b56 07000000", `{"a":1}`},
		"brotli of Node":          {contentcoding.Brotli, "0b03807b2261223a317d03", `{"a":1}`},
		"brotli with repetitions": {contentcoding.Brotli, "1b2b01f88d946ede44095286966c2c6f315b24f07b1c", strings.Repeat("hello, ", 42) + "hello,"},
		"zstd with a checksum":    {contentcoding.Zstd, "28b52ffd0458 390000 7b2261223a317d 488bfc32", `{"a":1}`},
		"zstd without":            {contentcoding.Zstd, "28b52ffd0058 390000 7b2261223a317d", `{"a":1}`},
		"zstd of one segment":     {contentcoding.Zstd, "28b52ffd20 07 390000 7b2261223a317d", `{"a":1}`},
		"zstd, a repeated octet":  {contentcoding.Zstd, "28b52ffd0058 430000 61", "aaaaaaaa"},
		"an empty gzip":           {contentcoding.Gzip, "1f8b0800000000000003 0300 00000000 00000000", ""},
		"an empty zstd":           {contentcoding.Zstd, "28b52ffd0058 010000", ""},
		"an empty brotli":         {contentcoding.Brotli, "06", ""},
		"nothing to undo":         {contentcoding.Identity, "7b7d", "{}"},
	} {
		got, err := contentcoding.Decode(tc.c, unhex(t, tc.in), contentcoding.Limits{})
		if want := tc.want; err != nil || got == nil || string(got) != want && string(got) != want+" " {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// TestRefused: whatever could be read in two ways, or not by everybody.
func TestRefused(t *testing.T) {
	const member = "1f8b0800000000000003 ab564a54b232ac0500 afac1b56 07000000"
	const frame = "28b52ffd0058 390000 7b2261223a317d"
	for name, tc := range map[string]struct {
		c  contentcoding.Coding
		in string
	}{
		"gzip: no octets":              {contentcoding.Gzip, ""},
		"gzip: plain text":             {contentcoding.Gzip, "7b2261223a317d"},
		"gzip: two members":            {contentcoding.Gzip, member + member},
		"gzip: zeros behind it":        {contentcoding.Gzip, member + "0000"},
		"gzip: a wrong checksum":       {contentcoding.Gzip, strings.Replace(member, "afac", "afad", 1)},
		"gzip: a wrong length":         {contentcoding.Gzip, strings.Replace(member, "07000000", "08000000", 1)},
		"gzip: no checksum":            {contentcoding.Gzip, member[:len(member)-18]},
		"gzip: reserved flags":         {contentcoding.Gzip, strings.Replace(member, "1f8b0800", "1f8b0820", 1)},
		"gzip: another method":         {contentcoding.Gzip, strings.Replace(member, "1f8b08", "1f8b09", 1)},
		"gzip: a raw deflate stream":   {contentcoding.Gzip, "ab564a54b232ac0500"},
		"gzip: a zlib stream":          {contentcoding.Gzip, "789cab564a54b232ac05000a3b0220"},
		"zstd: no octets":              {contentcoding.Zstd, ""},
		"zstd: two frames":             {contentcoding.Zstd, frame + frame},
		"zstd: a frame to skip":        {contentcoding.Zstd, frame + "502a4d18 04000000 61626364"},
		"zstd: a frame to skip before": {contentcoding.Zstd, "502a4d18 04000000 61626364" + frame},
		"zstd: octets behind it":       {contentcoding.Zstd, frame + "00"},
		"zstd: a wrong checksum":       {contentcoding.Zstd, "28b52ffd0458 390000 7b2261223a317d 488bfc33"},
		"zstd: no checksum":            {contentcoding.Zstd, "28b52ffd0458 390000 7b2261223a317d"},
		"zstd: a dictionary":           {contentcoding.Zstd, "28b52ffd0158 07 390000 7b2261223a317d"},
		"zstd: a reserved bit":         {contentcoding.Zstd, "28b52ffd0858 390000 7b2261223a317d"},
		"zstd: an unused bit":          {contentcoding.Zstd, "28b52ffd0058 3f0000 7b2261223a317d"},
		"zstd: a window of 16 MiB":     {contentcoding.Zstd, "28b52ffd0070 390000 7b2261223a317d"},
		"zstd: no last block":          {contentcoding.Zstd, "28b52ffd0058 380000 7b2261223a317d"},
		"zstd: a shorter content":      {contentcoding.Zstd, "28b52ffd20 08 390000 7b2261223a317d"},
		"zstd: a longer content":       {contentcoding.Zstd, "28b52ffd20 06 390000 7b2261223a317d"},
		"zstd: an old format":          {contentcoding.Zstd, "27b52ffd0058 390000 7b2261223a317d"},
		"zstd: no content":             {contentcoding.Zstd, "28b52ffd"},
		"zstd: half a size":            {contentcoding.Zstd, "28b52ffd e0 010203"},
		"zstd: no window":              {contentcoding.Zstd, "28b52ffd 00"},
		"brotli: no octets":            {contentcoding.Brotli, ""},
		"brotli: octets behind it":     {contentcoding.Brotli, "0b03807b2261223a317d03" + "00"},
		"brotli: two streams":          {contentcoding.Brotli, "0b03807b2261223a317d03" + "0b03807b2261223a317d03"},
		"brotli: no end":               {contentcoding.Brotli, "0b03807b2261223a317d"},
		"brotli: a large window":       {contentcoding.Brotli, "1119"},
		"a coding that is none":        {contentcoding.Coding(9), "00"},
	} {
		got, err := contentcoding.Decode(tc.c, unhex(t, tc.in), contentcoding.Limits{})
		if code(err) != codes.BodyUndecodable {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestBounds(t *testing.T) {
	for _, c := range all {
		bomb := encode(t, c, make([]byte, 8<<20))
		if got, err := contentcoding.Decode(c, bomb, contentcoding.Limits{}); code(err) != codes.BodyTooLarge {
			t.Errorf("%v: %d octets became %d: %v", c, len(bomb), len(got), err)
		}
		short := encode(t, c, make([]byte, 64<<10))
		if got, err := contentcoding.Decode(c, short, contentcoding.Limits{}); err != nil || len(got) != 64<<10 {
			t.Errorf("%v: a short text of one letter: %v", c, err)
		}
		noise := make([]byte, 100<<10)
		rand.NewChaCha8([32]byte{}).Read(noise)
		full := encode(t, c, noise)
		if _, err := contentcoding.Decode(c, full, contentcoding.Limits{Octets: 100<<10 - 1}); code(err) != codes.BodyTooLarge {
			t.Errorf("%v: one octet beyond the bound: %v", c, err)
		}
		if got, err := contentcoding.Decode(c, full, contentcoding.Limits{Octets: 100 << 10}); err != nil || !bytes.Equal(got, noise) {
			t.Errorf("%v: as many as the bound: %v", c, err)
		}
	}
	zeros := "28b52ffd 0058" + "fa0700 00" + "010000" // a block of 255 octets
	if _, err := contentcoding.Decode(contentcoding.Zstd, unhex(t, zeros), contentcoding.Limits{Octets: 254}); code(err) != codes.BodyTooLarge {
		t.Errorf("zstd that does not say its size: %v", err)
	}
}

// TestEveryOctetCounts: no octet can be added at the end, nor taken away.
func TestEveryOctetCounts(t *testing.T) {
	clear := []byte(`{"model":"small","input":["` + strings.Repeat("hello ", 50) + `"]}`)
	for _, c := range all {
		whole := encode(t, c, clear)
		for n := range whole {
			if got, err := contentcoding.Decode(c, whole[:n], contentcoding.Limits{}); err == nil {
				t.Errorf("%v: the first %d of %d octets are %q", c, n, len(whole), got)
			}
		}
		for b := range 256 {
			if _, err := contentcoding.Decode(c, append(bytes.Clone(whole), byte(b)), contentcoding.Limits{}); err == nil {
				t.Errorf("%v: taken with %#x behind it", c, b)
			}
		}
	}
}

// FuzzDecode: what was encoded decodes to what it was; and what is accepted is
// bounded, accepted again, and becomes nothing with an octet more. Of gzip
// another decoder says the same.
func FuzzDecode(f *testing.F) {
	for _, c := range all {
		f.Add(uint8(c), encode(f, c, []byte(`{"a":1}`)))
		f.Add(uint8(c), encode(f, c, make([]byte, 1000)))
	}
	f.Add(uint8(contentcoding.Zstd), unhex(f, "28b52ffd20 07 390000 7b2261223a317d"))
	lim := contentcoding.Limits{Octets: 1 << 16}
	f.Fuzz(func(t *testing.T, kind uint8, data []byte) {
		c := all[int(kind)%len(all)]
		if again, err := contentcoding.Decode(c, encode(t, c, data), contentcoding.Limits{Octets: int64(len(data))}); len(data) > 0 && (err != nil || !bytes.Equal(again, data)) {
			t.Fatalf("%v: %q became %q: %v", c, data, again, err)
		}
		out, err := contentcoding.Decode(c, data, lim)
		if err != nil {
			if got := code(err); got != codes.BodyUndecodable && got != codes.BodyTooLarge {
				t.Fatalf("%v: error %v", c, err)
			}
			return
		}
		if int64(len(out)) > lim.Octets {
			t.Fatalf("%v: %d octets", c, len(out))
		}
		if _, err := contentcoding.Decode(c, append(bytes.Clone(data), 0), lim); err == nil {
			t.Fatalf("%v: %x taken with an octet behind it", c, data)
		}
		if c == contentcoding.Gzip {
			z, err := kgzip.NewReader(bytes.NewReader(data))
			if err != nil {
				t.Fatalf("the other decoder: %v", err)
			}
			if other, err := io.ReadAll(z); err != nil || !bytes.Equal(other, out) {
				t.Fatalf("the other decoder reads %q, %v; ours %q", other, err, out)
			}
		}
	})
}
