// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package wswire

import (
	"encoding/binary"
	"unicode/utf8"
)

// A Role is one end of a WebSocket. A client masks what it sends, a server does
// not (RFC 6455 section 5.1).
type Role uint8

// The roles. The zero value is none.
const (
	Client Role = iota + 1
	Server
)

// An Opcode says what a frame is (RFC 6455 section 5.2).
type Opcode uint8

// The opcodes. All others are reserved.
const (
	Continuation Opcode = 0
	Text         Opcode = 1
	Binary       Opcode = 2
	Close        Opcode = 8
	Ping         Opcode = 9
	Pong         Opcode = 10
)

// Control reports whether frames of op stand for themselves and may come
// between the frames of a message.
func (op Opcode) Control() bool { return op&8 != 0 }

func (op Opcode) reserved() bool { return op > Pong || op > Binary && op < Close }

// MaxControl is the most octets that a control frame may hold.
const MaxControl = 125

// A Status is the reason in a close frame (RFC 6455 section 7.4).
type Status uint16

// Statuses that are sent or mean something here. StatusNone and StatusAbnormal
// never stand in a frame.
const (
	StatusNormal        Status = 1000
	StatusGoingAway     Status = 1001
	StatusProtocolError Status = 1002
	StatusNone          Status = 1005
	StatusAbnormal      Status = 1006
	StatusInvalid       Status = 1007
	StatusPolicy        Status = 1008
	StatusTooBig        Status = 1009
	StatusInternal      Status = 1011
)

// Sendable reports whether s may stand in a close frame: it is registered for
// that (RFC 6455 section 7.4.1, and IANA's registry since), or from the ranges
// for libraries and applications.
func (s Status) Sendable() bool {
	switch {
	case s >= 3000:
		return s <= 4999
	case s >= 1000 && s <= 1003, s >= 1007 && s <= 1014:
		return true
	}
	return false
}

// A Header is the head of one frame. Key counts only where Masked is set.
type Header struct {
	Fin    bool
	Rsv    uint8 // RSV1, RSV2 and RSV3, as 4, 2 and 1
	Op     Opcode
	Masked bool
	Length int64
	Key    [4]byte
}

// rsv1 marks a compressed message (RFC 7692 section 6).
const rsv1 = 4

// headerSize returns how long a head is, by its first two octets.
func headerSize(second byte) int {
	n := 2
	switch second & 0x7f {
	case 126:
		n += 2
	case 127:
		n += 8
	}
	if second&0x80 != 0 {
		n += 4
	}
	return n
}

// parseHeader reads a head of exactly headerSize octets.
func parseHeader(b []byte) (h Header, err *Error) {
	h = Header{
		Fin: b[0]&0x80 != 0, Rsv: b[0] >> 4 & 7, Op: Opcode(b[0] & 0xf),
		Masked: b[1]&0x80 != 0, Length: int64(b[1] & 0x7f),
	}
	rest := b[2:]
	switch h.Length {
	case 126:
		h.Length = int64(binary.BigEndian.Uint16(rest))
		if h.Length < 126 {
			return h, violation("a length that is not in its shortest form")
		}
		rest = rest[2:]
	case 127:
		length := binary.BigEndian.Uint64(rest)
		if length>>63 != 0 {
			return h, violation("a length with its first bit set")
		}
		if length <= 0xffff {
			return h, violation("a length that is not in its shortest form")
		}
		h.Length = int64(length)
		rest = rest[8:]
	}
	if h.Masked {
		h.Key = [4]byte(rest)
	}
	return h, nil
}

// AppendHeader appends the head of a frame, its length in the shortest form. It
// writes what it is told, be it allowed or not.
func AppendHeader(dst []byte, h Header) []byte {
	first, mask := byte(h.Op)&0xf|h.Rsv&7<<4, byte(0)
	if h.Fin {
		first |= 0x80
	}
	if h.Masked {
		mask = 0x80
	}
	switch {
	case h.Length <= 125:
		dst = append(dst, first, mask|byte(h.Length))
	case h.Length <= 0xffff:
		dst = append(dst, first, mask|126)
		dst = binary.BigEndian.AppendUint16(dst, uint16(h.Length))
	default:
		dst = append(dst, first, mask|127)
		dst = binary.BigEndian.AppendUint64(dst, uint64(h.Length))
	}
	if h.Masked {
		dst = append(dst, h.Key[:]...)
	}
	return dst
}

// AppendFrame appends a whole frame. Length is taken from the payload, which is
// masked on its way if h says so and not changed itself.
func AppendFrame(dst []byte, h Header, payload []byte) []byte {
	h.Length = int64(len(payload))
	dst = AppendHeader(dst, h)
	at := len(dst)
	dst = append(dst, payload...)
	if h.Masked {
		mask(dst[at:], h.Key, 0)
	}
	return dst
}

// AppendClose appends the payload of a close frame; nothing for [StatusNone].
// The reason is cut, between characters, where a frame has no room for it.
func AppendClose(dst []byte, s Status, reason string) []byte {
	if s == StatusNone {
		return dst
	}
	if most := MaxControl - 2; len(reason) > most {
		for most > 0 && !utf8.RuneStart(reason[most]) {
			most--
		}
		reason = reason[:most]
	}
	dst = binary.BigEndian.AppendUint16(dst, uint16(s))
	return append(dst, reason...)
}

// parseClose reads the payload of a close frame (RFC 6455 section 5.5.1).
func parseClose(b []byte) (*Closed, *Error) {
	if len(b) == 0 {
		return &Closed{Status: StatusNone}, nil
	}
	if len(b) == 1 {
		return nil, violation("a close frame of one octet")
	}
	c := &Closed{Status: Status(binary.BigEndian.Uint16(b)), Reason: string(b[2:])}
	if !c.Status.Sendable() {
		return nil, violation("a close frame with a status that may not be sent")
	}
	if !utf8.ValidString(c.Reason) {
		return nil, invalid("a close reason that is not UTF-8")
	}
	return c, nil
}

// mask applies the masking key to b, whose first octet is number at of the
// payload (RFC 6455 section 5.3). Done twice it undoes itself.
func mask(b []byte, key [4]byte, at int64) {
	var turned [8]byte
	for i := range turned {
		turned[i] = key[(at+int64(i))&3]
	}
	word := binary.LittleEndian.Uint64(turned[:])
	for len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, binary.LittleEndian.Uint64(b)^word)
		b = b[8:]
	}
	for i := range b {
		b[i] ^= turned[i]
	}
}
