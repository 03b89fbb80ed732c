// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package wswire

import (
	"strconv"
	"strings"
)

// An Extension is one entry of a Sec-WebSocket-Extensions field.
type Extension struct {
	Name   string
	Params []Param
}

// A Param is a parameter of an extension. Quotes around a value are gone.
type Param struct {
	Name, Value string
	Valued      bool // a value was written, be it an empty one
}

// ParseExtensions reads the values of all Sec-WebSocket-Extensions fields of a
// head as one list (RFC 6455 section 9.1). It reports false if they are
// malformed.
func ParseExtensions(values []string) ([]Extension, bool) {
	var list []Extension
	for _, v := range values {
		s := scanner{v}
		for {
			e, ok := s.extension()
			if !ok {
				return nil, false
			}
			list = append(list, e)
			if s.rest == "" {
				break
			}
			if !s.skip(',') {
				return nil, false
			}
		}
	}
	return list, true
}

// A scanner takes a field value apart.
type scanner struct{ rest string }

func (s *scanner) blanks() { s.rest = strings.TrimLeft(s.rest, " \t") }

// skip takes the octet c, and blanks around it.
func (s *scanner) skip(c byte) bool {
	s.blanks()
	if s.rest == "" || s.rest[0] != c {
		return false
	}
	s.rest = s.rest[1:]
	s.blanks()
	return true
}

func (s *scanner) token() (string, bool) {
	n := 0
	for n < len(s.rest) && isToken(s.rest[n]) {
		n++
	}
	t := s.rest[:n]
	s.rest = s.rest[n:]
	return t, n > 0
}

// isToken reports whether a token may hold c (RFC 9110 section 5.6.2).
func isToken(c byte) bool {
	return c > ' ' && c < 0x7f && !strings.ContainsRune(`"(),/:;<=>?@[\]{}`, rune(c))
}

// quoted reads a quoted string, what is in it being a token.
func (s *scanner) quoted() (string, bool) {
	var b strings.Builder
	for i := 1; i < len(s.rest); i++ {
		c := s.rest[i]
		switch {
		case c == '"':
			s.rest = s.rest[i+1:]
			return b.String(), b.Len() > 0
		case c == '\\' && i+1 < len(s.rest):
			i++
			c = s.rest[i]
		}
		if !isToken(c) {
			return "", false
		}
		b.WriteByte(c)
	}
	return "", false
}

func (s *scanner) extension() (e Extension, ok bool) {
	s.blanks()
	if e.Name, ok = s.token(); !ok {
		return e, false
	}
	s.blanks()
	for s.skip(';') {
		p, ok := s.param()
		if !ok {
			return e, false
		}
		e.Params = append(e.Params, p)
		s.blanks()
	}
	return e, true
}

func (s *scanner) param() (p Param, ok bool) {
	if p.Name, ok = s.token(); !ok {
		return p, false
	}
	if !s.skip('=') {
		return p, true
	}
	p.Valued = true
	if s.rest != "" && s.rest[0] == '"' {
		p.Value, ok = s.quoted()
	} else {
		p.Value, ok = s.token()
	}
	return p, ok
}

// Params is what two ends agreed on about compression. Neither end keeps a
// context from message to message, whatever they agreed on: for what is sent
// that is always allowed, and the other end was told.
type Params struct {
	Deflate bool
	// The window, as a power of two from 8 to 15, that what an end compresses
	// has to be readable with; 0 is 15.
	ServerBits, ClientBits int
}

func (p Params) window(as Role) int {
	bits := p.ServerBits
	if as == Client {
		bits = p.ClientBits
	}
	if bits == 0 {
		return 15
	}
	return bits
}

// The extension and its parameters (RFC 7692 section 7.1).
const (
	deflateName = "permessage-deflate"
	serverAlone = "server_no_context_takeover"
	clientAlone = "client_no_context_takeover"
	serverBits  = "server_max_window_bits"
	clientBits  = "client_max_window_bits"
)

// Offer is the one offer that is made to servers: compression in which no
// message needs the one before.
const Offer = deflateName + "; " + serverAlone + "; " + clientAlone

// Answer chooses among a client's offers the first that can be met, and returns
// what to answer with; an empty answer for none.
func Answer(offers []Extension) (Params, string) {
	for _, e := range offers {
		if !strings.EqualFold(e.Name, deflateName) {
			continue
		}
		p, ok := deflateParams(e.Params, true)
		if !ok {
			continue
		}
		answer := Offer
		if p.ServerBits != 0 {
			answer += "; " + serverBits + "=" + strconv.Itoa(p.ServerBits)
		}
		// The client may say how large a window it would use at most; what it
		// sends is read with the largest one all the same.
		p.ClientBits = 0
		return p, answer
	}
	return Params{}, ""
}

// Agreed reads a server's answer to [Offer], or to no offer at all. It reports
// false for an answer that the server was not free to give.
func Agreed(answer []Extension, offered bool) (Params, bool) {
	switch {
	case len(answer) == 0:
		return Params{}, true
	case len(answer) > 1 || !offered || !strings.EqualFold(answer[0].Name, deflateName):
		return Params{}, false
	}
	p, ok := deflateParams(answer[0].Params, false)
	if !ok || p.ClientBits != 0 || !has(answer[0].Params, serverAlone) {
		return Params{}, false
	}
	p.ServerBits = 0 // what it sends is read with the largest window
	return p, true
}

func has(params []Param, name string) bool {
	for _, p := range params {
		if strings.EqualFold(p.Name, name) {
			return true
		}
	}
	return false
}

// deflateParams reads the parameters of permessage-deflate. An offer may leave
// the value of client_max_window_bits open.
func deflateParams(params []Param, offer bool) (Params, bool) {
	out := Params{Deflate: true}
	seen := map[string]bool{}
	for _, p := range params {
		name := strings.ToLower(p.Name)
		if seen[name] {
			return Params{}, false
		}
		seen[name] = true
		ok := false
		switch name {
		case serverAlone, clientAlone:
			ok = !p.Valued
		case serverBits:
			out.ServerBits, ok = bits(p)
		case clientBits:
			if out.ClientBits, ok = bits(p); !p.Valued && offer {
				out.ClientBits, ok = 15, true
			}
		}
		if !ok {
			return Params{}, false
		}
	}
	return out, true
}

// bits reads a window size: 8 to 15 without leading zeros.
func bits(p Param) (int, bool) {
	n, err := strconv.Atoi(p.Value)
	return n, err == nil && p.Valued && n >= 8 && n <= 15 && strconv.Itoa(n) == p.Value
}
