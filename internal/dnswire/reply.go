// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package dnswire

import (
	"encoding/binary"
	"net/netip"
	"time"

	"bawn/internal/codes"
)

// The extended errors in use (RFC 8914 section 4).
const (
	extendedOther        = 0
	extendedNotReady     = 14
	extendedBlocked      = 15
	extendedProhibited   = 18
	extendedNotSupported = 21

	optionExtendedError = 15
)

// A record is the one record that an answer may hold, and where it stands.
type record struct {
	bytes     []byte
	authority bool // it stands in the authority section, else in the answer
}

// Address answers with one IPv4 address for the name of q, valid for ttl (whole
// seconds). A name that was asked for in mixed case comes back as it was.
func (q *Query) Address(a netip.Addr, ttl time.Duration) []byte {
	v4 := a.As4()
	return q.reply(Success, record{bytes: append(recordHead(TypeA, ttl, len(v4)), v4[:]...)}, "")
}

// NoData answers that the name exists and has nothing of the type asked for,
// which may be believed for ttl (whole seconds). Who keeps negative answers
// takes that from the SOA record of the zone (RFC 2308 section 5), so there is
// one, for a zone of this one name, in the form of zones that exist nowhere
// (RFC 6303 section 3).
func (q *Query) NoData(ttl time.Duration) []byte {
	const mailbox = "\x06nobody\x07invalid\x00"
	soa := binary.BigEndian.AppendUint16(nil, 0xc000|headerSize) // its server: the name in the question
	soa = append(soa, mailbox...)
	for _, n := range []uint32{1, 3600, 1200, 604800, uint32(ttl / time.Second)} { // serial, refresh, retry, expire, minimum
		soa = binary.BigEndian.AppendUint32(soa, n)
	}
	return q.reply(Success, record{append(recordHead(TypeSOA, ttl, len(soa)), soa...), true}, "")
}

// recordHead begins a record of the name in the question.
func recordHead(t Type, ttl time.Duration, length int) []byte {
	b := binary.BigEndian.AppendUint16(nil, 0xc000|headerSize)
	b = binary.BigEndian.AppendUint16(b, uint16(t))
	b = binary.BigEndian.AppendUint16(b, ClassIN)
	b = binary.BigEndian.AppendUint32(b, uint32(ttl/time.Second))
	return binary.BigEndian.AppendUint16(b, uint16(length))
}

// Refuse answers REFUSED. If q speaks EDNS, the answer holds an extended error
// (RFC 8914) with the code as its text.
func (q *Query) Refuse(code codes.Code) []byte { return q.reply(Refused, record{}, code) }

// Fail answers SERVFAIL, for a fault of ours, in the form of [Query.Refuse].
func (q *Query) Fail(code codes.Code) []byte { return q.reply(ServFail, record{}, code) }

// reply writes an answer: header, the question byte by byte as it came (RFC 4343
// section 3: its case is kept, some stubs mix it and check), at most one record,
// and an OPT record where the query had one (RFC 6891 section 6.1.1). No answer
// is longer than 512 bytes, so none is ever cut, whatever size the query says
// it takes: a name has 255 at most, the rest is small.
//
// The flag for recursion is always set: stubs take an answer without it and
// without records for a lame one.
func (q *Query) reply(rcode RCode, one record, code codes.Code) []byte {
	flags := uint16(flagResponse|flagRecursionAvailable) | uint16(rcode&rcodeMask)
	if q.recursion {
		flags |= flagRecursion
	}
	if q.noChecking {
		flags |= flagNoChecking
	}
	b := make([]byte, 0, 512)
	b = binary.BigEndian.AppendUint16(b, q.ID)
	b = binary.BigEndian.AppendUint16(b, flags)
	b = binary.BigEndian.AppendUint16(b, count(len(q.question) > 0))
	b = binary.BigEndian.AppendUint16(b, count(len(one.bytes) > 0 && !one.authority))
	b = binary.BigEndian.AppendUint16(b, count(one.authority))
	b = binary.BigEndian.AppendUint16(b, count(q.EDNS))
	b = append(b, q.question...)
	b = append(b, one.bytes...)
	if q.EDNS {
		b = appendOPT(b, rcode, q.dnssecOK, code)
	}
	return b
}

func count(there bool) uint16 {
	if there {
		return 1
	}
	return 0
}

// appendOPT writes an OPT record of version 0 with the upper bits of rcode, the
// DO bit as the query had it (RFC 6891 section 6.1.4) and, if there is a code,
// an extended error.
func appendOPT(b []byte, rcode RCode, dnssecOK bool, code codes.Code) []byte {
	b = append(b, 0) // the root
	b = binary.BigEndian.AppendUint16(b, uint16(TypeOPT))
	b = binary.BigEndian.AppendUint16(b, UDPSize)
	b = append(b, byte(rcode>>4), 0) // upper bits, version
	b = binary.BigEndian.AppendUint16(b, flagDNSSECOK*count(dnssecOK))
	if code == "" {
		return binary.BigEndian.AppendUint16(b, 0)
	}
	b = binary.BigEndian.AppendUint16(b, uint16(4+2+len(code)))
	b = binary.BigEndian.AppendUint16(b, optionExtendedError)
	b = binary.BigEndian.AppendUint16(b, uint16(2+len(code)))
	b = binary.BigEndian.AppendUint16(b, extendedInfo(code))
	return append(b, code...)
}

// extendedInfo gives the number that comes nearest to a code.
func extendedInfo(code codes.Code) uint16 {
	switch code {
	case codes.DNSNameNotAllowed, codes.RuleExpired, codes.DNSLabelBudget:
		return extendedProhibited
	case codes.PolicyDenied:
		return extendedBlocked
	case codes.DNSTypeDenied:
		return extendedNotSupported
	case codes.PolicyUnavailable, codes.PolicyInvalid, codes.LeaseLapsed, codes.JournalUnavailable:
		return extendedNotReady
	}
	return extendedOther
}
