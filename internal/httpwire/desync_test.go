// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package httpwire_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// A desyncCase is one case of http-desync-guardian's test suites.
type desyncCase struct {
	Name, URI, Method, Version string
	Headers                    []struct{ Name, Value string }
	Expected                   struct{ Tier, Reason string }
}

// dataDir is the folder with other people's cases; they are not ours to copy.
func dataDir() string {
	if dir := os.Getenv("BAWN_DATA"); dir != "" {
		return dir
	}
	return "../../../shared/data"
}

// bytes builds the request of a case, with a Host if it has none and as much
// body as its framing, read leniently, asks for.
func (c desyncCase) bytes() []byte {
	var b strings.Builder
	line := c.Method + " " + c.URI
	if c.Version != "" {
		line += " " + c.Version
	}
	b.WriteString(line + "\r\n")
	hasHost, chunked, length := false, false, 0
	for _, h := range c.Headers {
		fmt.Fprintf(&b, "%s:%s\r\n", h.Name, h.Value)
		switch strings.ToLower(h.Name) {
		case "host":
			hasHost = true
		case "transfer-encoding":
			chunked = true
		case "content-length":
			fmt.Sscan(h.Value, &length)
		}
	}
	if !hasHost {
		b.WriteString("Host: h\r\n")
	}
	b.WriteString("\r\n")
	switch {
	case chunked:
		b.WriteString("5\r\nhello\r\n0\r\n\r\n")
	case length > 0 && length < 10_000_000:
		b.WriteString(strings.Repeat("x", length))
	}
	return []byte(b.String())
}

// TestHTTPDesync reads the cases of http-desync-guardian. Every case is refused
// or goes up so that net/http reads the request that was judged; the cases of
// the tier Acceptable go up, and so do the compliant ones, but for those with a
// transfer coding other than chunked alone, which the boundary never speaks,
// for targets that RFC 9112 section 3.2 does not have: empty, with a fragment, or
// not in ASCII, and for paths with the escape of a line break.
func TestHTTPDesync(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(dataDir(), "http-desync", "*.yaml"))
	if len(files) == 0 {
		t.Skip("the cases are not here; BAWN_DATA names their folder")
	}
	passed, refused := map[string]int{}, map[string]int{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var cases []desyncCase
		if err := yaml.Unmarshal(text, &cases); err != nil {
			t.Fatalf("reading %s: %v", file, err)
		}
		for i, c := range cases {
			t.Run(fmt.Sprintf("%s/%d %s", filepath.Base(file), i, c.Name), func(t *testing.T) {
				q, body, out := rewrite(c.bytes())
				if q == nil {
					refused[c.Expected.Tier]++
					if mustPass(c) {
						t.Errorf("tier %s (%s) is refused: %q", c.Expected.Tier, c.Expected.Reason, c.bytes()[:min(300, len(c.bytes()))])
					}
					return
				}
				passed[c.Expected.Tier]++
				if c.Expected.Tier == "Ambiguous" || c.Expected.Tier == "Severe" {
					t.Logf("goes up, %s: %q", c.Expected.Reason, out[:min(300, len(out))])
				}
				checkRewritten(t, q, body, out)
			})
		}
	}
	t.Logf("passed %v, refused %v", passed, refused)
}

func mustPass(c desyncCase) bool {
	if c.Expected.Tier == "Acceptable" {
		return true
	}
	if c.Expected.Tier != "Compliant" {
		return false
	}
	if c.URI == "" || strings.ContainsFunc(c.URI, func(r rune) bool { return r == '#' || r > 0x7e }) {
		return false
	}
	if path, _, _ := strings.Cut(c.URI, "?"); strings.Contains(path, "%0D") || strings.Contains(path, "%0A") {
		return false
	}
	for _, h := range c.Headers {
		if strings.EqualFold(h.Name, "Transfer-Encoding") && strings.TrimSpace(h.Value) != "chunked" {
			return false
		}
	}
	return true
}
