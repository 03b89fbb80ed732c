// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package dnswire

import (
	"fmt"

	"bawn/internal/codes"
	"bawn/internal/names"
)

// A Query is one question of an agent. It shares memory with the message that it
// was read from.
type Query struct {
	ID      uint16
	Name    string     // as the agent wrote it, escaped; hostile text
	Host    names.Host // canonical form of Name; zero when Name is no host name
	HostErr error      // why Name is no host name: a *names.Error
	Type    Type
	Class   uint16
	EDNS    bool // whether the query has an OPT record, so that the answer may have one

	recursion, noChecking bool
	dnssecOK              bool   // the OPT record's DO bit
	question              []byte // the question section as it came: its case is given back
}

// ClassIN is the class of the internet.
const ClassIN = 1

// A QueryError says why a query was not understood. Reply is what to send back:
// nil when even that would be wrong, because the message is no query or too
// short to be told whose it is.
type QueryError struct {
	RCode  RCode
	Detail string
	Reply  []byte
}

// Error gives the response code and the detail.
func (e *QueryError) Error() string {
	return "reading DNS query: " + e.RCode.String() + ": " + e.Detail
}

// ParseQuery reads a query. The error is always a [*QueryError].
//
// A query has one question, written without compression, nothing in the answer
// and authority sections, at most one additional record, which is an OPT record
// of the root in version 0, and no byte behind it. Options of EDNS are checked
// for their lengths and ignored.
func ParseQuery(msg []byte) (Query, error) {
	if len(msg) < headerSize || uint16At(msg, 2)&flagResponse != 0 {
		return Query{}, &QueryError{RCode: FormErr, Detail: "no DNS query"}
	}
	flags := uint16At(msg, 2)
	q := Query{ID: uint16At(msg, 0), recursion: flags&flagRecursion != 0, noChecking: flags&flagNoChecking != 0}
	if op := flags >> opcodeShift & opcodeMask; op != 0 {
		return Query{}, q.fail(NotImp, fmt.Sprintf("operation %d", op))
	}
	if flags&flagTruncated != 0 || flags&rcodeMask != 0 {
		return Query{}, q.fail(FormErr, "flags of an answer")
	}
	questions, answers, authorities, additionals := uint16At(msg, 4), uint16At(msg, 6), uint16At(msg, 8), uint16At(msg, 10)
	if questions != 1 || answers != 0 || authorities != 0 || additionals > 1 {
		return Query{}, q.fail(FormErr, fmt.Sprintf("sections of %d, %d, %d and %d records", questions, answers, authorities, additionals))
	}
	rest, ok := q.readQuestion(msg[headerSize:])
	if !ok {
		return Query{}, q.fail(FormErr, "malformed question")
	}
	if additionals == 1 {
		version, flags, after, ok := readOPT(rest)
		if !ok {
			return Query{}, q.fail(FormErr, "additional record is no sound OPT record")
		}
		q.EDNS, q.dnssecOK, rest = true, flags&flagDNSSECOK != 0, after
		if version != 0 {
			return Query{}, q.fail(BadVers, fmt.Sprintf("EDNS version %d", version))
		}
	}
	if len(rest) != 0 {
		return Query{}, q.fail(FormErr, "bytes behind the query")
	}
	return q, nil
}

// readQuestion reads name, type and class and returns what follows.
func (q *Query) readQuestion(b []byte) (rest []byte, ok bool) {
	labels, rest, ok := readLabels(b)
	if !ok || len(rest) < 4 {
		return nil, false
	}
	q.Name = presentation(labels)
	q.Host, q.HostErr = names.Parse(q.Name)
	q.Type, q.Class = Type(uint16At(rest, 0)), uint16At(rest, 2)
	q.question = b[:len(b)-len(rest)+4]
	return rest[4:], true
}

// readLabels reads an uncompressed name. A length byte with one of its two
// upper bits set is a pointer or of an unknown kind: no question needs one.
func readLabels(b []byte) (labels [][]byte, rest []byte, ok bool) {
	size := 1
	for {
		if len(b) == 0 {
			return nil, nil, false
		}
		n := int(b[0])
		if n == 0 {
			return labels, b[1:], true
		}
		size += 1 + n
		if n > maxLabel || size > maxName || len(b) < 1+n {
			return nil, nil, false
		}
		labels = append(labels, b[1:1+n])
		b = b[1+n:]
	}
}

// readOPT reads an OPT record (RFC 6891 section 6.1.2) and returns its version,
// its flags and what follows it.
func readOPT(b []byte) (version byte, flags uint16, rest []byte, ok bool) {
	const fixed = 1 + 2 + 2 + 4 + 2 // root, type, class, TTL, length
	if len(b) < fixed || b[0] != 0 || Type(uint16At(b, 1)) != TypeOPT {
		return 0, 0, nil, false
	}
	version, flags = b[6], uint16At(b, 7)
	n := int(uint16At(b, 9))
	if len(b) < fixed+n {
		return 0, 0, nil, false
	}
	options, rest := b[fixed:fixed+n], b[fixed+n:]
	for len(options) > 0 {
		if len(options) < 4 {
			return 0, 0, nil, false
		}
		n := 4 + int(uint16At(options, 2))
		if len(options) < n {
			return 0, 0, nil, false
		}
		options = options[n:]
	}
	return version, flags, rest, true
}

// fail builds the error of a query that was read as far as q knows.
func (q *Query) fail(rcode RCode, detail string) *QueryError {
	return &QueryError{RCode: rcode, Detail: detail, Reply: q.reply(rcode, record{}, codes.DNSMalformed)}
}
