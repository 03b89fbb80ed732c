// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package audit

import "os"

func syncData(f *os.File) error { return f.Sync() }

// lockFile does nothing: Bawn serves on Linux only, elsewhere just its tests
// run.
func lockFile(*os.File) error { return nil }
