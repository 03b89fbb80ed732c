// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestTableMatchesRegistryFiles: the committed table is what the committed files
// give. Run "go generate ./internal/addr" after a change.
func TestTableMatchesRegistryFiles(t *testing.T) {
	want, err := render("../iana")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../table.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("table.go is stale")
	}
}

func TestReadRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"no heading":           "10.0.0.0/8,x,y,false\n",
		"not a prefix":         "block,name,source,globally_reachable\n10.0.0.0,x,y,false\n",
		"bits behind length":   "block,name,source,globally_reachable\n10.0.0.1/8,x,y,false\n",
		"unknown reachability": "block,name,source,globally_reachable\n10.0.0.0/8,x,y,perhaps\n",
		"columns":              "block,name,source,globally_reachable\n10.0.0.0/8,x,false\n",
		"empty":                "",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.csv")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if rows, err := read(path); err == nil {
				t.Errorf("read %v, want an error", rows)
			}
		})
	}
	if _, err := render(t.TempDir()); err == nil {
		t.Error("a folder without files gives a table")
	}
}
