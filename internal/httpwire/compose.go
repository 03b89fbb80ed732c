// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package httpwire

import "bawn/internal/codes"

// follows says what is known of a body from outside of the fields. HTTP/1.1
// knows nothing, HTTP/2 says with the head whether the message ends there.
type follows uint8

const (
	unsaid follows = iota
	noBody
	aBody // of unknown length, unless a Content-Length says it
)

func bodyFollows(open bool) follows {
	if open {
		return aBody
	}
	return noBody
}

var errNoBody = refuse(codes.FramingInvalid, "a Content-Length, and a message that ends with its head")

// Compose makes q of the parts of a head that came in another form than text,
// as in HTTP/2, and refuses what [Request.Read] refuses. It also refuses the
// malformed fields that Read leaves out, since no other form of HTTP may carry
// them. The target is in one of the forms of HTTP/1.1. open says that a body
// follows; without a Content-Length its framing is then [Chunked], and the
// fields do not say so before [Request.SetFraming] does. q takes the fields
// over.
func (q *Request) Compose(method, target string, fields Fields, open bool, lim Limits) error {
	*q = Request{Minor: 1}
	if !validName(method) || method == "PRI" {
		return refuse(codes.ProtocolError, "a method that is not one")
	}
	q.Method = method
	if err := q.target(target); err != nil {
		return err
	}
	p := headParser{request: true, limit: lim.orDefault().Fields, follows: bodyFollows(open)}
	if err := p.take(fields); err != nil {
		return err
	}
	q.Fields = p.fields
	return q.settle(&p)
}

// Compose is [Request.Compose] for a response to a request of the method
// given. Where no body follows and no length is said the framing is [None]:
// what ends a connection ends nothing else here.
func (p *Response) Compose(status int, fields Fields, method string, open bool, lim Limits) error {
	*p = Response{Status: status, Minor: 1}
	if status < 100 || status > 999 {
		return refuse(codes.ProtocolError, "a status that is not three digits")
	}
	h := headParser{limit: lim.orDefault().Fields, follows: bodyFollows(open)}
	if err := h.take(fields); err != nil {
		return err
	}
	p.Fields, p.Close = h.fields, h.close
	if h.upgrades {
		p.Upgrade = h.upgrade
	}
	return p.frame(&h, method)
}

// ComposeTrailers checks trailer fields that came in another form than text
// and leaves out those which have no place there, as [Body] does.
func ComposeTrailers(fields Fields, lim Limits) (Fields, error) {
	lim = lim.orDefault()
	out, octets := fields[:0], 0
	for i := range fields {
		f := fields[i]
		octets += len(f.Name) + len(f.Value) + len(": \r\n")
		switch {
		case i == lim.Fields || octets > lim.Extra:
			return nil, refuse(codes.HeadTooLarge, "trailers over the limit")
		case !validName(f.Name) || !validValue(f.Value):
			return nil, errField
		case kindOf(f.Name) == plain:
			out = append(out, f)
		}
	}
	return out, nil
}

var errField = refuse(codes.HeaderInvalid, "a field with an octet that its name or value may not hold")

// take is parse for fields that are fields already.
func (p *headParser) take(fields Fields) error {
	if len(fields) > p.limit {
		return refuse(codes.HeadTooLarge, "more fields than the limit")
	}
	for i := range fields {
		f := &fields[i]
		if !validName(f.Name) || !validValue(f.Value) {
			return errField
		}
		p.fields = fields[:i]
		if k := kindOf(f.Name); k != plain {
			if err := p.note(k, f, f.Value); err != nil {
				return err
			}
		}
	}
	p.fields = fields
	return nil
}

// Refuse makes the error for a message that is refused for reasons of another
// form of HTTP than the one that this package reads.
func Refuse(code codes.Code, detail string) *Error { return refuse(code, detail) }

// EqualFold reports whether two strings are equal but for the case of ASCII
// letters. Nothing else folds, unlike in the function of package strings.
func EqualFold(a, b string) bool { return equalFold(a, b) }

// OrDefault replaces the zero fields of l by their defaults.
func (l Limits) OrDefault() Limits { return l.orDefault() }
