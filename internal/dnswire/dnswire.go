// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dnswire reads and writes the few DNS messages that Bawn speaks.
//
// Towards agents it is a server: [ParseQuery] reads a query strictly and [Query]
// writes each answer that there can be (an address, no data, a refusal with an
// extended error). Towards the configured resolvers it is a client:
// [AppendQuery] writes a question and [ParseAnswer] reads what came back. The
// two sides never meet: nothing that an agent wrote goes into a question.
//
// What agents write is read by a parser of our own, because it must know where a
// message ends: bytes behind it, compressed questions and records that no
// question needs are refused. Answers of resolvers are read by
// x/net/dns/dnsmessage, with checks of our own on top.
//
// Everything here is pure and safe for concurrent use.
package dnswire

import (
	"fmt"
	"strings"
)

// A Type is the type of a record (RFC 1035 section 3.2.2).
type Type uint16

// The types that have a meaning here.
const (
	TypeA     Type = 1
	TypeCNAME Type = 5
	TypeSOA   Type = 6
	TypeAAAA  Type = 28
	TypeOPT   Type = 41
	TypeSVCB  Type = 64
	TypeHTTPS Type = 65
)

// mnemonics are the names of types that records show, those that stubs and
// tunnels ask for among them (registry of RFC 6895).
var mnemonics = map[Type]string{
	TypeA: "A", 2: "NS", TypeCNAME: "CNAME", TypeSOA: "SOA", 10: "NULL", 12: "PTR", 13: "HINFO", 15: "MX", 16: "TXT",
	25: "KEY", TypeAAAA: "AAAA", 33: "SRV", 35: "NAPTR", 39: "DNAME", TypeOPT: "OPT", 43: "DS", 44: "SSHFP",
	46: "RRSIG", 48: "DNSKEY", 52: "TLSA", TypeSVCB: "SVCB", TypeHTTPS: "HTTPS", 251: "IXFR", 252: "AXFR", 255: "ANY", 257: "CAA",
}

// String gives the mnemonic of a well-known type and the form of RFC 3597 for
// all others.
func (t Type) String() string {
	if m := mnemonics[t]; m != "" {
		return m
	}
	return fmt.Sprintf("TYPE%d", uint16(t))
}

// An RCode is a response code, with the upper bits that EDNS adds (RFC 6895
// section 2.3).
type RCode uint16

// The response codes that have a meaning here.
const (
	Success   RCode = 0
	FormErr   RCode = 1
	ServFail  RCode = 2
	NXDomain  RCode = 3
	NotImp    RCode = 4
	Refused   RCode = 5
	BadVers   RCode = 16
	rcodeMask       = 0xf // the part that stands in the header
)

// String gives the name in the registry, or RCODEn.
func (r RCode) String() string {
	switch r {
	case Success:
		return "NOERROR"
	case FormErr:
		return "FORMERR"
	case ServFail:
		return "SERVFAIL"
	case NXDomain:
		return "NXDOMAIN"
	case NotImp:
		return "NOTIMP"
	case Refused:
		return "REFUSED"
	case BadVers:
		return "BADVERS"
	}
	return fmt.Sprintf("RCODE%d", uint16(r))
}

// The sizes of a message, in bytes.
const (
	headerSize = 12
	maxName    = 255 // on the wire, with the root label
	maxLabel   = 63

	// UDPSize is the largest UDP message that Bawn takes or asks for: what fits
	// into one packet on any path of today (DNS flag day 2020).
	UDPSize = 1232

	// MaxMessage is the largest message there is: over TCP the length has two
	// bytes.
	MaxMessage = 1<<16 - 1
)

// The bits of the header's flags (RFC 1035 section 4.1.1).
const (
	flagResponse           = 1 << 15
	flagTruncated          = 1 << 9
	flagRecursion          = 1 << 8 // desired
	flagRecursionAvailable = 1 << 7
	flagNoChecking         = 1 << 4
	opcodeShift            = 11
	opcodeMask             = 0xf
)

// flagDNSSECOK is the one flag of an OPT record: DO (RFC 3225 section 3).
const flagDNSSECOK = 1 << 15

func uint16At(b []byte, off int) uint16 { return uint16(b[off])<<8 | uint16(b[off+1]) }

// presentation writes labels as text: dots between them, none at the end, and
// escapes (RFC 4343 section 2.1) for what could be misread, so that a dot inside
// of a label can never pass for one between two.
func presentation(labels [][]byte) string {
	var b strings.Builder
	for i, label := range labels {
		if i > 0 {
			b.WriteByte('.')
		}
		for _, c := range label {
			switch {
			case c == '.' || c == '\\':
				b.WriteByte('\\')
				b.WriteByte(c)
			case c <= ' ' || c >= 0x7f:
				fmt.Fprintf(&b, `\%03d`, c)
			default:
				b.WriteByte(c)
			}
		}
	}
	if len(labels) == 0 {
		return "."
	}
	return b.String()
}
