// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestVerifyFindsEveryChange writes three files and changes them in every way
// that leaves the newest record alone.
func TestVerifyFindsEveryChange(t *testing.T) {
	edit := func(n int, f func(lines [][]byte) [][]byte) func(t *testing.T, paths []string) {
		return func(t *testing.T, paths []string) {
			raw, err := os.ReadFile(paths[n])
			if err != nil {
				t.Fatal(err)
			}
			out := bytes.Join(f(bytes.SplitAfter(raw, []byte("\n"))), nil)
			if err := os.WriteFile(paths[n], out, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	cases := map[string]struct {
		do   func(t *testing.T, paths []string)
		want string
	}{
		"a field is changed": {edit(1, func(l [][]byte) [][]byte {
			l[1] = bytes.Replace(l[1], []byte(`"dev"`), []byte(`"eve"`), 1)
			return l
		}), "does not hold the hash"},
		"a record is removed":             {edit(1, func(l [][]byte) [][]byte { return append(l[:1], l[2:]...) }), "does not hold the hash"},
		"a record is doubled":             {edit(1, func(l [][]byte) [][]byte { return append(l[:2], l[1:]...) }), "does not hold the hash"},
		"two records change place":        {edit(1, func(l [][]byte) [][]byte { l[1], l[2] = l[2], l[1]; return l }), "does not hold the hash"},
		"a line becomes noise":            {edit(1, func(l [][]byte) [][]byte { l[1] = []byte("noise\n"); return l }), "with records behind them"},
		"the end of an older file is cut": {edit(0, func(l [][]byte) [][]byte { return l[:len(l)-2] }), "does not hold the hash"},
		"the end of an older file is torn": {edit(0, func(l [][]byte) [][]byte {
			l[len(l)-1] = []byte("torn")
			return l
		}), "no torn end that"},
		"a file is removed": {func(t *testing.T, paths []string) { os.Remove(paths[1]) }, "file number 2 is missing"},
		"a file is emptied": {func(t *testing.T, paths []string) { os.Truncate(paths[1], 0) }, "does not hold the hash"},
		"a file is renamed": {func(t *testing.T, paths []string) {
			os.Rename(paths[2], strings.Replace(paths[2], "-000000003-", "-000000009-", 1))
		}, "is missing"},
		"the first record is removed": {edit(0, func(l [][]byte) [][]byte { return l[1:] }), "does not begin with a file head"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j := open(t, dir, Options{FileBytes: 2000})
			for i := range 9 {
				decide(t, j, testDecision(fmt.Sprintf("r-%d", i)))
			}
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			if report := verified(t, dir); report.Files != 3 || report.First != 1 || report.Records != report.Last {
				t.Fatalf("before: %+v", report)
			}
			paths, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			c.do(t, paths)
			report, err := Verify(dir)
			if err != nil {
				t.Fatal(err)
			}
			if text := fmt.Sprint(report.Series[0].Faults); !strings.Contains(text, c.want) {
				t.Errorf("got %s, want %q in it", text, c.want)
			}
		})
	}
}

func TestVerifyTakesASeriesWhoseOldFilesAreGone(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, Options{FileBytes: 2000})
	for i := range 9 {
		decide(t, j, testDecision(fmt.Sprintf("r-%d", i)))
	}
	first := filepath.Join(dir, "egress-000000001-"+dayOf(time.Now())+".jsonl")
	if err := os.Remove(first); err != nil {
		t.Fatal(err)
	}
	if report := verified(t, dir); report.First <= 1 {
		t.Errorf("got %+v", report)
	}
}

func TestVerifyCallsTheVeryEndTorn(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, Options{})
	decide(t, j, testDecision("r-0"))
	appendTo(t, filepath.Join(dir, j.w.name), `{"v":1,`)
	report := verified(t, dir)
	if len(report.Torn) != 1 || report.Torn[0].Bytes != 7 {
		t.Errorf("got %+v", report)
	}
}
