// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package probe

import "bawn/internal/doctor"

// The checks that tries belong to.
const (
	CheckLinks        = doctor.Links
	CheckTCP          = doctor.TCP
	CheckUDP          = doctor.UDP
	CheckICMP         = doctor.ICMP
	CheckProtocols    = doctor.Protocols
	CheckSource       = doctor.SourcePorts
	CheckDNS          = doctor.DNS
	CheckMetadata     = doctor.Metadata
	CheckLoopback     = doctor.Loopback
	CheckServices     = doctor.Services
	CheckAbstract     = doctor.Abstract
	CheckOwn          = doctor.OwnSockets
	CheckOwnFiles     = doctor.OwnFiles
	CheckKernel       = doctor.Calls
	CheckRights       = doctor.Rights
	CheckOthers       = doctor.Others
	CheckProxy        = doctor.ByProxy     // the canary by way of the proxy: refused, with a code
	CheckTransparent  = doctor.Transparent // without the proxy
	CheckResolver     = doctor.ByResolver  // the canary by way of Bawn's resolver: refused
	CheckCertificates = doctor.Certificates
)
