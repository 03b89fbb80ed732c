// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// States of a TCP connection, as in TCP_INFO (include/net/tcp_states.h).
const (
	tcpEstablished = 1
	tcpSynSent     = 2
	tcpSynRecv     = 3
	tcpCloseWait   = 8 // the peer has ended its side
)

func peerGone(raw syscall.RawConn, mayEnd bool) bool {
	gone := false
	err := raw.Control(func(fd uintptr) {
		info, err := syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_INFO)
		if err != nil {
			return // not TCP
		}
		switch info & 0xff { // tcpi_state is the first octet
		case tcpEstablished, tcpSynSent, tcpSynRecv:
		case tcpCloseWait:
			gone = !mayEnd
		default:
			gone = true
		}
	})
	return gone || err != nil
}

// sinceData is how long ago the last data came, by the kernel's count.
func sinceData(raw syscall.RawConn) (ago time.Duration) {
	raw.Control(func(fd uintptr) { //nolint:errcheck // a closed connection has no silence to bound
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			ago = time.Duration(info.Last_data_recv) * time.Millisecond
		}
	})
	return ago
}

func silent(raw syscall.RawConn) bool {
	silent := false
	err := raw.Control(func(fd uintptr) {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		silent = errors.Is(err, syscall.EAGAIN)
	})
	return silent && err == nil
}

// soOriginalDst asks for the address that a redirected connection went to
// (include/uapi/linux/netfilter_ipv4.h).
const soOriginalDst = 80

var errNotTCP = errors.New("not a TCP connection")

// originalDst returns the address that a redirected IPv4 connection went to.
// An agent's namespace has no IPv6 beyond its own loopback.
func originalDst(c net.Conn) (netip.AddrPort, error) {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return netip.AddrPort{}, errNotTCP
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, err
	}
	var to netip.AddrPort
	var asked error
	err = raw.Control(func(fd uintptr) {
		// The kernel answers with a sockaddr_in of 16 octets, for which this
		// call has room: family, port, address.
		m, err := syscall.GetsockoptIPv6Mreq(int(fd), syscall.IPPROTO_IP, soOriginalDst)
		if err != nil {
			asked = fmt.Errorf("asking for the original destination: %w", err)
			return
		}
		port := binary.BigEndian.Uint16(m.Multiaddr[2:4])
		to = netip.AddrPortFrom(netip.AddrFrom4([4]byte(m.Multiaddr[4:8])), port)
	})
	return to, errors.Join(err, asked)
}
