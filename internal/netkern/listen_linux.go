// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netkern

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"bawn/internal/netplan"
)

// backlog is how many connections may wait for the proxy, for instance while
// it restarts. The kernel cuts it to net.core.somaxconn.
const backlog = 1024

// OpenUIDListener makes the explicit proxy's listener of a slot in the uid
// placement, in the namespace of the calling process.
func OpenUIDListener(slot int) (Listener, error) {
	if err := netplan.CheckSlot(slot); err != nil {
		return Listener{}, err
	}
	l := netplan.Listener{Arrival: netplan.Explicit, Network: "tcp", Addr: netplan.UIDProxy(slot)}
	file, err := openListener(l, true)
	if err != nil {
		return Listener{}, err
	}
	return Listener{l, file}, nil
}

// openListener makes the socket in the calling thread's namespace. With reuse
// an address on which only closed connections linger can be taken again;
// nobody can share it, since the socket listens.
func openListener(l netplan.Listener, reuse bool) (*os.File, error) {
	kind := unix.SOCK_STREAM
	if l.Network == "udp" {
		kind = unix.SOCK_DGRAM
	}
	fd, err := socket(l.Addr.Addr(), kind)
	if err != nil {
		return nil, fmt.Errorf("making %s: %w", l, err)
	}
	err = bind(fd, l.Addr, reuse)
	if err == nil && kind == unix.SOCK_STREAM {
		err = os.NewSyscallError("listen", unix.Listen(fd, backlog))
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("making %s: %w", l, err)
	}
	return os.NewFile(uintptr(fd), l.String()), nil
}

func socket(a netip.Addr, kind int) (int, error) {
	family := unix.AF_INET
	if a.Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	return fd, os.NewSyscallError("socket", err)
}

func bind(fd int, a netip.AddrPort, reuse bool) error {
	if reuse {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
	}
	return os.NewSyscallError("bind", unix.Bind(fd, sockaddr(a)))
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is6() {
		return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
}

// dialInside connects from inside ns to a port on its loopback addresses.
func dialInside(ctx context.Context, ns *os.File, port uint16) (*os.File, error) {
	v4 := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	var errs []error
	for _, a := range []netip.Addr{v4, netip.IPv6Loopback()} {
		to := netip.AddrPortFrom(a, port)
		var fd int
		err := inNamespace(ns, func() (err error) {
			fd, err = socket(a, unix.SOCK_STREAM)
			return err
		})
		if err == nil {
			err = connect(ctx, fd, to)
		}
		if err == nil {
			return os.NewFile(uintptr(fd), "dialled "+to.String()), nil
		}
		errs = append(errs, fmt.Errorf("dialling %s inside the namespace: %w", to, err))
	}
	return nil, errors.Join(errs...)
}

// connect connects the non-blocking socket fd, and closes it on failure.
func connect(ctx context.Context, fd int, to netip.AddrPort) error {
	err := unix.Connect(fd, sockaddr(to))
	if errors.Is(err, unix.EINPROGRESS) {
		err = finishConnect(ctx, fd)
	}
	if err != nil {
		unix.Close(fd)
	}
	return err
}

// finishConnect waits until the connection stands or has failed. Both ends are
// on one machine, so the wait is short unless the listener's queue is full.
func finishConnect(ctx context.Context, fd int) error {
	for {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		n, err := unix.Poll(poll, int((20 * time.Millisecond).Milliseconds()))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("poll", err)
		}
		if n <= 0 {
			continue
		}
		code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err != nil {
			return os.NewSyscallError("getsockopt", err)
		}
		if code != 0 {
			return unix.Errno(code)
		}
		return nil
	}
}
