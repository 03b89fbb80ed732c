// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package audit

import "os"

func syncData(f *os.File) error { return f.Sync() }

func hasRoom(dir string) error {
	_, err := os.Stat(dir)
	return err
}

// lockFile does nothing: Bawn serves on Linux only, elsewhere just its tests
// run.
func lockFile(*os.File) error { return nil }

func openFile(path string) (*os.File, error) { return os.Open(path) }
