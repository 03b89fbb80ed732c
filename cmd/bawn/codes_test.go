// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"bawn/internal/codes"
)

// TestCodesAreExplained: the catalogue can be read without any file and without
// admin.
func TestCodesAreExplained(t *testing.T) {
	status, table, stderr := call(t, "codes")
	if status != 0 || stderr != "" || strings.Count(table, "\n") != 1+len(codes.Catalogue()) {
		t.Errorf("status %d, %q\n%s", status, stderr, table)
	}
	var list []codeJSON
	if status, out, _ := call(t, "codes", "--json"); status != 0 || json.Unmarshal([]byte(out), &list) != nil || len(list) != len(codes.Catalogue()) {
		t.Errorf("status %d\n%s", status, out)
	}
	for _, e := range codes.Catalogue() {
		status, out, _ := call(t, "codes", string(e.Code))
		if status != 0 || !strings.Contains(out, e.Meaning) || !strings.Contains(out, e.Agent) || strings.Contains(out, "--code CODE") {
			t.Errorf("%s: status %d\n%s", e.Code, status, out)
		}
	}
	if status, _, stderr := call(t, "codes", "a,b"); status != 2 || !strings.Contains(stderr, `there is no code "a,b"`) {
		t.Errorf("status %d, %q", status, stderr)
	}
}

// TestFollowedRowsLineUp: every row stands under the heads that were printed last.
func TestFollowedRowsLineUp(t *testing.T) {
	var b strings.Builder
	table := newLogTable(&b, true)
	if err := table.flush(); err != nil {
		t.Fatal(err)
	}
	for _, e := range entries() {
		e := e
		if err := table.add(e); err != nil {
			t.Fatal(err)
		}
		if d := e.Decision; d != nil {
			again := *d
			again.User, again.Code = strings.Repeat("u", 40), codes.Code(strings.Repeat("c", 40))
			e.Decision = &again
			if err := table.add(e); err != nil {
				t.Fatal(err)
			}
		}
	}
	at, heads := -1, 0
	for line := range strings.Lines(b.String()) {
		if strings.HasPrefix(line, "TIME") {
			at, heads = strings.Index(line, "WHAT"), heads+1
			continue
		}
		if len(line) <= at || line[at-1] != ' ' || line[at] == ' ' {
			t.Errorf("not under the heads: %q", line)
		}
	}
	if heads != 2 {
		t.Errorf("%d heads\n%s", heads, b.String())
	}
}
