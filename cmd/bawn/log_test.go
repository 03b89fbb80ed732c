// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"bawn/internal/audit"
	"bawn/internal/codes"
	"bawn/internal/ids"
	"bawn/internal/verdict"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.Local)

// entries are one of each kind.
func entries() []audit.Entry {
	dev := ids.Identity{Agent: "dev", User: "alice@example.com"}
	allowed := &audit.Decision{Time: noon, Identity: dev, Verdict: verdict.Allow, Proto: "http/1.1", Method: "GET", Scheme: "https", Host: "api.example.com", Port: 443, Path: "/v1/\x1b[31mx"}
	plain := *allowed
	plain.Scheme, plain.Port, plain.Path, plain.Credential = "http", 8080, "/", "cert-a"
	return []audit.Entry{
		{Decision: &audit.Decision{Time: noon, Identity: dev, Proto: "http/1.1", Method: "CONNECT", Asked: "evil.example.org:443", Host: "evil.example.org", Port: 443, Code: codes.HostNotAllowed}},
		{Decision: allowed, Outcome: &audit.Outcome{Time: noon, Status: 200, BytesUp: 113, BytesDown: 1245}},
		{Decision: &plain, Outcome: &audit.Outcome{Time: noon, Status: 502, Code: codes.AddressUnresolved, Error: "no answer"}},
		{Decision: allowed, Outcome: &audit.Outcome{Time: noon.Add(time.Minute), Status: 200, BytesUp: 1, BytesDown: 2, Cut: "policy"}, Late: true},
		{Decision: &audit.Decision{Time: noon, Identity: dev, Proto: "dns", Method: "TYPE16", Host: "x.evil.example.org", Port: 53, Code: codes.DNSNameNotAllowed}},
		{Decision: &audit.Decision{Time: noon, Identity: dev, Proto: "tcp", Asked: "192.0.2.1:25", Code: codes.IPLiteralDenied}},
		{Summary: &audit.Summary{To: noon, Identity: dev, Denials: 7}},
		{Gap: &audit.Gap{From: noon, Refused: 2, Error: "no space"}},
		{Damage: &audit.Damage{File: "f.jsonl", Offset: 9, Error: "torn"}},
	}
}

// served is what admin sends for entries.
func served(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	for _, e := range entries() {
		if err := json.NewEncoder(&b).Encode(e); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func TestLogIsATable(t *testing.T) {
	root := shortDir(t)
	fakeAdmin(t, root, map[string]http.HandlerFunc{"GET /v1/log": func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(served(t))) }})
	want := `TIME                 AGENT  USER               VERDICT  CODE                  STATUS  UP   DOWN  WHAT
2026-01-31 12:00:00  dev    alice@example.com  deny     host_not_allowed      -       -    -     CONNECT evil.example.org
2026-01-31 12:00:00  dev    alice@example.com  allow    -                     200     113  1245  GET https://api.example.com/v1/\x1b[31mx
2026-01-31 12:00:00  dev    alice@example.com  allow    address_unresolved    502     0    0     GET http://api.example.com:8080/ (credential: cert-a) (no answer)
2026-01-31 12:01:00  dev    alice@example.com  ended    -                     200     1    2     GET https://api.example.com/v1/\x1b[31mx (cut: policy)
2026-01-31 12:00:00  dev    alice@example.com  deny     dns_name_not_allowed  -       -    -     dns TXT x.evil.example.org:53
2026-01-31 12:00:00  dev    alice@example.com  deny     ip_literal_denied     -       -    -     tcp 192.0.2.1:25
2026-01-31 12:00:00  dev    alice@example.com  deny     -                     -       -    -     7 more denials, beyond the record budget
2026-01-31 12:00:00  -      -                  -        -                     -       -    -     the journal could not be written from here on: no space (2 requests refused)
-                    -      -                  -        -                     -       -    -     damaged line in f.jsonl at byte 9: torn
`
	status, stdout, stderr := call(t, "--root", root, "log")
	if diff := cmp.Diff(want, stdout); diff != "" || status != 0 || stderr != "" {
		t.Errorf("status %d, %q (-want +got)\n%s", status, stderr, diff)
	}
}

// TestALogThatEndsWhileItIsFollowedIsAFault: the reader must not take silence
// for nothing to report.
func TestALogThatEndsWhileItIsFollowedIsAFault(t *testing.T) {
	root := shortDir(t)
	fakeAdmin(t, root, map[string]http.HandlerFunc{"GET /v1/log": func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(served(t))) }})
	for _, flag := range []string{"--json=false", "--json"} {
		status, stdout, stderr := call(t, "--root", root, "log", "-f", flag)
		if status != 1 || stderr != "bawn: following the log: admin has gone away\n" || !strings.Contains(stdout, "evil.example.org") {
			t.Errorf("%s: status %d, %q\n%s", flag, status, stderr, stdout)
		}
	}
}

func TestAnErrorEndsTheLogAndIsSaid(t *testing.T) {
	root := shortDir(t)
	fakeAdmin(t, root, map[string]http.HandlerFunc{"GET /v1/log": func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte(served(t) + `{"error":"disk \u001b[1m"}` + "\n"))
	}})
	status, stdout, stderr := call(t, "--root", root, "log")
	if status != 1 || stderr != "bawn: reading the log: disk \\x1b[1m\n" || !strings.Contains(stdout, "evil.example.org") {
		t.Errorf("status %d, %q\n%s", status, stderr, stdout)
	}
}

func TestLogFiltersReachAdmin(t *testing.T) {
	root := shortDir(t)
	var got url.Values
	fakeAdmin(t, root, map[string]http.HandlerFunc{"GET /v1/log": func(_ http.ResponseWriter, q *http.Request) { got = q.URL.Query() }})
	call(t, "--root", root, "log", "--agent", "a", "--user", "u", "--host", "h", "--verdict", "deny", "--code", "c", "--limit", "3", "--until", "2026-01-31T12:00:00Z")
	want := url.Values{"agent": {"a"}, "user": {"u"}, "host": {"h"}, "verdict": {"deny"}, "code": {"c"}, "limit": {"3"}, "until": {"2026-01-31T12:00:00Z"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestTimesAreReadAsTheTableShowsThem(t *testing.T) {
	for s, want := range map[string]time.Time{
		"2h":                   noon.Add(-2 * time.Hour),
		"0s":                   noon,
		"2026-01-31 12:00:00":  noon,
		"2026-01-31":           noon.Add(-12 * time.Hour),
		"2026-01-31T12:00:00Z": time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC),
	} {
		if got, err := parseTime(s, noon); err != nil || !got.Equal(want) {
			t.Errorf("%q: %v, %v; want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "yesterday", "-1h", "2026-1-31", "12:00"} {
		if got, err := parseTime(s, noon); err == nil {
			t.Errorf("%q: read as %v", s, got)
		}
	}
}

func TestI14JSONShowsWhatActsOnATerminal(t *testing.T) {
	for in, want := range map[string]string{
		"{\"a\":\"b\"}\n":         "{\"a\":\"b\"}\n",
		"\"\u009b31m\x7f\"":       `"\u009b31m\u007f"`,
		"\"\u202e\u2028 日本 é 🙂\"": `"\u202e\u2028 日本 é 🙂"`,
		"\"\U000e0041\"":          `"\udb40\udc41"`,
	} {
		got := string(visible([]byte(in)))
		if got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
		var a, b any
		if err := json.Unmarshal([]byte(in), &a); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(got), &b); err != nil || !cmp.Equal(a, b) {
			t.Errorf("%q: reads as %q, not %q (%v)", in, b, a, err)
		}
	}
}
