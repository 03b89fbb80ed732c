// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"bawn/internal/world"
	"bawn/internal/world/operator"
)

// A parsed is one request as a parser that is not ours reads it.
type parsed struct {
	Method string `json:"method"`
	Target string `json:"target"`
	Host   string `json:"host"`
	Bytes  int    `json:"bytes"`
	SHA256 string `json:"sha256"`
	Error  string `json:"error"`
}

// parsers are programs that nobody here wrote.
func parsers() map[string][]string {
	return map[string][]string{
		"Node http":     {"node", "/opt/clients/parse.mjs"},
		"Python server": {"/usr/bin/python3", "/opt/clients/parse_client.py"},
		"Python h11":    {"/usr/bin/python3", "/opt/clients/parse_client.py", "h11"},
	}
}

// TestI5WhatWasJudgedIsWhatIsSent sends requests of many shapes, several on a
// connection, and lets other parsers read what the server got: they must see
// the requests that the journal says were judged, and no others.
func TestI5WhatWasJudgedIsWhatIsSent(t *testing.T) {
	h := boot(t)
	h.clients(t)
	session := h.rawSession(t, "dev")
	host := h.w.Names.API
	jobs := map[string]job{}
	for name, send := range shapes(host) {
		jobs[name] = tunnelled(host, send)
	}
	for name, j := range jobs {
		t.Run(name, func(t *testing.T) {
			if err := h.w.Upstream.Forget(); err != nil {
				t.Fatal(err)
			}
			seen := len(h.decisions(t, all))
			a := session.do(t, j)
			var judged []operator.Record
			for _, r := range h.decisions(t, all)[seen:] {
				if r.Verdict == "allow" && r.Method != "" && r.Method != "CONNECT" {
					judged = append(judged, r)
				}
			}
			streams, err := h.w.Upstream.Streams(host)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(name, "ok ") && len(judged) == 0 {
				t.Errorf("nothing was allowed: %s", a)
			}
			for parser, argv := range parsers() {
				h.agree(t, parser, argv, streams, judged)
			}
		})
	}
}

// agree compares what one parser reads in all streams with the records.
func (h *host) agree(t *testing.T, parser string, argv []string, streams []world.Stream, judged []operator.Record) {
	t.Helper()
	var read []parsed
	for _, s := range streams {
		cmd := h.w.Host.Command(t.Context(), argv...)
		cmd.Stdin = bytes.NewReader(s.Bytes)
		r := finish(t, cmd)
		if r.status != 0 {
			t.Fatalf("%s: %s", parser, r.err)
		}
		for line := range strings.Lines(r.out) {
			var p parsed
			if err := json.Unmarshal([]byte(line), &p); err != nil {
				t.Fatalf("%s printed %q: %v", parser, line, err)
			}
			if p.Error != "" {
				t.Errorf("%s refuses what was sent: %s: %q", parser, p.Error, s.Bytes)
			}
			read = append(read, p)
		}
	}
	if len(read) != len(judged) {
		t.Errorf("%s reads %d requests, %d were judged: %+v, %+v", parser, len(read), len(judged), read, judged)
		return
	}
	for i, p := range read {
		path, _, _ := strings.Cut(p.Target, "?")
		if p.Method != judged[i].Method || path != judged[i].Path || p.Host != judged[i].Host {
			t.Errorf("%s reads %+v, judged was %+v", parser, p, judged[i])
		}
		if want := wantedBody(p.Target); want != "" && want != p.SHA256 {
			t.Errorf("%s: body of %s has sum %s, want %s", parser, p.Target, p.SHA256, want)
		}
	}
}

// wantedBody is the sum of the body that shapes sends to a target.
func wantedBody(target string) string {
	if !strings.HasPrefix(target, "/hello") {
		return ""
	}
	sum := sha256.Sum256([]byte("hello, hello"))
	return hex.EncodeToString(sum[:])
}

// shapes are request bytes by name. What begins with "ok" must pass; the rest
// may pass or be refused, but never mean something else upstream.
func shapes(host string) map[string]string {
	h := "Host: " + host + "\r\n"
	end := "Connection: close\r\n\r\n"
	return map[string]string{
		"ok get":               "GET /a HTTP/1.1\r\n" + h + end,
		"ok escapes":           "GET /%7Euser/%c3%a9?q=%20a HTTP/1.1\r\n" + h + end,
		"ok slash stays data":  "GET /a%2Fb HTTP/1.1\r\n" + h + end,
		"ok length":            "POST /hello/1 HTTP/1.1\r\n" + h + "Content-Length: 12\r\n" + end + "hello, hello",
		"ok chunked":           "POST /hello/2 HTTP/1.1\r\n" + h + "Transfer-Encoding: chunked\r\n" + end + "5\r\nhello\r\n7\r\n, hello\r\n0\r\n\r\n",
		"ok chunk extension":   "POST /hello/3 HTTP/1.1\r\n" + h + "Transfer-Encoding: chunked\r\n" + end + "5;a=b\r\nhello\r\n7\r\n, hello\r\n0\r\n\r\n",
		"ok trailer":           "POST /hello/4 HTTP/1.1\r\n" + h + "Transfer-Encoding: chunked\r\n" + end + "c\r\nhello, hello\r\n0\r\nX-T: 1\r\n\r\n",
		"ok two on one":        "GET /a HTTP/1.1\r\n" + h + "\r\nGET /b HTTP/1.1\r\n" + h + end,
		"ok body then another": "POST /hello/5 HTTP/1.1\r\n" + h + "Content-Length: 12\r\n\r\nhello, helloGET /b HTTP/1.1\r\n" + h + end,
		"ok options":           "OPTIONS /a HTTP/1.1\r\n" + h + end,
		"ok spaces in value":   "GET /a HTTP/1.1\r\n" + h + "X-A:   b  c \t\r\n" + end,
		"ok connection names":  "GET /a HTTP/1.1\r\n" + h + "X-Hop: 1\r\nConnection: close, x-hop\r\n\r\n",

		"length and chunked": "POST /a HTTP/1.1\r\n" + h + "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n" + end + "0\r\n\r\nGET /smuggled HTTP/1.1\r\n" + h + end,
		"two lengths":        "POST /a HTTP/1.1\r\n" + h + "Content-Length: 0\r\nContent-Length: 40\r\n" + end + "GET /smuggled HTTP/1.1\r\n" + h + end,
		"odd chunked":        "POST /a HTTP/1.1\r\n" + h + "Transfer-Encoding: xchunked\r\n" + end + "0\r\n\r\nGET /smuggled HTTP/1.1\r\n" + h + end,
		"bare LF":            "GET /a HTTP/1.1\n" + h + "\nGET /smuggled HTTP/1.1\r\n" + h + end,
		"folded":             "GET /a HTTP/1.1\r\n" + h + "X-A: b\r\n GET /smuggled HTTP/1.1\r\n" + end,
		"space before colon": "POST /a HTTP/1.1\r\n" + h + "Content-Length : 40\r\n" + end + "GET /smuggled HTTP/1.1\r\n" + h + end,
		"LF in chunk size":   "POST /a HTTP/1.1\r\n" + h + "Transfer-Encoding: chunked\r\n" + end + "5\nhello\r\n0\r\n\r\n",
		"dots":               "GET /a/%2e%2e/b HTTP/1.1\r\n" + h + end,
		"absolute elsewhere": "GET https://evil.example.org/a HTTP/1.1\r\n" + h + end,
		"two hosts":          "GET /a HTTP/1.1\r\n" + h + "Host: evil.example.org\r\n" + end,
		"get with body":      "GET /a HTTP/1.1\r\n" + h + "Content-Length: 5\r\n\r\nGET /GET /b HTTP/1.1\r\n" + h + end,
		"version 1.0":        "GET /a HTTP/1.0\r\n" + h + "\r\n",
		"CR in value":        "GET /a HTTP/1.1\r\n" + h + "X-A: b\rGET /smuggled HTTP/1.1\r\n" + end,
		"NUL in value":       "GET /a HTTP/1.1\r\n" + h + "X-A: b\x00c\r\n" + end,
		"upgrade to h2c":     "GET /a HTTP/1.1\r\n" + h + "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\nConnection: Upgrade, HTTP2-Settings\r\n\r\n",
		"method override":    "GET /a HTTP/1.1\r\n" + h + "X-HTTP-Method-Override: DELETE\r\n" + end,
		"huge chunk size":    "POST /a HTTP/1.1\r\n" + h + "Transfer-Encoding: chunked\r\n" + end + "ffffffffffffffff1\r\nx\r\n0\r\n\r\n",
		"connect inside":     "CONNECT evil.example.org:443 HTTP/1.1\r\nHost: evil.example.org:443\r\n\r\n",
		"h2 preface":         "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"expect":             "POST /hello/6 HTTP/1.1\r\n" + h + "Expect: 100-continue\r\nContent-Length: 12\r\n" + end + "hello, hello",
		"many":               strings.Repeat("GET /a HTTP/1.1\r\n"+h+"\r\n", 20) + "GET /z HTTP/1.1\r\n" + h + end,
		"long head":          fmt.Sprintf("GET /a HTTP/1.1\r\n%sX-A: %s\r\n%s", h, strings.Repeat("x", 200_000), end),
	}
}
