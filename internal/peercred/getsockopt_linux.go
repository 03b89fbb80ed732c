// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package peercred

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// getsockopt fills buf and returns how many bytes are valid. x/sys has no
// variable-length form that reports the length.
func getsockopt(fd, opt int, buf []byte) (int, error) {
	size := uint32(len(buf))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, uintptr(opt),
		uintptr(unsafe.Pointer(&buf[0])), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0, errno
	}
	return int(size), nil
}
