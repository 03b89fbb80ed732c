// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"errors"
	"fmt"
	"io/fs"
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

// hasRoom says why no new record can go into dir, as far as that shows without
// writing one.
func hasRoom(dir string) error {
	const writeAndSearch = 0x2 | 0x1
	if err := syscall.Access(dir, writeAndSearch); err != nil {
		return &os.PathError{Op: "access", Path: dir, Err: err}
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err == nil && fs.Blocks > 0 && fs.Bavail == 0 {
		return &os.PathError{Op: "write", Path: dir, Err: syscall.ENOSPC}
	}
	return nil
}

// lockFile takes an exclusive lock that ends with the process. It does not
// wait: a lock that is held is an error.
func lockFile(f *os.File) error {
	return os.NewSyscallError("flock", syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB))
}

// openFile opens a file of a journal to read it. The directory may belong to
// another account: what that puts in the place of a file is not followed, and not
// waited for.
func openFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("%s is a link", path)
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: path, Err: errors.New("is no file")}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
