// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package peercred asks the kernel who is at the other end of a Unix socket
// (I9: identity from the kernel).
package peercred

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Peer is the process that connected, as it was when it connected.
type Peer struct {
	PID    int32
	UID    uint32
	GID    uint32
	Groups []uint32 // supplementary groups
}

// InGroup reports whether gid is the peer's group or among its supplementary
// groups.
func (p Peer) InGroup(gid uint32) bool {
	return p.GID == gid || slices.Contains(p.Groups, gid)
}

// Of reads the credentials of c's peer (SO_PEERCRED and SO_PEERGROUPS,
// unix(7)).
func Of(c *net.UnixConn) (Peer, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return Peer{}, fmt.Errorf("reading peer credentials: %w", err)
	}
	return control(raw)
}

func control(raw syscall.RawConn) (Peer, error) {
	var peer Peer
	var inner error
	err := raw.Control(func(fd uintptr) { peer, inner = read(int(fd)) })
	if err == nil {
		err = inner
	}
	if err != nil {
		return Peer{}, fmt.Errorf("reading peer credentials: %w", err)
	}
	return peer, nil
}

// OfFile is Of for a socket that came as a descriptor. For a socket pair the
// peer is the process that made it.
func OfFile(f *os.File) (Peer, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return Peer{}, fmt.Errorf("reading peer credentials: %w", err)
	}
	return control(raw)
}

func read(fd int) (Peer, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return Peer{}, err
	}
	groups, err := groups(fd)
	if err != nil {
		return Peer{}, err
	}
	return Peer{PID: cred.Pid, UID: cred.Uid, GID: cred.Gid, Groups: groups}, nil
}

// maxGroups is NGROUPS_MAX of Linux (limits.h).
const maxGroups = 65536

func groups(fd int) ([]uint32, error) {
	for size := 256; ; size *= 4 {
		buf := make([]byte, size)
		n, err := getsockopt(fd, unix.SO_PEERGROUPS, buf)
		if err == unix.ERANGE && size < 4*maxGroups {
			continue
		}
		if err != nil {
			return nil, err
		}
		list := make([]uint32, 0, n/4)
		for i := 0; i+4 <= n; i += 4 {
			list = append(list, binary.NativeEndian.Uint32(buf[i:]))
		}
		return list, nil
	}
}
