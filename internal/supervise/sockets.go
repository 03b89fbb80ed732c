// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"bawn/internal/config"
)

// sockets are the listening ends, held here so that a child's death frees no
// name.
type sockets struct{ admin, netd *os.File }

func (s sockets) close() {
	for _, f := range []*os.File{s.admin, s.netd} {
		if f != nil {
			f.Close()
		}
	}
}

// listen makes the sockets. File modes let in those who may ask at all; each
// server then reads the peer's credentials from the kernel.
func listen(p config.Paths, a accounts) (s sockets, err error) {
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	// The proxy asks as owner, operators as the group.
	if s.admin, err = listenUnix(p.AdminSock(), unix.SOCK_STREAM, a.proxy.uid, a.operators); err != nil {
		return s, err
	}
	// The proxy asks as owner, admin as the group.
	s.netd, err = listenUnix(p.NetdSock(), unix.SOCK_SEQPACKET, a.proxy.uid, a.admin.gid)
	return s, err
}

const backlog = 128

func listenUnix(path string, kind, uid, gid int) (*os.File, error) {
	if err := removeStale(path); err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("making socket %s: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	// Nobody but root can connect between bind and chown.
	old := unix.Umask(0o177)
	err = unix.Bind(fd, &unix.SockaddrUnix{Name: path})
	unix.Umask(old)
	if err == nil {
		err = os.Lchown(path, uid, gid)
	}
	if err == nil {
		err = os.Chmod(path, 0o660)
	}
	if err == nil {
		err = unix.Listen(fd, backlog)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	return f, nil
}

// removeStale removes the socket that an earlier run left. The lock says that
// no other supervisor of this root runs; anything that is not a socket is not
// ours.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking at %s: %w", path, err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("listening on %s: there is something that is not a socket: move it away", path)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("removing the old socket %s: %w", path, err)
	}
	return nil
}
