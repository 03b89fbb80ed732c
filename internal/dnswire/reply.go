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
	extendedProhibited   = 18
	extendedNotSupported = 21

	optionExtendedError = 15
)

// Address answers with one IPv4 address for the name of q, valid for ttl (whole
// seconds). A name that was asked for in mixed case comes back as it was.
func (q *Query) Address(a netip.Addr, ttl time.Duration) []byte {
	v4 := a.As4()
	var rec []byte
	rec = binary.BigEndian.AppendUint16(rec, 0xc000|headerSize) // the name in the question
	rec = binary.BigEndian.AppendUint16(rec, uint16(TypeA))
	rec = binary.BigEndian.AppendUint16(rec, ClassIN)
	rec = binary.BigEndian.AppendUint32(rec, uint32(ttl/time.Second))
	rec = binary.BigEndian.AppendUint16(rec, uint16(len(v4)))
	return q.reply(Success, append(rec, v4[:]...), "")
}

// NoData answers that the name exists and has nothing of the type asked for.
func (q *Query) NoData() []byte { return q.reply(Success, nil, "") }

// Refuse answers REFUSED. If q speaks EDNS, the answer holds an extended error
// (RFC 8914) with the code as its text.
func (q *Query) Refuse(code codes.Code) []byte { return q.reply(Refused, nil, code) }

// Fail answers SERVFAIL, for a fault of ours, in the form of [Query.Refuse].
func (q *Query) Fail(code codes.Code) []byte { return q.reply(ServFail, nil, code) }

// reply writes an answer: header, the question byte by byte as it came (RFC 4343
// section 3: its case is kept, some stubs mix it and check), at most one record,
// and an OPT record where the query had one (RFC 6891 section 6.1.1). No answer
// is longer than 512 bytes, so none is ever cut: a name has 255 at most, the
// rest is small.
//
// The flag for recursion is always set: stubs take an answer without it and
// without records for a lame one.
func (q *Query) reply(rcode RCode, answer []byte, code codes.Code) []byte {
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
	b = binary.BigEndian.AppendUint16(b, count(len(answer) > 0))
	b = binary.BigEndian.AppendUint16(b, 0)
	b = binary.BigEndian.AppendUint16(b, count(q.EDNS))
	b = append(b, q.question...)
	b = append(b, answer...)
	if q.EDNS {
		b = appendOPT(b, rcode, code)
	}
	return b
}

func count(there bool) uint16 {
	if there {
		return 1
	}
	return 0
}

// appendOPT writes an OPT record of version 0 with the upper bits of rcode and,
// if there is a code, an extended error.
func appendOPT(b []byte, rcode RCode, code codes.Code) []byte {
	b = append(b, 0) // the root
	b = binary.BigEndian.AppendUint16(b, uint16(TypeOPT))
	b = binary.BigEndian.AppendUint16(b, UDPSize)
	b = append(b, byte(rcode>>4), 0, 0, 0) // upper bits, version, flags
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
	case codes.DNSNameNotAllowed:
		return extendedProhibited
	case codes.DNSTypeDenied:
		return extendedNotSupported
	}
	return extendedOther
}
