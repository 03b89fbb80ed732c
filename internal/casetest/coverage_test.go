// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package casetest_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestCoverageListsWhatExists: every case file outside http1 (which docs/http1.md
// lists) is named in the list of what is proven, and everything named there exists.
func TestCoverageListsWhatExists(t *testing.T) {
	list, err := os.ReadFile(filepath.Join(corpus, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("`([a-z0-9]+/[a-z0-9-]+|Test[A-Za-z0-9]+)`").FindAllStringSubmatch(string(list), -1) {
		named[m[1]] = true
	}
	exist := map[string]bool{}
	err = filepath.WalkDir(corpus, func(path string, d fs.DirEntry, err error) error {
		if rel, ok := strings.CutSuffix(strings.TrimPrefix(path, corpus+"/"), ".txtar"); ok {
			exist[rel] = true
			if !named[rel] && !strings.HasPrefix(rel, "http1/") {
				t.Errorf("case %s is not in the list", rel)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range testNames(t, "..") {
		exist[test] = true
	}
	for name := range named {
		if !exist[name] {
			t.Errorf("%s is in the list and does not exist", name)
		}
	}
}

// testNames lists the test functions below dir.
func testNames(t *testing.T, dir string) []string {
	t.Helper()
	form := regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9]+)\(`)
	var names []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		src, err := os.ReadFile(path)
		for _, m := range form.FindAllStringSubmatch(string(src), -1) {
			names = append(names, m[1])
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
