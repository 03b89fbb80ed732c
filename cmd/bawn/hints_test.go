// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"bawn/internal/codes"
	"bawn/internal/doctor"
)

var (
	quoted  = regexp.MustCompile("`([^`]+)`")
	keyForm = regexp.MustCompile(`^([a-z_]+):`)
)

// TestHintsNameKnobsThatThereAre: what the guidance of a code, which is that of
// the stage that refused, tells an operator to write or run exists: keys are of
// the policy's schema or of the configuration, commands are Bawn's.
func TestHintsNameKnobsThatThereAre(t *testing.T) {
	schema, err := os.ReadFile("../../docs/policy.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	known := func(key string) bool {
		return strings.Contains(string(schema), `"`+key+`"`) || regexp.MustCompile(`(?m)^ *`+key+`:`).Match(config)
	}
	keys, commands := 0, 0
	for _, e := range codes.Catalogue() {
		for _, m := range quoted.FindAllStringSubmatch(e.Operator, -1) {
			if k := keyForm.FindStringSubmatch(m[1]); k != nil {
				keys++
				if !known(k[1]) {
					t.Errorf("%s: there is no key %s: %s", e.Code, k[1], e.Operator)
				}
			}
			if rest, ok := strings.CutPrefix(m[1], "bawn "); ok {
				commands++
				if !exists(rest) {
					t.Errorf("%s: there is no command bawn %s", e.Code, rest)
				}
			}
		}
	}
	if keys < 10 || commands < 10 {
		t.Errorf("%d keys and %d commands were looked at", keys, commands)
	}
	for _, c := range doctor.All {
		if _, rest, ok := strings.Cut(c.Fix, "bawn "); ok && !exists(rest) && !strings.Contains(c.Fix, "bawn up") {
			t.Errorf("%s: there is no command bawn %s", c.Name, rest)
		}
	}
}

// exists reports whether the words begin with the name of a command.
func exists(words string) bool {
	a := &app{stdout: io.Discard, stderr: io.Discard}
	cmd, _, err := a.root().Find(strings.Fields(strings.TrimRight(words, ";:,.")))
	return err == nil && cmd.HasParent()
}
