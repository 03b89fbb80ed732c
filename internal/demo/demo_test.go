// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bawn/internal/roottest"
	"bawn/internal/world"
)

func TestMain(m *testing.M) {
	world.Main()
	os.Exit(m.Run())
}

// TestDemo plays it to the end: run reports whatever did not go as it must.
func TestDemo(t *testing.T) {
	roottest.Require(t)
	t.Chdir(filepath.Join("..", ".."))
	binary, err := build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var out, stderr strings.Builder
	if status := run(t.Context(), []string{"-bawn", binary}, &out, &stderr); status != 0 {
		t.Fatalf("status %d: %s\n%s", status, stderr.String(), out.String())
	}
	for _, want := range []string{
		"runs in a private test internet", "hello from the world", "hello world",
		"packets that reached the attacker:            0", "host_not_allowed", "git-upload-pack",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in:\n%s", want, out.String())
		}
	}
}

func TestWrongUse(t *testing.T) {
	var out, stderr strings.Builder
	if status := run(t.Context(), []string{"-no-such-flag"}, &out, &stderr); status != 2 {
		t.Errorf("status %d", status)
	}
}
