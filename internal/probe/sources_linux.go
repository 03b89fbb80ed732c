// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// protocolTrials make sockets of every kind but the usual ones. Each must be
// refused: what can be made may send what no counter sees.
func protocolTrials() (list []trial) {
	for name, s := range map[string][3]int{
		"SCTP":              {unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP},
		"SCTP, packets":     {unix.AF_INET6, unix.SOCK_SEQPACKET, unix.IPPROTO_SCTP},
		"DCCP":              {unix.AF_INET, unix.SOCK_DCCP, unix.IPPROTO_DCCP},
		"MPTCP":             {unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP},
		"UDP-Lite":          {unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE},
		"raw IPv4":          {unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW},
		"raw IPv6":          {unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_RAW},
		"raw TCP":           {unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_TCP},
		"raw UDP":           {unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_UDP},
		"packets":           {unix.AF_PACKET, unix.SOCK_DGRAM, 0},
		"raw packets":       {unix.AF_PACKET, unix.SOCK_RAW, 0},
		"vsock":             {unix.AF_VSOCK, unix.SOCK_STREAM, 0},
		"vsock, datagrams":  {unix.AF_VSOCK, unix.SOCK_DGRAM, 0},
		"cryptography":      {unix.AF_ALG, unix.SOCK_SEQPACKET, 0},
		"key management":    {unix.AF_KEY, unix.SOCK_RAW, 2},
		"Bluetooth":         {unix.AF_BLUETOOTH, unix.SOCK_RAW, 1},
		"CAN":               {unix.AF_CAN, unix.SOCK_RAW, 1},
		"TIPC":              {unix.AF_TIPC, unix.SOCK_SEQPACKET, 0},
		"RDS":               {unix.AF_RDS, unix.SOCK_SEQPACKET, 0},
		"SMC":               {unix.AF_SMC, unix.SOCK_STREAM, 0},
		"XDP":               {unix.AF_XDP, unix.SOCK_RAW, 0},
		"Qualcomm's router": {unix.AF_QIPCRTR, unix.SOCK_DGRAM, 0},
		"netfilter":         {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER},
		"audit":             {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT},
		"kernel events":     {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT},
		"IPsec":             {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_XFRM},
		"socket listing":    {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_SOCK_DIAG},
		"generic netlink":   {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_GENERIC},
	} {
		list = append(list, func(context.Context) Try {
			t := Try{Check: CheckProtocols, Target: "socket " + name, Outcome: Blocked}
			fd, err := unix.Socket(s[0], s[1]|unix.SOCK_CLOEXEC, s[2])
			if err != nil {
				t.Detail = err.Error()
				return t
			}
			unix.Close(fd)
			t.Outcome, t.Detail = GotOut, "made"
			return t
		})
	}
	return list
}

// sourceTrials connect from ports that a rule might take for somebody else's,
// to an address of documentation and to the host's own listener.
func (p *prober) sourceTrials() (list []trial) {
	to := []netip.AddrPort{netip.MustParseAddrPort("198.51.100.1:443")}
	if n := len(p.Loopback); n > 0 {
		to = append(to, p.Loopback[n-1])
	}
	for _, port := range p.Sources {
		for _, a := range to {
			list = append(list, p.from(port, a))
		}
	}
	return list
}

// from connects to an address from a port of its own choice.
func (p *prober) from(port uint16, to netip.AddrPort) trial {
	return func(ctx context.Context) Try {
		t := Try{Check: CheckSource, Target: fmt.Sprintf("tcp %s from port %d", to, port), Outcome: Blocked}
		end, ok := ctx.Deadline()
		if !ok {
			end = time.Now().Add(p.Timeout)
		}
		heard, err := p.connectFrom(port, to, time.Until(end))
		switch {
		case err != nil:
			t.Detail, t.Silent = err.Error(), errors.Is(err, unix.ETIMEDOUT)
		case p.enclosed && heard == "":
			t.Outcome, t.Detail = Answered, "cut" // every connection there ends at Bawn's listener
		default:
			t.Outcome, t.Detail = GotOut, "connected "+heard
		}
		return t
	}
}

// connectFrom connects, and in an enclosed place hears what whoever is there
// says to a line of nothing.
func (p *prober) connectFrom(port uint16, to netip.AddrPort, wait time.Duration) (heard string, err error) {
	family, local := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(port)})
	far := unix.Sockaddr(&unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()})
	if to.Addr().Is4() {
		family, local, far = unix.AF_INET, &unix.SockaddrInet4{Port: int(port)}, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	limit := unix.NsecToTimeval(max(wait, time.Millisecond).Nanoseconds())
	for _, option := range []int{unix.SO_RCVTIMEO, unix.SO_SNDTIMEO} { // the latter bounds connect too
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, option, &limit); err != nil {
			return "", err
		}
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return "", err
	}
	if err := unix.Bind(fd, local); err != nil {
		return "", fmt.Errorf("taking the port: %w", err)
	}
	if err := unix.Connect(fd, far); err != nil {
		if errors.Is(err, unix.EINPROGRESS) {
			err = unix.ETIMEDOUT
		}
		return "", err
	}
	if !p.enclosed {
		return "", nil
	}
	if _, err := unix.Write(fd, []byte("bawn probe\r\n\r\n")); err != nil {
		return "", nil //nolint:nilerr // cut at once
	}
	b := make([]byte, 512)
	n, err := unix.Read(fd, b)
	if err != nil || n == 0 {
		return "", nil //nolint:nilerr // cut, or held and nothing came
	}
	if _, code := parseHead(b[:n]); code != "" {
		return "", nil
	}
	return firstLine(b[:n]), nil
}
