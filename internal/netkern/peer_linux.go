// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netkern

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// ErrNoOwner says that the peer's socket has no owner any more: it was closed
// before anybody could look.
var ErrNoOwner = errors.New("the peer has closed its socket")

// PeerUID gives the uid that owns the other end of an accepted TCP connection
// over loopback (I9: identity from the kernel). It must be called in the
// network namespace of the connection, and needs no privilege.
func PeerUID(c net.Conn) (uint32, error) {
	local, err := addrPort(c.LocalAddr())
	if err != nil {
		return 0, fmt.Errorf("looking up the peer's uid: %w", err)
	}
	remote, err := addrPort(c.RemoteAddr())
	if err != nil {
		return 0, fmt.Errorf("looking up the peer's uid: %w", err)
	}
	// The peer's local end is our remote one.
	uid, err := socketUID(remote, local)
	if err != nil {
		return 0, fmt.Errorf("looking up the uid of %s: %w", remote, err)
	}
	return uid, nil
}

func addrPort(a net.Addr) (netip.AddrPort, error) {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("%v is not a TCP address", a)
	}
	ap := tcp.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()), nil
}

// The layout of struct inet_diag_req_v2 and struct inet_diag_msg
// (linux/inet_diag.h): the identity of a socket lies at the same place in
// both, after 8 and 4 bytes.
const (
	diagRequestSize = 56
	diagAnswerSize  = 72
	diagByFamily    = 20 // SOCK_DIAG_BY_FAMILY
	diagUIDAt       = 64
	diagInodeAt     = 68
)

// socketUID asks for the one TCP socket with these two ends.
func socketUID(local, remote netip.AddrPort) (uint32, error) {
	c, err := netlink.Dial(unix.NETLINK_INET_DIAG, nil)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(netlinkPatience)); err != nil {
		return 0, err
	}
	answers, err := c.Execute(netlink.Message{
		Header: netlink.Header{Type: diagByFamily, Flags: netlink.Request},
		Data:   diagRequest(local, remote),
	})
	if err != nil {
		return 0, err
	}
	if len(answers) != 1 {
		return 0, fmt.Errorf("%d answers", len(answers))
	}
	return diagAnswer(answers[0].Data, local, remote)
}

func diagRequest(local, remote netip.AddrPort) []byte {
	family := byte(unix.AF_INET)
	if local.Addr().Is6() {
		family = unix.AF_INET6
	}
	b := make([]byte, diagRequestSize)
	b[0], b[1] = family, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(b[4:], 1<<32-1) // any state
	putID(b[8:], local, remote)
	return b
}

// putID writes a struct inet_diag_sockid: ports, addresses, any interface, and
// no cookie.
func putID(b []byte, local, remote netip.AddrPort) {
	binary.BigEndian.PutUint16(b[0:], local.Port())
	binary.BigEndian.PutUint16(b[2:], remote.Port())
	copy(b[4:20], local.Addr().AsSlice())
	copy(b[20:36], remote.Addr().AsSlice())
	for i := 40; i < 48; i++ {
		b[i] = 0xff
	}
}

func diagAnswer(b []byte, local, remote netip.AddrPort) (uint32, error) {
	if len(b) < diagAnswerSize {
		return 0, errors.New("short answer")
	}
	// Where no connection matches, the kernel answers with a listener.
	if got := binary.BigEndian.Uint16(b[4:]); got != local.Port() {
		return 0, fmt.Errorf("the kernel answers with port %d", got)
	}
	if got := binary.BigEndian.Uint16(b[6:]); got != remote.Port() {
		return 0, fmt.Errorf("the kernel answers with a socket to port %d", got)
	}
	if binary.NativeEndian.Uint32(b[diagInodeAt:]) == 0 {
		return 0, ErrNoOwner
	}
	return binary.NativeEndian.Uint32(b[diagUIDAt:]), nil
}
