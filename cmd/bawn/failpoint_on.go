//go:build failpoint

// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// stages makes the proxy fail at a stage of a request, for tests that show what
// is left then. BAWN_FAILPOINT=STAGE:ACTION:MARKER does ACTION once, at the
// first request that reaches STAGE while the file MARKER.arm exists and MARKER
// does not, and makes MARKER first. (The self-test of "bawn up" makes requests
// too, so a test arms the point when it is ready for it.)
//
// Actions: kill (SIGKILL to this process), stop (SIGSTOP), wait (until the file
// MARKER.go exists, so that the test can do something to another process
// meanwhile).
func stages() func(stage string) {
	parts := strings.SplitN(os.Getenv("BAWN_FAILPOINT"), ":", 3)
	if len(parts) != 3 {
		return nil
	}
	at, action, marker := parts[0], parts[1], parts[2]
	var once sync.Once
	return func(stage string) {
		if _, err := os.Stat(marker + ".arm"); stage != at || err != nil {
			return
		}
		once.Do(func() { failHere(action, marker) })
	}
}

func failHere(action, marker string) {
	f, err := os.OpenFile(marker, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return // an earlier process of this name has failed here already
	}
	f.Close()
	switch action {
	case "kill":
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "stop":
		syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	case "wait":
		for range 6000 {
			if _, err := os.Stat(marker + ".go"); err == nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// wallClock is the wall clock, moved by the duration in the file that BAWN_CLOCK
// names, which may change at any time: a clock that is set. It has no monotonic
// reading, as a time has none that comes from elsewhere.
func wallClock() func() time.Time {
	file := os.Getenv("BAWN_CLOCK")
	if file == "" {
		return time.Now
	}
	return func() time.Time {
		now := time.Now().Round(0)
		text, err := os.ReadFile(file)
		if err != nil {
			return now
		}
		by, err := time.ParseDuration(strings.TrimSpace(string(text)))
		if err != nil {
			return now
		}
		return now.Add(by)
	}
}
