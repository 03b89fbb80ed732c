// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"net"
	"syscall"
	"time"
)

// A socket is what can be asked of the kernel about a connection. Connections
// in memory have no kernel to ask, and answer as if all were well.
type socket struct {
	conn net.Conn
	raw  syscall.RawConn
}

func socketOf(c net.Conn) socket {
	s := socket{conn: under(c)}
	if sc, ok := s.conn.(syscall.Conn); ok {
		s.raw, _ = sc.SyscallConn()
	}
	return s
}

// under returns the connection that carries c: a tunnel through a parent proxy
// can have TLS of its own.
func under(c net.Conn) net.Conn {
	for {
		on, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return c
		}
		c = on.NetConn()
	}
}

// reset closes a connection so that the peer sees a failure and not an end.
func reset(c net.Conn) {
	c = under(c)
	if tcp, ok := c.(*net.TCPConn); ok {
		tcp.SetLinger(0) //nolint:errcheck // the close follows either way
	}
	c.Close()
}

func (s *socket) abort() { reset(s.conn) }

func (s *socket) close() { s.conn.Close() }

// A resetter ends a connection by a reset.
type resetter struct{ net.Conn }

func (r resetter) abort() { reset(r.Conn) }

// gone reports whether the peer has closed the connection. With mayEnd a peer
// that only ended what it sends, as some simple clients do behind a request
// without TLS, still waits for the response; a close looks the same until the
// response finds nobody.
func (s *socket) gone(mayEnd bool) bool { return s.raw != nil && peerGone(s.raw, mayEnd) }

// usable reports whether a connection on which nothing is expected is open and
// silent.
func (s *socket) usable() bool { return s.raw == nil || silent(s.raw) }

// quiet is how long the peer has sent nothing.
func (s *socket) quiet() time.Duration {
	if s.raw == nil {
		return 0
	}
	return sinceData(s.raw)
}
