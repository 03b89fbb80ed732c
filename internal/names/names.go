// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package names is the one canonicaliser of host names.
//
// A [Host] exists only in canonical form, and only [Parse] makes one. Every
// stage that meets a name (CONNECT authority, SNI, Host header, DNS question,
// policy rule, dialled name) turns it into a Host first and compares Hosts with
// ==, so that two stages cannot read one name in two ways.
//
// The canonicaliser does two things and no third: it lower-cases ASCII, and it
// drops one final dot. Everything else that is not already canonical is
// refused, never repaired. In particular it maps no Unicode: an
// internationalised name arrives in its xn-- form or not at all, and an xn--
// label that stands for plain ASCII (a second spelling of another name) is
// refused.
//
// A name is not an address. What looks like an IPv4 address in any of the
// spellings that resolvers accept (dotted, octal, hexadecimal, one number) is
// refused as a name with [codes.IPLiteralDenied]; [ParseAuthority] hands out
// the canonical spellings of addresses as netip.Addr, so that the caller can
// judge them by address rules.
//
// Everything here is pure and safe for concurrent use.
package names

import (
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/net/idna"

	"bawn/internal/codes"
)

// The bounds of a name in its text form without the final dot (RFC 1035
// section 2.3.4: 255 bytes on the wire, two of which are the first length byte
// and the root label).
const (
	MaxHost  = 253 // bytes of a whole name
	MaxLabel = 63  // bytes of one label
)

// An Error says why a name was refused. Code is [codes.HostInvalid] or
// [codes.IPLiteralDenied]. Detail quotes at most 64 bytes of the input, escaped.
type Error struct {
	Code   codes.Code
	Detail string
}

// Error gives the detail, and the code in front of it.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Detail }

// invalid refuses s as a malformed name.
func invalid(s, why string) *Error {
	return &Error{codes.HostInvalid, fmt.Sprintf("host %s: %s", quote(s), why)}
}

// literal refuses s as an address where a name is wanted.
func literal(s string) *Error {
	return &Error{codes.IPLiteralDenied, fmt.Sprintf("host %s: an address, not a name", quote(s))}
}

// quote shows hostile bytes: escaped, and not more of them than a reader needs.
func quote(s string) string {
	const most = 64
	if len(s) > most {
		return fmt.Sprintf("%q...", s[:most])
	}
	return fmt.Sprintf("%q", s)
}

// A Host is a canonical host name: one or more labels of lower-case letters,
// digits and inner hyphens, joined by dots, with no final dot. Hosts compare
// with == and serve as map keys. The zero Host is no name.
type Host struct{ s string }

// String returns the canonical name, and "" for the zero Host.
func (h Host) String() string { return h.s }

// IsZero reports whether h is no name.
func (h Host) IsZero() bool { return h.s == "" }

// MarshalText gives the canonical name.
func (h Host) MarshalText() ([]byte, error) { return []byte(h.s), nil }

// UnmarshalText reads a name as [Parse] does; the empty text is the zero Host.
func (h *Host) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*h = Host{}
		return nil
	}
	parsed, err := Parse(string(text))
	if err != nil {
		return err
	}
	*h = parsed
	return nil
}

// Parse reads a host name. The error is always an [*Error].
//
// Names are letters, digits and hyphens (RFC 1123 section 2.1); the underscore
// of service labels has no place in the name of a host. The result shares
// memory with s where s is already canonical.
func Parse(s string) (Host, error) {
	if s == "" {
		return Host{}, invalid(s, "empty")
	}
	name := strings.TrimSuffix(s, ".")
	if name == "" {
		return Host{}, invalid(s, "the root is not a host")
	}
	if len(name) > MaxHost {
		return Host{}, invalid(s, fmt.Sprintf("longer than %d bytes", MaxHost))
	}
	name, err := lower(name)
	if err != nil {
		return Host{}, err
	}
	last := ""
	for label := range strings.SplitSeq(name, ".") {
		if why := checkLabel(label); why != "" {
			return Host{}, invalid(s, why)
		}
		last = label
	}
	if isNumber(last) {
		return Host{}, literal(s)
	}
	return Host{name}, nil
}

// MustParse is [Parse] for names written in the program; it panics on error.
func MustParse(s string) Host {
	h, err := Parse(s)
	if err != nil {
		panic(err)
	}
	return h
}

// lower lower-cases ASCII letters and refuses every byte that no name holds.
func lower(s string) (string, error) {
	upper := false
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '.':
		case 'A' <= c && c <= 'Z':
			upper = true
		case c == ':':
			// Only an IPv6 address has colons. Whether it is one decides the
			// code; a zone ("%eth0") makes it malformed, since a zone can hold
			// any bytes at all, a host suffix included.
			if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
				return "", literal(s)
			}
			return "", invalid(s, "holds a colon")
		default:
			return "", invalid(s, fmt.Sprintf("holds byte 0x%02x, which no host name has", c))
		}
	}
	if !upper {
		return s, nil
	}
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + ('a' - 'A')
		}
	}
	return string(b), nil
}

// checkLabel says what is wrong with one lower-case LDH label, or "".
func checkLabel(label string) string {
	switch {
	case label == "":
		return "has an empty label"
	case len(label) > MaxLabel:
		return fmt.Sprintf("has a label longer than %d bytes", MaxLabel)
	case label[0] == '-' || label[len(label)-1] == '-':
		return "has a label that begins or ends with a hyphen"
	case strings.HasPrefix(label, "xn--"):
		return checkPunycode(label)
	}
	return ""
}

// checkPunycode says what is wrong with an xn-- label, or "". It decodes only to
// look: an ASCII-only result would be a second spelling of another name
// ("xn--example-" is "example" to a reader that decodes), and a label that does
// not encode back to itself a second spelling of another label.
func checkPunycode(label string) string {
	decoded, err := idna.Punycode.ToUnicode(label)
	if err != nil || decoded == "" || decoded == label {
		return "has an xn-- label that is not punycode"
	}
	if isASCII(decoded) {
		return "has an xn-- label that stands for plain ASCII"
	}
	if again, err := idna.Punycode.ToASCII(decoded); err != nil || again != label {
		return "has an xn-- label in a spelling that is not canonical"
	}
	return ""
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// isNumber reports whether a lower-case last label makes the whole name an IPv4
// address to some reader: decimal or octal digits, or 0x and hex digits, 0x
// alone included (WHATWG URL, "ends in a number checker"; inet_aton(3)). No top
// level domain is such a label (RFC 3696 section 2).
func isNumber(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}
