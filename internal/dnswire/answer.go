// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package dnswire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"bawn/internal/names"
)

// The bounds of an answer. Real ones are far below; beyond, the answer is
// refused rather than cut, since an address that was not looked at could be the
// one that matters.
const (
	maxRecords   = 256
	maxAddresses = 64
	maxChain     = 16 // CNAME records from the name asked for to its addresses
)

// ErrOtherAnswer says that a message answers another question. Over UDP anybody
// can send one; the reader waits for the next.
var ErrOtherAnswer = errors.New("reading DNS answer: not an answer to this question")

// AppendQuery appends a question for the addresses of h, with recursion and
// EDNS, to b. t is [TypeA] or [TypeAAAA].
func AppendQuery(b []byte, id uint16, h names.Host, t Type) []byte {
	b = binary.BigEndian.AppendUint16(b, id)
	b = binary.BigEndian.AppendUint16(b, flagRecursion)
	b = append(b, 0, 1, 0, 0, 0, 0, 0, 1) // one question, one additional record
	for label := range strings.SplitSeq(h.String(), ".") {
		b = append(b, byte(len(label)))
		b = append(b, label...)
	}
	b = append(b, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(t))
	b = binary.BigEndian.AppendUint16(b, ClassIN)
	return appendOPT(b, Success, false, "")
}

// An Answer is what a resolver said about one question.
type Answer struct {
	RCode     RCode
	Truncated bool          // to be asked again over TCP; nothing else is set then
	Addrs     []netip.Addr  // in the order of the answer, none twice
	TTL       time.Duration // shortest on the way from the name to the addresses
}

// ParseAnswer reads the answer to the question that [AppendQuery] wrote with the
// same arguments. It returns [ErrOtherAnswer] where id, kind or question differ;
// names are compared without regard to case.
//
// Addresses count only if they belong to the name itself or to the end of the
// chain of CNAME records that begins with it. Records of other names are
// ignored, wherever they stand.
func ParseAnswer(msg []byte, id uint16, h names.Host, t Type) (Answer, error) {
	var p dnsmessage.Parser
	head, err := p.Start(msg)
	if err != nil || head.ID != id || !head.Response || head.OpCode != 0 {
		return Answer{}, ErrOtherAnswer
	}
	if !sameQuestion(&p, h, t) {
		return Answer{}, ErrOtherAnswer
	}
	answer := Answer{RCode: RCode(head.RCode), Truncated: head.Truncated}
	if answer.Truncated || answer.RCode != Success {
		return answer, nil
	}
	set, err := readRecords(&p, t)
	if err != nil {
		return Answer{}, fmt.Errorf("reading DNS answer: %w", err)
	}
	answer.Addrs, answer.TTL, err = set.follow(h.String() + ".")
	if err != nil {
		return Answer{}, fmt.Errorf("reading DNS answer: %w", err)
	}
	return answer, nil
}

// sameQuestion reports whether the question section holds the one question.
func sameQuestion(p *dnsmessage.Parser, h names.Host, t Type) bool {
	q, err := p.Question()
	if err != nil || lowerName(q.Name) != h.String()+"." || Type(q.Type) != t || q.Class != dnsmessage.ClassINET {
		return false
	}
	_, err = p.Question()
	return errors.Is(err, dnsmessage.ErrSectionDone)
}

// records holds the answer section by lower-case owner.
type records struct {
	alias map[string]timed[string]
	addrs map[string][]timed[netip.Addr]
}

type timed[T any] struct {
	value T
	ttl   time.Duration
}

// readRecords reads the answer section's CNAME records and addresses of type t.
func readRecords(p *dnsmessage.Parser, t Type) (records, error) {
	set := records{map[string]timed[string]{}, map[string][]timed[netip.Addr]{}}
	for n := 0; ; n++ {
		head, err := p.AnswerHeader()
		if errors.Is(err, dnsmessage.ErrSectionDone) {
			return set, nil
		}
		if err != nil {
			return records{}, err
		}
		if n == maxRecords {
			return records{}, fmt.Errorf("more than %d records", maxRecords)
		}
		if err := set.read(p, head, t); err != nil {
			return records{}, err
		}
	}
}

// read takes one record in, or steps over it.
func (set *records) read(p *dnsmessage.Parser, head dnsmessage.ResourceHeader, t Type) error {
	owner, ttl := lowerName(head.Name), seconds(head.TTL)
	kind := Type(head.Type)
	switch {
	case head.Class != dnsmessage.ClassINET:
	case kind == TypeCNAME:
		r, err := p.CNAMEResource()
		if err != nil {
			return err
		}
		target := lowerName(r.CNAME)
		if old, there := set.alias[owner]; there && old.value != target {
			return errors.New("one name with two CNAME records")
		}
		set.alias[owner] = timed[string]{target, ttl}
		return nil
	case kind == TypeA && t == TypeA:
		if head.Length != 4 {
			return fmt.Errorf("address record of %d bytes", head.Length)
		}
		r, err := p.AResource()
		set.addrs[owner] = append(set.addrs[owner], timed[netip.Addr]{netip.AddrFrom4(r.A), ttl})
		return err
	case kind == TypeAAAA && t == TypeAAAA:
		if head.Length != 16 {
			return fmt.Errorf("address record of %d bytes", head.Length)
		}
		r, err := p.AAAAResource()
		set.addrs[owner] = append(set.addrs[owner], timed[netip.Addr]{netip.AddrFrom16(r.AAAA), ttl})
		return err
	}
	return p.SkipAnswer()
}

// follow walks from name along its aliases to addresses. No addresses at the end
// is an answer too.
func (set *records) follow(name string) (addrs []netip.Addr, ttl time.Duration, err error) {
	ttl = seconds(1<<31 - 1)
	for range maxChain + 1 {
		found := set.addrs[name]
		next, aliased := set.alias[name]
		if aliased && len(found) > 0 {
			return nil, 0, errors.New("one name with a CNAME record and addresses") // RFC 1034 section 3.6.2
		}
		for _, a := range found {
			ttl = min(ttl, a.ttl)
			if !slices.Contains(addrs, a.value) {
				addrs = append(addrs, a.value)
			}
			if len(addrs) > maxAddresses {
				return nil, 0, fmt.Errorf("more than %d addresses", maxAddresses)
			}
		}
		if !aliased {
			return addrs, ttl, nil
		}
		name, ttl = next.value, min(ttl, next.ttl)
	}
	return nil, 0, fmt.Errorf("more than %d CNAME records in a row", maxChain)
}

// seconds reads a TTL. One with its top bit set counts as zero (RFC 2181
// section 8).
func seconds(ttl uint32) time.Duration {
	if ttl > 1<<31-1 {
		return 0
	}
	return time.Duration(ttl) * time.Second
}

// lowerName gives a name with its final dot, in lower case (ASCII only: other
// bytes have no case).
func lowerName(n dnsmessage.Name) string {
	b := slices.Clone(n.Data[:n.Length])
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + ('a' - 'A')
		}
	}
	return string(b)
}
