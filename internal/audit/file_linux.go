// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"os"
	"syscall"
)

// syncData brings the data of f, and what it takes to read it, to the disk.
func syncData(f *os.File) error {
	for {
		err := syscall.Fdatasync(int(f.Fd()))
		if err == nil {
			return nil
		}
		if err != syscall.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}

// lockFile takes an exclusive lock that ends with the process. It does not
// wait: a lock that is held is an error.
func lockFile(f *os.File) error {
	return os.NewSyscallError("flock", syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB))
}
