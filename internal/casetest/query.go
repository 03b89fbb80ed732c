// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package casetest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// A Query is one line of a query section.
type Query struct {
	Line    string
	Message []byte // what goes to the resolver
}

// dnsTypes are the types of records that a query line may call by their names;
// every other one is TYPEn.
var dnsTypes = map[string]uint16{
	"A": 1, "NS": 2, "CNAME": 5, "SOA": 6, "NULL": 10, "PTR": 12, "HINFO": 13, "MX": 15, "TXT": 16, "AAAA": 28,
	"SRV": 33, "NAPTR": 35, "DNAME": 39, "OPT": 41, "DS": 43, "SSHFP": 44, "RRSIG": 46, "NSEC": 47, "DNSKEY": 48,
	"TLSA": 52, "SVCB": 64, "HTTPS": 65, "SPF": 99, "IXFR": 251, "AXFR": 252, "ANY": 255, "URI": 256, "CAA": 257,
}

// dnsClasses are the classes; every other one is CLASSn.
var dnsClasses = map[string]uint16{"IN": 1, "CH": 3, "HS": 4, "NONE": 254, "ANY": 255}

// parseQuery reads NAME TYPE [CLASS]. The message is what a stub sends, with an
// EDNS record, so that the answer can say why it refuses; id tells it apart.
func parseQuery(line string, id int) (Query, error) {
	words := strings.Fields(line)
	if len(words) != 2 && len(words) != 3 {
		return Query{}, fmt.Errorf("line %.40q is not NAME TYPE [CLASS]", line)
	}
	name, err := wireName(words[0])
	if err != nil {
		return Query{}, fmt.Errorf("line %.40q: %w", line, err)
	}
	kind, ok := number(words[1], dnsTypes, "TYPE")
	if !ok {
		return Query{}, fmt.Errorf("line %.40q: %q is no type of record", line, words[1])
	}
	class := uint16(1)
	if len(words) == 3 {
		if class, ok = number(words[2], dnsClasses, "CLASS"); !ok {
			return Query{}, fmt.Errorf("line %.40q: %q is no class", line, words[2])
		}
	}
	m := binary.BigEndian.AppendUint16(nil, uint16(id))
	m = append(m, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1) // recursion desired; one question, one additional record
	m = append(m, name...)
	m = binary.BigEndian.AppendUint16(m, kind)
	m = binary.BigEndian.AppendUint16(m, class)
	m = append(m, 0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0) // OPT: 1232 octets, version 0
	return Query{Line: strings.Join(words, " "), Message: m}, nil
}

// number finds a word in a table, or reads the form that RFC 3597 gives to
// numbers without a name.
func number(word string, table map[string]uint16, prefix string) (uint16, bool) {
	word = strings.ToUpper(word)
	if n, ok := table[word]; ok {
		return n, true
	}
	digits, ok := strings.CutPrefix(word, prefix)
	n, err := strconv.ParseUint(digits, 10, 16)
	return uint16(n), ok && err == nil
}

// wireName writes a name as labels with their lengths. \DDD is an octet, a
// backslash before anything else is that character. Labels and names that are
// too long for DNS are written all the same: that is the resolver's to refuse.
func wireName(text string) ([]byte, error) {
	if text == "." {
		return []byte{0}, nil
	}
	var out, label []byte
	end := func() error {
		if len(label) == 0 || len(label) > 255 {
			return errors.New("a label has 1 to 255 octets")
		}
		out, label = append(append(out, byte(len(label))), label...), nil
		return nil
	}
	for len(text) > 0 {
		c := text[0]
		text = text[1:]
		switch {
		case c == '.' && text == "":
		case c == '.':
			if err := end(); err != nil {
				return nil, err
			}
		case c == '\\':
			octet, rest, err := unescape(text)
			if err != nil {
				return nil, err
			}
			label, text = append(label, octet), rest
		default:
			label = append(label, c)
		}
	}
	if err := end(); err != nil {
		return nil, err
	}
	return append(out, 0), nil
}

// unescape reads what follows a backslash.
func unescape(text string) (octet byte, rest string, err error) {
	if text == "" {
		return 0, "", errors.New("nothing behind a backslash")
	}
	if text[0] < '0' || text[0] > '9' {
		return text[0], text[1:], nil
	}
	if len(text) < 3 {
		return 0, "", errors.New("an octet is a backslash and three digits")
	}
	n, err := strconv.ParseUint(text[:3], 10, 8)
	return byte(n), text[3:], err
}
