// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proc_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"bawn/internal/proc"
)

// TestI13WhatAnAgentLeavesCanBeRemoved: directories that nest deeper than there
// are descriptors, in names that the removal itself would use, with links that
// lead out.
func TestI13WhatAnAgentLeavesCanBeRemoved(t *testing.T) {
	base := t.TempDir()
	outside := filepath.Join(base, "outside")
	for _, dir := range []string{outside, filepath.Join(base, "left")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(outside, "kept"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fewDescriptors(t)
	for i := range 4 {
		plant(t, filepath.Join(base, "left"), strconv.Itoa(i), 150, outside)
	}
	parent, err := os.Open(base)
	if err != nil {
		t.Fatal(err)
	}
	defer parent.Close()
	over, cancel := context.WithCancelCause(t.Context())
	why := errors.New("it is time to stop")
	cancel(why)
	if err := proc.RemoveTree(over, parent, "left"); !errors.Is(err, why) {
		t.Errorf("with a context that is done: %v", err)
	}
	for range 2 { // what is gone is no error
		if err := proc.RemoveTree(t.Context(), parent, "left"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Lstat(filepath.Join(base, "left")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
	for _, name := range []string{"", ".", "..", "outside/..", "outside/kept"} {
		if err := proc.RemoveTree(t.Context(), parent, name); err == nil {
			t.Errorf("%q is removed", name)
		}
	}
	if _, err := os.Lstat(filepath.Join(outside, "kept")); err != nil {
		t.Errorf("a link was followed: %v", err)
	}
}

// fewDescriptors leaves the process 100 descriptors, until the test ends.
func fewDescriptors(t *testing.T) {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: min(100, was.Max), Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Setrlimit(unix.RLIMIT_NOFILE, &was) })
}

// plant makes directories inside one another below dir, each with a file and a
// link, through descriptors: the path is longer than a path may be.
func plant(t *testing.T, dir, name string, depth int, target string) {
	t.Helper()
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for i := 0; i < depth && err == nil; i++ {
		if err = unix.Mkdirat(at, name, 0o755); err != nil {
			break
		}
		var next int
		if next, err = unix.Openat(at, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
			break
		}
		unix.Close(at)
		at = next
		if err = unix.Mknodat(at, "file", unix.S_IFREG|0o600, 0); err == nil {
			err = unix.Symlinkat(target, at, "link")
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(at)
}
