// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package h2suite

import (
	"os"
	"strings"
	"testing"
)

// docPath is the page that tests keep true, from their folders.
const docPath = "../../docs/http2.md"

// Section compares the part of docs/http2.md between the marks of that name with
// what a test says, or writes it.
func Section(t *testing.T, name, want string, update bool) {
	t.Helper()
	text, err := os.ReadFile(docPath)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- "+name+" -->\n", "<!-- end of "+name+" -->\n"
	before, rest, ok1 := strings.Cut(string(text), begin)
	have, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no part %q", docPath, name)
	}
	if have == want {
		return
	}
	if !update {
		t.Fatalf("%s is not what the tests say of %s; run the test with -update", docPath, name)
	}
	if err := os.WriteFile(docPath, []byte(before+begin+want+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
