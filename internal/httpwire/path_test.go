// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package httpwire_test

import (
	"net/url"
	"strings"
	"testing"

	"bawn/internal/codes"
	"bawn/internal/httpwire"
)

var refusedTargets = []refusedForm{
	{"an empty target", "3.2.1", codes.TargetInvalid, ""},
	{"a target that is not a path", "3.2.1", codes.TargetInvalid, "health"},
	{"a fragment", "3.2", codes.TargetInvalid, "/health#/../../admin"},
	{"an authority-looking prefix", "RFC 3986 3.3", codes.TargetInvalid, "//evil.example/health"},
	{"an empty segment", "RFC 3986 3.3", codes.TargetInvalid, "/a//b"},
	{"an empty last segment after another", "RFC 3986 3.3", codes.TargetInvalid, "/a//"},
	{"a dot segment", "RFC 3986 5.2.4", codes.TargetInvalid, "/./admin"},
	{"two dots", "RFC 3986 5.2.4", codes.TargetInvalid, "/health/../admin"},
	{"two dots at the end", "RFC 3986 5.2.4", codes.TargetInvalid, "/health/.."},
	{"escaped dots", "RFC 3986 5.2.4", codes.TargetInvalid, "/health/%2e%2e/admin"},
	{"a dot and an escaped dot", "RFC 3986 5.2.4", codes.TargetInvalid, "/health/.%2E/admin"},
	{"dots with a parameter", "RFC 3986 5.2.4", codes.TargetInvalid, "/health/..;a=b/admin"},
	{"dots with an escaped parameter", "RFC 3986 5.2.4", codes.TargetInvalid, "/health/..%3Ba/admin"},
	{"dots beside an escaped slash", "RFC 3986 5.2.4", codes.TargetInvalid, "/health/..%2fadmin"},
	{"dots between escaped slashes", "RFC 3986 5.2.4", codes.TargetInvalid, "/a%2f%2e%2e%2fb"},
	{"a backslash", "RFC 3986 3.3", codes.TargetInvalid, "/a\\b"},
	{"an escaped backslash", "RFC 3986 3.3", codes.TargetInvalid, "/..%5cadmin"},
	{"an escaped NUL", "RFC 3986 7.3", codes.TargetInvalid, "/a%00"},
	{"an escaped CR", "RFC 3986 7.3", codes.TargetInvalid, "/a%0D"},
	{"an escaped LF", "RFC 3986 7.3", codes.TargetInvalid, "/a/b%0aX: y"},
	{"an escape that is not UTF-8", "RFC 3986 2.5", codes.TargetInvalid, "/%ff"},
	{"an overlong slash", "RFC 3986 2.5", codes.TargetInvalid, "/a%c0%af"},
	{"an overlong dot segment", "RFC 3986 2.5", codes.TargetInvalid, "/%c0%ae%c0%ae/"},
	{"a surrogate", "RFC 3986 2.5", codes.TargetInvalid, "/%ed%a0%80"},
	{"an escape of an escape", "RFC 3986 2.4", codes.TargetInvalid, "/%2561dmin"},
	{"an escape of an escape, its digits escaped", "RFC 3986 2.4", codes.TargetInvalid, "/%25%36%31dmin"},
	{"an escaped escape of a slash", "RFC 3986 2.4", codes.TargetInvalid, "/a%252fb"},
	{"an escape without digits", "RFC 3986 2.1", codes.TargetInvalid, "/a%zz"},
	{"an escape cut short", "RFC 3986 2.1", codes.TargetInvalid, "/a%2"},
	{"a tab", "3.2", codes.TargetInvalid, "/heal\tth"},
	{"a raw octet outside ASCII", "3.2", codes.TargetInvalid, "/\u00e9"},
	{"a fragment in the query", "3.2", codes.TargetInvalid, "/a?b#c"},
	{"a control octet in the query", "3.2", codes.TargetInvalid, "/a?b\x01"},
}

func TestRefusedTargets(t *testing.T) {
	for _, c := range refusedTargets {
		t.Run(c.what, func(t *testing.T) {
			path, query, err := httpwire.CanonicalTarget(c.bytes)
			wantCode(t, err, c.code)
			if path != "" || query != "" {
				t.Errorf("got %q and %q beside the error", path, query)
			}
		})
	}
}

func TestCanonicalTarget(t *testing.T) {
	for in, want := range map[string]struct{ path, query string }{
		"/":                       {"/", ""},
		"/?":                      {"/", "?"},
		"/v1/things?limit=2":      {"/v1/things", "?limit=2"},
		"/a/":                     {"/a/", ""},
		"/%7A%65%6E":              {"/zen", ""},
		"/%7euser/a%2d":           {"/~user/a-", ""},
		"/@scope%2fname":          {"/@scope%2Fname", ""},
		"/group%2Fproject/x":      {"/group%2Fproject/x", ""},
		"/a%20b%c3%a9":            {"/a%20b%C3%A9", ""},
		"/[slug]/{x}|^`\"<>":      {"/%5Bslug%5D/%7Bx%7D%7C%5E%60%22%3C%3E", ""},
		"/100%25":                 {"/100%25", ""},
		"/100%25/aa":              {"/100%25/aa", ""},
		"/100%25%20ab":            {"/100%25%20ab", ""},
		"/.hidden/..x/...":        {"/.hidden/..x/...", ""},
		"/a%09%7f":                {"/a%09%7F", ""},
		"/a;b=c/d,e":              {"/a;b=c/d,e", ""},
		"/%21%3a%40":              {"/%21%3A%40", ""},
		"/x?a=%zz&b=[1]\\{}|^":    {"/x", "?a=%zz&b=[1]\\{}|^"},
		"/x?a=../..//%00%2e?b":    {"/x", "?a=../..//%00%2e?b"},
		"/test.html?a=b&%dd=%ee":  {"/test.html", "?a=b&%dd=%ee"},
		"/%E2%84%AA%C5%BF":        {"/%E2%84%AA%C5%BF", ""},
		"/a:b@c!$&'()*+,;=-._~/x": {"/a:b@c!$&'()*+,;=-._~/x", ""},
	} {
		path, query, err := httpwire.CanonicalTarget(in)
		if err != nil || path != want.path || query != want.query {
			t.Errorf("%q: got %q, %q, %v, want %q, %q", in, path, query, err, want.path, want.query)
		}
	}
}

// FuzzCanonicalTarget checks that the canonical form is its own canonical
// form, and that net/url decodes it to the same text as the target, without a
// dot segment in it: the judged path is the path that a server will see.
func FuzzCanonicalTarget(f *testing.F) {
	for _, c := range refusedTargets {
		f.Add(c.bytes)
	}
	for _, s := range []string{"/", "/a%2Fb/c?d", "/%7e%25%20", "/[a]/{b}?c=[d]", "/a;b/..;c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		path, query, err := httpwire.CanonicalTarget(in)
		if err != nil {
			return
		}
		path2, query2, err := httpwire.CanonicalTarget(path + query)
		if err != nil || path2 != path || query2 != query {
			t.Fatalf("%q became %q%s, and that %q%s, %v", in, path, query, path2, query2, err)
		}
		rawPath, _, _ := strings.Cut(in, "?")
		want, err := url.PathUnescape(rawPath)
		if err != nil {
			t.Fatalf("%q is accepted, but net/url cannot decode it: %v", in, err)
		}
		u, err := url.ParseRequestURI(path + query)
		if err != nil {
			t.Fatalf("net/url refuses %q: %v", path+query, err)
		}
		if u.Path != want || u.Host != "" || u.EscapedPath() != path {
			t.Fatalf("%q: net/url reads path %q (%q) on host %q in %q", in, u.Path, u.EscapedPath(), u.Host, path)
		}
		for _, s := range strings.Split(u.Path, "/") {
			if s == "." || s == ".." {
				t.Fatalf("%q: a dot segment is left in %q", in, u.Path)
			}
		}
	})
}
