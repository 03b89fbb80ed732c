// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Command docgen writes the pages of docs/ that are read off the code: the
// policy reference and schema, and the catalogue of codes. The one argument is
// the folder to write to. A test of this package fails when a page is not
// fresh.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"bawn/internal/codes"
	"bawn/internal/policy"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "docgen: wants the folder to write to")
		os.Exit(2)
	}
	for name, text := range pages() {
		if err := os.WriteFile(filepath.Join(os.Args[1], name), text, 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "docgen:", err)
			os.Exit(1)
		}
	}
}

// pages returns each generated page by its file name.
func pages() map[string][]byte {
	return map[string][]byte{
		"policy.md":          policy.Reference(),
		"policy.schema.json": policy.Schema(),
		"codes.md":           codesPage(),
	}
}

// codesPage writes the catalogue of codes.
func codesPage() []byte {
	var b strings.Builder
	b.WriteString(`<!-- Generated from internal/codes by "go generate ./internal/policy". Do not edit. -->

# Codes

Every refusal has a code: the same word in the answer to the agent, in the
record, in the DNS error and in metrics. Codes are added, never renamed. The
status is that of the HTTP answer, which carries the code in ` + "`Bawn-Code`" + ` too.
`)
	for _, group := range codes.Groups() {
		fmt.Fprintf(&b, "\n## %s\n", group)
		for _, e := range codes.Catalogue() {
			if e.Group != group {
				continue
			}
			fmt.Fprintf(&b, "\n### `%s`\n\n%s", e.Code, e.Meaning)
			if e.Status != 0 {
				fmt.Fprintf(&b, " Status %d.", e.Status)
			}
			fmt.Fprintf(&b, "\n\n- Agent: %s\n- Operator: %s\n", e.Agent, e.Operator)
		}
	}
	b.WriteString("\n## Codes of provider guards\n\nThe guard of a provider adds codes under its own name. No guard of this build\nhas any yet.\n\n")
	for _, p := range codes.Patterns() {
		fmt.Fprintf(&b, "- `%s`: %s\n", strings.Join(p.Suffixes, "`, `"), p.Meaning)
	}
	return []byte(b.String())
}
