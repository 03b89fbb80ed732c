// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package names

import (
	"net/netip"
	"strconv"
	"strings"
)

// An Authority is a host or an address, with the port that was written. One of
// Host and Addr is set. The zero Authority is none.
type Authority struct {
	Host    Host
	Addr    netip.Addr // of an IP literal; then Host is zero. Never with a zone
	Port    uint16     // 0 when none was written
	HasPort bool
}

// IsIP reports whether the authority is an address rather than a name.
func (a Authority) IsIP() bool { return a.Addr.IsValid() }

// PortOr returns the port that was written, and otherwise port.
func (a Authority) PortOr(port uint16) uint16 {
	if a.HasPort {
		return a.Port
	}
	return port
}

// String gives the canonical form, which [ParseAuthority] reads back as a.
func (a Authority) String() string {
	host := a.Host.String()
	if a.IsIP() {
		host = a.Addr.String()
		if a.Addr.Is6() {
			host = "[" + host + "]"
		}
	}
	if !a.HasPort {
		return host
	}
	return host + ":" + strconv.Itoa(int(a.Port))
}

// ParseAuthority reads host, host:port, an IPv4 address or a bracketed IPv6
// address, each with or without a port: the authority of a CONNECT request, of
// an absolute target or of a Host header (RFC 9110 section 7.2), without the
// user information that RFC 3986 allows in front. The error is always an
// [*Error].
//
// It is stricter than RFC 3986: no percent-encoding, no zone, no empty port, no
// leading zeros in a port, and no spelling of an address but the standard ones.
func ParseAuthority(s string) (Authority, error) {
	if strings.HasPrefix(s, "[") {
		return parseBracketed(s)
	}
	host, port, hasPort := strings.Cut(s, ":")
	if strings.Contains(port, ":") {
		return Authority{}, invalid(s, "more than one colon outside brackets")
	}
	var a Authority
	if hasPort {
		p, err := parsePort(s, port)
		if err != nil {
			return Authority{}, err
		}
		a.Port, a.HasPort = p, true
	}
	if addr, err := netip.ParseAddr(host); err == nil { // no colon: only IPv4 can succeed
		a.Addr = addr
		return a, nil
	}
	h, err := Parse(host)
	if err != nil {
		return Authority{}, err
	}
	a.Host = h
	return a, nil
}

// parseBracketed reads "[v6]" or "[v6]:port".
func parseBracketed(s string) (Authority, error) {
	inner, rest, ok := strings.Cut(s[1:], "]")
	if !ok {
		return Authority{}, invalid(s, "bracket without its end")
	}
	addr, err := netip.ParseAddr(inner)
	switch {
	case err != nil || !addr.Is6():
		return Authority{}, invalid(s, "brackets hold no IPv6 address")
	case addr.Zone() != "":
		return Authority{}, invalid(s, "address with a zone")
	case rest == "":
		return Authority{Addr: addr}, nil
	case rest[0] != ':':
		return Authority{}, invalid(s, "bytes between bracket and port")
	}
	port, err := parsePort(s, rest[1:])
	if err != nil {
		return Authority{}, err
	}
	return Authority{Addr: addr, Port: port, HasPort: true}, nil
}

// parsePort reads the port of authority s: 1 to 65535 in the one decimal
// spelling that has no sign, space or leading zero.
func parsePort(s, port string) (uint16, error) {
	n := 0
	for i := range len(port) {
		c := port[i]
		if c < '0' || c > '9' || i >= 5 {
			return 0, badPort(s)
		}
		n = n*10 + int(c-'0')
	}
	if n == 0 || n > 65535 || port[0] == '0' {
		return 0, badPort(s)
	}
	return uint16(n), nil
}

func badPort(s string) *Error {
	return invalid(s, "port is not a number from 1 to 65535 in plain digits")
}
