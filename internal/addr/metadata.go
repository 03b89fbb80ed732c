// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package addr

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// metadataNames are those under which clouds' metadata services are asked for
// (documentation of Google Cloud, AWS EC2, OpenStack, Equinix and Tencent
// Cloud).
var metadataNames = []string{
	"metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal", "metadata.packet.net",
	"metadata.platformequinix.com", "metadata.tencentyun.com",
}

// IsMetadataHost reports whether asked, a name or an address with or without a
// port, is a cloud's metadata service, in whichever spelling some reader takes for
// it. See [IsMetadata].
func IsMetadataHost(asked string) bool {
	if p, err := netip.ParseAddrPort(asked); err == nil {
		return IsMetadata(p.Addr())
	}
	host := strings.Trim(asked, "[]")
	if a, err := netip.ParseAddr(host); err == nil {
		return IsMetadata(a)
	}
	if i := strings.LastIndexByte(host, ':'); i >= 0 {
		host = strings.Trim(host[:i], "[]")
	}
	host = strings.TrimRight(strings.ToLower(host), ".")
	if a, ok := loose(host); ok {
		return IsMetadata(a)
	}
	return slices.Contains(metadataNames, host)
}

// loose reads an IPv4 address as inet_aton(3) does: one to four numbers, decimal,
// octal or hexadecimal, of which the last fills what is left.
func loose(s string) (netip.Addr, bool) {
	parts := strings.Split(s, ".")
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var all uint64
	for i, p := range parts {
		base := 10
		if hex, ok := strings.CutPrefix(p, "0x"); ok {
			p, base = hex, 16
		} else if len(p) > 1 && p[0] == '0' {
			base = 8
		}
		bits := 8
		if i == len(parts)-1 {
			bits = 8 * (5 - len(parts))
		}
		n, err := strconv.ParseUint(p, base, bits)
		if err != nil {
			return netip.Addr{}, false
		}
		all = all<<bits | n
	}
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(all)))), true
}
