//go:build !failpoint

// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "time"

// stages is nil: a release has no points at which it can be stopped.
func stages() func(stage string) { return nil }

// wallClock is the wall clock.
func wallClock() func() time.Time { return time.Now }
