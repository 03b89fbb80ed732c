// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package h2suite

import (
	"os"
	"path/filepath"
	"testing"
)

func TestReadReport(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.xml")
	text := `<testsuites><testsuite package="http2/5.1"><testcase package="http2/5.1" classname="idle: x"></testcase>` +
		`<testcase classname="closed: y"><failure>z</failure></testcase></testsuite></testsuites>`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got := readReport(t, path)
	if len(got) != 2 || got["http2/5.1/1: idle: x"] || !got["http2/5.1/2: closed: y"] {
		t.Errorf("read %v", got)
	}
}
