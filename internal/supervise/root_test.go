// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bawn/internal/config"
)

func TestARootThatCannotHoldBawnIsRefused(t *testing.T) {
	base, err := os.MkdirTemp("", "bawn-root-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	make := func(name string, mode fs.FileMode) string {
		dir := filepath.Join(base, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(base, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for root, want := range map[string]string{
		"/":                                      "",
		base:                                     "",
		filepath.Join(base, "not/yet/there"):     "",
		make("sticky", 0o777|fs.ModeSticky):      "",
		make("closed", 0o700):                    "chmod o+x",
		filepath.Join(make("c", 0o750), "below"): "chmod o+x",
		make("open", 0o777):                      "may be written by everybody",
		file:                                     "is not a directory",
		filepath.Join(base, strings.Repeat("x", 120)): "use a shorter directory",
	} {
		err := checkRoot(config.Paths{Root: root})
		if (err == nil) != (want == "") || err != nil && !(strings.Contains(err.Error(), want) && strings.Contains(err.Error(), root)) {
			t.Errorf("%s: %v, want %q", root, err, want)
		}
	}
	if os.Geteuid() != 0 {
		return
	}
	if err := os.Chown(make("theirs", 0o755), 12345, 0); err != nil {
		t.Fatal(err)
	}
	if err := checkRoot(config.Paths{Root: filepath.Join(base, "theirs/below")}); err == nil || !strings.Contains(err.Error(), "belongs to uid 12345") {
		t.Errorf("another's directory: %v", err)
	}
}

func TestABinaryThatBawnsAccountsCannotExecuteIsNamed(t *testing.T) {
	dir, err := os.MkdirTemp("", "bawn-self-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	self := filepath.Join(dir, "bawn")
	if err := os.WriteFile(self, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := CheckSelf(self); err == nil || !strings.Contains(err.Error(), "since "+dir+" is closed to them (its mode is 0700)") {
		t.Errorf("in a closed directory: %v", err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := CheckSelf(self); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(self, 0o744); err != nil {
		t.Fatal(err)
	}
	if err := CheckSelf(self); err == nil || !strings.Contains(err.Error(), "since "+self) {
		t.Errorf("not executable: %v", err)
	}
}
