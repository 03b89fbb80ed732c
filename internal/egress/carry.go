// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"errors"
	"io"
	"net"
	"syscall"
)

// carry copies what from sends to to until from ends, each piece once pay lets it.
// While from says nothing
// it holds no buffer. (io.Copy would have the kernel move the octets, through a
// pipe that it holds from the first to the last: two descriptors for each
// direction of each tunnel that waits.)
func (s *Server) carry(to, from net.Conn, pay func(int) error) (n int64, err error) {
	var raw syscall.RawConn // nil: a connection in memory
	if sc, ok := from.(syscall.Conn); ok {
		if raw, err = sc.SyscallConn(); err != nil {
			return 0, err
		}
	}
	for err == nil {
		var buf *[]byte
		var got, wrote int
		if raw != nil {
			buf, got, err = s.readLate(raw)
		} else {
			buf = s.copies.Get().(*[]byte)
			got, err = from.Read(*buf)
		}
		if got > 0 {
			failed := pay(got)
			if failed == nil {
				wrote, failed = to.Write((*buf)[:got])
			}
			n += int64(wrote)
			err = errors.Join(err, failed)
		}
		if buf != nil {
			s.copies.Put(buf)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}
