// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package egress

import (
	"errors"
	"io"
	"syscall"
)

// readLate waits until there is something to read and takes a buffer only then.
// The buffer, if there is one, is the caller's to give back.
func (s *Server) readLate(raw syscall.RawConn) (buf *[]byte, n int, err error) {
	var failed error
	err = raw.Read(func(fd uintptr) (done bool) {
		buf = s.copies.Get().(*[]byte)
		for {
			n, failed = syscall.Read(int(fd), *buf)
			if !errors.Is(failed, syscall.EINTR) {
				break
			}
		}
		if errors.Is(failed, syscall.EAGAIN) { // called again once there is
			s.copies.Put(buf)
			buf = nil
			return false
		}
		return true
	})
	switch {
	case err != nil:
		return buf, 0, err
	case failed != nil:
		return buf, 0, failed
	case n == 0:
		return buf, 0, io.EOF
	}
	return buf, n, nil
}
