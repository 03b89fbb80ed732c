// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestNothingIsWaitedForInThePlaceOfAFile: whoever reads a journal of another
// account's is held up by nothing that this puts there, and led nowhere.
func TestNothingIsWaitedForInThePlaceOfAFile(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"a pipe": func(path string) error { return unix.Mkfifo(path, 0o600) },
		"a link": func(path string) error { return os.Symlink(path+".moved", path) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j := open(t, dir, Options{})
			if err := j.Decide(testDecision("r-1")); err != nil {
				t.Fatal(err)
			}
			r := OpenReader(dir, "egress", Position{})
			for {
				if _, err := r.Next(); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatal(err)
				}
			}
			at := r.Position()
			r.Close()
			path := filepath.Join(dir, at.File)
			if err := errors.Join(os.Rename(path, path+".moved"), put(path)); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() {
				_, err := OpenReader(dir, "egress", at).Next()
				done <- err
			}()
			select {
			case err := <-done:
				if err == nil || errors.Is(err, io.EOF) {
					t.Errorf("it was read: %v", err)
				}
			case <-time.After(5 * time.Second):
				t.Error("it is waited for")
			}
		})
	}
}
