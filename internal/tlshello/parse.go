// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package tlshello

import "fmt"

// The extensions that say where a ClientHello wants to go.
const (
	extServerName = 0  // RFC 6066 section 3
	extALPN       = 16 // RFC 7301 section 3.1
)

// isECH knows the extension types of encrypted client hello (RFC 9849), of its
// drafts, and of the encrypted server name that they replaced.
func isECH(ext int) bool {
	return 0xfe08 <= ext && ext <= 0xfe0d || 0xff02 <= ext && ext <= 0xff03 || ext == 0xffce
}

// parseHello reads the body of a ClientHello (RFC 8446 section 4.1.2).
func parseHello(body []byte) (Hello, error) {
	b := cursor{body}
	var h Hello
	version, ok := b.take(2)
	if !ok || version[0] != 3 {
		return Hello{}, &Error{"no version of TLS"}
	}
	if _, ok := b.take(32); !ok {
		return Hello{}, &Error{"random is cut short"}
	}
	if id, ok := b.vector8(); !ok || len(id) > 32 {
		return Hello{}, &Error{"session id is cut short or too long"}
	}
	if suites, ok := b.vector16(); !ok || len(suites) == 0 || len(suites)%2 != 0 {
		return Hello{}, &Error{"list of cipher suites is malformed"}
	}
	if compression, ok := b.vector8(); !ok || len(compression) == 0 {
		return Hello{}, &Error{"list of compression methods is malformed"}
	}
	if b.empty() { // before TLS 1.2 extensions could be absent
		return h, nil
	}
	exts, ok := b.vector16()
	if !ok || !b.empty() {
		return Hello{}, &Error{"extensions do not fill the ClientHello"}
	}
	if err := h.readExtensions(exts); err != nil {
		return Hello{}, err
	}
	return h, nil
}

// readExtensions reads the extensions that matter here and steps over the
// others. No type may appear twice (RFC 8446 section 4.2): of two server names
// one reader would take the first and another the last.
func (h *Hello) readExtensions(exts []byte) error {
	b := cursor{exts}
	seen := map[int]bool{}
	for !b.empty() {
		ext, ok := b.uint16()
		if !ok {
			return &Error{"extension is cut short"}
		}
		data, ok := b.vector16()
		if !ok {
			return &Error{fmt.Sprintf("extension %d is cut short", ext)}
		}
		if seen[ext] {
			return &Error{fmt.Sprintf("extension %d stands twice", ext)}
		}
		seen[ext] = true
		var err error
		switch {
		case ext == extServerName:
			err = h.readServerName(data)
		case ext == extALPN:
			err = h.readALPN(data)
		case isECH(ext):
			h.ECH = true
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readServerName reads a list of exactly one name of type host_name. RFC 6066
// allows a list so that other types could come; none did, and it forbids a final
// dot.
func (h *Hello) readServerName(data []byte) error {
	b := cursor{data}
	list, ok := b.vector16()
	if !ok || !b.empty() {
		return &Error{"server name list is malformed"}
	}
	b = cursor{list}
	kind, ok := b.take(1)
	if !ok || kind[0] != 0 {
		return &Error{"server name is not a host name"}
	}
	name, ok := b.vector16()
	switch {
	case !ok || len(name) == 0:
		return &Error{"server name is empty or cut short"}
	case !b.empty():
		return &Error{"more than one server name"}
	case name[len(name)-1] == '.':
		return &Error{"server name ends with a dot"}
	}
	h.ServerName, h.HasSNI = string(name), true
	return nil
}

// readALPN reads a list of at least one protocol name of at least one byte.
func (h *Hello) readALPN(data []byte) error {
	b := cursor{data}
	list, ok := b.vector16()
	if !ok || !b.empty() || len(list) == 0 {
		return &Error{"list of protocols is malformed"}
	}
	for b = (cursor{list}); !b.empty(); {
		proto, ok := b.vector8()
		if !ok || len(proto) == 0 {
			return &Error{"protocol name is empty or cut short"}
		}
		h.ALPN = append(h.ALPN, string(proto))
	}
	return nil
}

// A cursor reads the vectors of TLS's presentation language (RFC 8446 section
// 3.4) from the front of a slice. ok is false when too few bytes are left.
type cursor struct{ b []byte }

func (c *cursor) empty() bool { return len(c.b) == 0 }

func (c *cursor) take(n int) (b []byte, ok bool) {
	if len(c.b) < n {
		return nil, false
	}
	b, c.b = c.b[:n], c.b[n:]
	return b, true
}

func (c *cursor) uint16() (n int, ok bool) {
	b, ok := c.take(2)
	if !ok {
		return 0, false
	}
	return int(b[0])<<8 | int(b[1]), true
}

// vector8 reads a vector with a length of one byte.
func (c *cursor) vector8() (b []byte, ok bool) {
	n, ok := c.take(1)
	if !ok {
		return nil, false
	}
	return c.take(int(n[0]))
}

// vector16 reads a vector with a length of two bytes.
func (c *cursor) vector16() (b []byte, ok bool) {
	n, ok := c.uint16()
	if !ok {
		return nil, false
	}
	return c.take(n)
}
