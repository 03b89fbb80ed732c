// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netkern

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// onThread runs do on an operating-system thread of its own. The thread ends
// with it, whatever namespace do has left it in.
//
// The process's first thread is never used: it cannot end, and /proc/self
// stands for it.
func onThread(do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			done <- onThread(do) // this goroutine keeps the first thread busy meanwhile
			runtime.UnlockOSThread()
			return
		}
		done <- do()
		// Not unlocked: the runtime ends the thread with this goroutine.
	}()
	return <-done
}

// inNamespace is onThread inside ns.
func inNamespace(ns *os.File, do func() error) error {
	return onThread(func() error {
		if err := setns(ns); err != nil {
			return err
		}
		return do()
	})
}

func setns(ns *os.File) error {
	raw, err := ns.SyscallConn()
	if err != nil {
		return fmt.Errorf("entering namespace: %w", err)
	}
	var inner error
	err = raw.Control(func(fd uintptr) { inner = unix.Setns(int(fd), unix.CLONE_NEWNET) })
	if err == nil {
		err = inner
	}
	if err != nil {
		return fmt.Errorf("entering namespace: %w", err)
	}
	return nil
}

// Current opens the network namespace of the calling thread.
func Current() (*os.File, error) {
	// Not /proc/self: that is the first thread, which may be elsewhere.
	f, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("opening network namespace: %w", err)
	}
	return f, nil
}
