// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package casetest_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bawn/internal/casetest"
)

const corpus = "../../testdata/cases"

// TestCorpus runs every case file of the repository.
func TestCorpus(t *testing.T) {
	env, err := casetest.NewEnv()
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	err = filepath.WalkDir(corpus, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".txtar") {
			return err
		}
		ran++
		name, _ := filepath.Rel(corpus, path)
		t.Run(strings.TrimSuffix(name, ".txtar"), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			c, err := casetest.Parse(path, data)
			if err != nil {
				t.Fatal(err)
			}
			if r := casetest.Run(c, env); !r.OK {
				t.Errorf("%s\nforwarded:\n%s", r.Why, r.Forwarded)
			}
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if ran < 740 {
		t.Errorf("only %d case files", ran)
	}
}
