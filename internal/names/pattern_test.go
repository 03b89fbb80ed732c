// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package names_test

import (
	"testing"

	"bawn/internal/codes"
	"bawn/internal/names"
)

func TestPatternMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, host string
		want          bool
	}{
		{"ok.example", "ok.example", true},
		{"OK.Example.", "ok.example", true},
		{"ok.example", "a.ok.example", false},
		{"trusted.net", "nottrusted.net", false},
		{"*.trusted.net", "nottrusted.net", false},
		{"archive.ubuntu.com", "archive.ubuntu.com.evil.com", false},
		{"*.ubuntu.com", "archive.ubuntu.com.evil.com", false},
		{"*.ubuntu.com", "archive.ubuntu.com", true},
		{"*.example.com", "example.com", false}, // never the apex
		{"*.example.com", "a.example.com", true},
		{"*.example.com", "a.b.example.com", true},
		{"*.com", "com", false},
		{"*", "anything.example", true},
	} {
		p, err := names.ParsePattern(c.pattern)
		if err != nil {
			t.Errorf("ParsePattern(%q): %v", c.pattern, err)
			continue
		}
		if got := p.Match(names.MustParse(c.host)); got != c.want {
			t.Errorf("%q matches %q: %v, want %v", c.pattern, c.host, got, c.want)
		}
		if p.Match(names.Host{}) {
			t.Errorf("%q matches the zero host", c.pattern)
		}
	}
	if (names.Pattern{}).Match(names.MustParse("a.example")) || (names.Pattern{}).Match(names.Host{}) {
		t.Error("the zero pattern matches")
	}
}

func TestPatternRefuses(t *testing.T) {
	for _, s := range []string{
		"", "*.", "**", "**.example", "foo.**.x", "ex*ample.com", "*example.com", "a.*.example", "*.*.example", "*a.example",
		"a.*", ".example.com", "*..example", "*.example..com", "re:.*", "*.ex ample", "*.xn--ok-.example", "/.*/", "*.*",
	} {
		p, err := names.ParsePattern(s)
		if err == nil {
			t.Errorf("ParsePattern(%q) = %q, want refusal", s, p)
			continue
		}
		wantCode(t, err, codes.HostInvalid)
	}
	for _, s := range []string{"*.1", "*.0x7f", "1.2.3.4", "::1"} {
		_, err := names.ParsePattern(s)
		wantCode(t, err, codes.IPLiteralDenied)
	}
}

func TestPatternCovers(t *testing.T) {
	for _, c := range []struct {
		p, other string
		want     bool
	}{
		{"*", "*.example", true},
		{"*", "a.example", true},
		{"*", "*", true},
		{"*.example", "*", false},
		{"*.example", "*.example", true},
		{"*.example", "*.a.example", true},
		{"*.a.example", "*.example", false},
		{"*.example", "a.example", true},
		{"*.example", "example", false},
		{"*.example", "*.notexample", false},
		{"a.example", "a.example", true},
		{"a.example", "*.example", false},
		{"a.example", "*.a.example", false},
	} {
		if got := names.MustPattern(c.p).Covers(names.MustPattern(c.other)); got != c.want {
			t.Errorf("%q covers %q: %v, want %v", c.p, c.other, got, c.want)
		}
	}
	if (names.Pattern{}).Covers(names.Pattern{}) || names.MustPattern("*").Covers(names.Pattern{}) {
		t.Error("something covers the zero pattern")
	}
}

func TestTooWide(t *testing.T) {
	for _, s := range []string{
		"*", "*.com", "*.ai", "*.co.uk", "*.corp", "*.internal", "*.kawasaki.jp", "*.ck", // the last two by rules "*.zone" of the list
		"*.github.io", "*.vercel.app", "*.workers.dev", "*.herokuapp.com", "*.cloudfront.net", "*.ngrok.io", "*.run.app",
		"*.s3.amazonaws.com", "*.s3.eu-west-1.amazonaws.com", "*.eu-west-1.amazonaws.com", "*.amazonaws.com",
		"*.compute.amazonaws.com", "*.execute-api.us-east-1.amazonaws.com",
		"*.blob.core.windows.net", "*.queue.core.windows.net", "*.core.windows.net", "*.windows.net", "*.openai.azure.com",
		"*.zapier.com", "*.hooks.slack.com.nip.io", "*.slack.com", "*.storage.googleapis.com", "*.googleapis.com",
		"*.r2.cloudflarestorage.com", "*.ingest.sentry.io", "*.oastify.com", "*.us-east-1.aws.neon.tech", "*.xn--p1ai",
	} {
		why, wide := names.TooWide(names.MustPattern(s))
		if !wide || why == "" {
			t.Errorf("TooWide(%q) = %q, %v: want too wide, with a reason", s, why, wide)
		}
	}
	for _, s := range []string{
		"*.example.com", "*.example.co.uk", "*.api.example.com", "*.team.github.io", "*.mybucket.s3.amazonaws.com",
		"*.account.blob.core.windows.net", "*.openai.com", "*.anthropic.com", "*.pypi.org", "*.corp.example",
		"com", "github.io", "ok.example", "hooks.zapier.com", "nip.io", "*.notzapier.com",
	} {
		if why, wide := names.TooWide(names.MustPattern(s)); wide {
			t.Errorf("TooWide(%q): %s, want not too wide", s, why)
		}
	}
	if _, wide := names.TooWide(names.Pattern{}); wide {
		t.Error("the zero pattern, which matches nothing, is too wide")
	}
}
