// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package addr

import (
	"net/netip"
	"slices"
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
// port, is a cloud's metadata service. See [IsMetadata].
func IsMetadataHost(asked string) bool {
	if p, err := netip.ParseAddrPort(asked); err == nil {
		return IsMetadata(p.Addr())
	}
	host := strings.Trim(asked, "[]")
	if a, err := netip.ParseAddr(host); err == nil {
		return IsMetadata(a)
	}
	if i := strings.LastIndexByte(host, ':'); i >= 0 {
		host = host[:i]
	}
	return slices.Contains(metadataNames, strings.TrimSuffix(strings.ToLower(host), "."))
}
