// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package httpwire

import (
	"bufio"
	"strconv"

	"bawn/internal/codes"
)

// A Response is the parsed head of a response.
type Response struct {
	Status  int
	Reason  string
	Minor   int // of the version HTTP/1.Minor
	Fields  Fields
	Framing Framing
	Close   bool   // the connection cannot carry another request
	Upgrade string // value of the Upgrade field where Connection names it
	Dropped int    // malformed fields that were left out, see the package comment
}

// ReadResponse reads the head of a response to a request of the method given.
// It is for callers that do not read many; see [Response.Read].
func ReadResponse(r *bufio.Reader, method string, lim Limits) (*Response, error) {
	p := new(Response)
	if err := p.Read(r, method, lim); err != nil {
		return nil, err
	}
	return p, nil
}

// Read reads the head of a response into p and leaves r at its body. The
// errors are those of [Request.Read].
func (p *Response) Read(r *bufio.Reader, method string, lim Limits) error {
	lim = lim.orDefault()
	head, err := readHead(r, lim.Head)
	if err != nil {
		return err
	}
	*p = Response{Fields: p.Fields[:0]}
	line, rest := cutLine(head)
	if err := p.startLine(line); err != nil {
		return err
	}
	h := headParser{fields: p.Fields, limit: lim.Fields}
	if err := h.parse(rest); err != nil {
		return err
	}
	p.Fields, p.Dropped = h.fields, h.dropped
	if h.upgrades {
		p.Upgrade = h.upgrade
	}
	p.Close = h.close || p.Minor == 0
	return p.frame(&h, method)
}

// startLine reads the status line (RFC 9112 section 4). The space after the
// status may be missing when there is no reason, as many servers have it.
func (p *Response) startLine(line string) error {
	switch {
	case len(line) < 12 || line[:7] != "HTTP/1." || line[8] != ' ':
		return refuse(codes.ProtocolError, "the status line does not begin with a version of HTTP/1")
	case line[7] == '0':
	case line[7] >= '1' && line[7] <= '9':
		p.Minor = 1
	default:
		return refuse(codes.ProtocolError, "the status line does not begin with a version of HTTP/1")
	}
	for i := 9; i < 12; i++ {
		if line[i] < '0' || line[i] > '9' {
			return refuse(codes.ProtocolError, "a status that is not three digits")
		}
		p.Status = p.Status*10 + int(line[i]-'0')
	}
	if p.Status < 100 {
		return refuse(codes.ProtocolError, "a status below 100")
	}
	if len(line) == 12 {
		return nil
	}
	if line[12] != ' ' {
		return refuse(codes.ProtocolError, "a status that is not three digits")
	}
	p.Reason = line[13:]
	for i := range len(p.Reason) {
		if octets[p.Reason[i]]&isValue == 0 {
			return refuse(codes.ProtocolError, "an octet that no reason phrase may hold")
		}
	}
	return nil
}

// frame applies RFC 9112 section 6.3.
func (p *Response) frame(h *headParser, method string) error {
	f, err := h.framing(p.Minor)
	if err != nil {
		return err
	}
	switch {
	case p.Status < 200 || p.Status == 204:
		// No framing field belongs here. Where one is, what follows may be
		// a body all the same, so nothing more is read as a response.
		p.Close = p.Close || f.HasBody()
		p.SetFraming(Framing{})
	case method == "HEAD" || p.Status == 304:
		// The fields speak of the body that another request would get.
		p.Framing = Framing{}
	case h.follows == noBody && f.HasBody():
		return errNoBody
	case f.Kind == None && h.follows == unsaid:
		p.Framing = Framing{Kind: UntilClose}
		p.Close = true
	default:
		p.Framing = f
	}
	return nil
}

// Informational reports whether another response to the same request follows.
func (p *Response) Informational() bool { return p.Status < 200 && p.Status != 101 }

// SetFraming changes the framing and the fields that say so.
func (p *Response) SetFraming(f Framing) {
	p.Framing = f
	p.Fields = setFraming(p.Fields, f)
}

// AppendResponse appends the head of p to dst: HTTP/1.1, status and reason,
// the fields in their order.
func AppendResponse(dst []byte, p *Response) []byte {
	dst = append(dst, "HTTP/1.1 "...)
	dst = strconv.AppendInt(dst, int64(p.Status), 10)
	dst = append(dst, ' ')
	dst = append(dst, p.Reason...)
	dst = append(dst, "\r\n"...)
	dst = appendFields(dst, p.Fields)
	return append(dst, "\r\n"...)
}
