// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netd

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"bawn/internal/ids"
	"bawn/internal/netd/netdapi"
	"bawn/internal/netplan"
)

// lures opens listeners of the host for the self-test's agent to find: on the
// loopback of both families, on an address of the host, and where another
// agent's proxy would be. What the host does not have is left out.
func (s *Server) lures(ctx context.Context, _ *caller) (reply, error) {
	var l netdapi.Lures
	var files []*os.File
	fail := func(err error) (reply, error) {
		netdapi.CloseAll(files)
		return reply{}, err
	}
	var at []netip.AddrPort
	for _, a := range []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()} {
		at = append(at, netip.AddrPortFrom(a, 0))
	}
	at = append(at, ownAddress()...)
	for _, a := range append(at, netplan.UIDProxy(netplan.MaxSlot)) {
		tcp, got, err := lure("tcp", a)
		if err != nil {
			continue
		}
		files, l.TCP = append(files, tcp), append(l.TCP, got)
		udp, got, err := lure("udp", a)
		if err != nil {
			continue
		}
		files, l.UDP = append(files, udp), append(l.UDP, got)
	}
	if len(l.TCP) == 0 || len(l.UDP) == 0 {
		return fail(netdapi.Errorf(netdapi.CodeFailed, "opening listeners: the host's loopback takes none"))
	}
	name := "bawn-doctor-" + ids.NewSession()
	local, err := (&net.ListenConfig{}).Listen(ctx, "unix", "@"+name)
	if err != nil {
		return fail(fmt.Errorf("opening an abstract socket: %w", err))
	}
	defer local.Close()
	f, err := local.(*net.UnixListener).File()
	if err != nil {
		return fail(fmt.Errorf("opening an abstract socket: %w", err))
	}
	files, l.Abstract = append(files, f), []string{name}
	return reply{result: l, files: files}, nil
}

// ownAddress is one address for each family that the host has besides its
// loopback.
func ownAddress() (list []netip.AddrPort) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var four, six bool
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		ip, ok := netip.AddrFromSlice(n.IP)
		ip = ip.Unmap()
		if !ok || !ip.IsGlobalUnicast() || ip.Is4() && four || ip.Is6() && six {
			continue
		}
		four, six = four || ip.Is4(), six || ip.Is6()
		list = append(list, netip.AddrPortFrom(ip, 0))
	}
	return list
}

// lure makes one. It is bound to the loopback device, over which the host
// reaches all of its own addresses: nobody outside sees it.
func lure(network string, at netip.AddrPort) (*os.File, netip.AddrPort, error) {
	c := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var inner error
		err := raw.Control(func(fd uintptr) { inner = unix.BindToDevice(int(fd), "lo") })
		if err != nil {
			return err
		}
		return inner
	}}
	if network == "udp" {
		p, err := c.ListenPacket(context.Background(), network, at.String())
		if err != nil {
			return nil, netip.AddrPort{}, err
		}
		defer p.Close()
		f, err := p.(*net.UDPConn).File()
		return f, p.LocalAddr().(*net.UDPAddr).AddrPort(), err
	}
	l, err := c.Listen(context.Background(), network, at.String())
	if err != nil {
		return nil, netip.AddrPort{}, err
	}
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	return f, l.Addr().(*net.TCPAddr).AddrPort(), err
}
