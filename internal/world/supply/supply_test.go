// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package supply

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

func TestOneFetchesAndTheOthersWait(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	var filled atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			dir, err := cached("npm", []string{"@scope/name@1", "other"}, func(to string) error {
				filled.Add(1)
				return os.WriteFile(filepath.Join(to, "file"), nil, 0o644)
			})
			if err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(filepath.Join(dir, "file")); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := filled.Load(); n != 1 {
		t.Errorf("fetched %d times", n)
	}
}

func TestAFailureLeavesNothingBehind(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	broken := errors.New("broken")
	if _, err := cached("deb", []string{"a"}, func(string) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("first: %v", err)
	}
	dir, err := cached("deb", []string{"a"}, func(string) error { return nil })
	if err != nil {
		t.Errorf("again: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), "*.half")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
