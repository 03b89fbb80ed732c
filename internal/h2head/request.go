// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package h2head

import (
	"strings"

	"golang.org/x/net/http2/hpack"

	"bawn/internal/codes"
	"bawn/internal/httpwire"
)

// pseudo are the pseudo-fields of a request (RFC 9113 section 8.3.1).
type pseudo struct {
	method, scheme, authority, path string
	hasAuthority                    bool
	seen                            uint8
}

const (
	seenMethod = 1 << iota
	seenScheme
	seenAuthority
	seenPath
	seenAll = seenMethod | seenScheme | seenPath
)

// Request maps the header list of a request to its head. end says that the
// message ends with the list. The head is in origin-form with the Host field
// first, made of :authority or of the host field that stands for it; the other
// fields follow under their names, the cookies as one field (section 8.2.3).
// Errors are [*httpwire.Error].
func Request(list []hpack.HeaderField, end bool, lim httpwire.Limits) (httpwire.Request, error) {
	var q httpwire.Request
	if err := bounds(list, lim); err != nil {
		return q, err
	}
	var p pseudo
	n, err := p.read(list)
	if err != nil {
		return q, err
	}
	if err := p.check(); err != nil {
		return q, err
	}
	fields, refused := p.fields(list[n:])
	if refused != nil {
		fields = httpwire.Fields{{Name: "Host", Value: p.authority}}
	}
	err = q.Compose(p.method, p.path, fields, !end, lim)
	q.Scheme, q.Authority = p.scheme, p.authority
	if refused != nil {
		return q, refused
	}
	return q, err
}

// bounds applies the limits to the list as HTTP/2 counts it, which is never
// less than the same head takes as text, with Host, framing and Connection.
func bounds(list []hpack.HeaderField, lim httpwire.Limits) error {
	lim = lim.OrDefault()
	if len(list) > lim.Fields {
		return httpwire.Refuse(codes.HeadTooLarge, "more fields than the limit")
	}
	size := 0
	for i := range list {
		size += int(list[i].Size())
	}
	if size > lim.Head {
		return httpwire.Refuse(codes.HeadTooLarge, "a header list over the limit")
	}
	return nil
}

// read takes the pseudo-fields off the start of the list.
func (p *pseudo) read(list []hpack.HeaderField) (n int, err error) {
	for i := range list {
		f := &list[i]
		if !f.IsPseudo() {
			return i, nil
		}
		var (
			to  *string
			bit uint8
		)
		switch f.Name {
		case ":method":
			to, bit = &p.method, seenMethod
		case ":scheme":
			to, bit = &p.scheme, seenScheme
		case ":authority":
			to, bit = &p.authority, seenAuthority
		case ":path":
			to, bit = &p.path, seenPath
		case ":protocol":
			return 0, httpwire.Refuse(codes.ProtocolError, "an extended CONNECT, which was not offered")
		default:
			return 0, httpwire.Refuse(codes.ProtocolError, "a pseudo-field that requests do not have")
		}
		if p.seen&bit != 0 {
			return 0, httpwire.Refuse(codes.ProtocolError, "a pseudo-field twice")
		}
		*to, p.seen = f.Value, p.seen|bit
	}
	return len(list), nil
}

// check judges the pseudo-fields together.
func (p *pseudo) check() error {
	switch {
	case p.method == "CONNECT":
		return httpwire.Refuse(codes.MethodNotAllowed, "CONNECT inside a connection to one host")
	case p.seen&seenAll != seenAll:
		return httpwire.Refuse(codes.ProtocolError, "a request without :method, :scheme or :path")
	case httpwire.EqualFold(p.scheme, "https"):
		p.scheme = "https"
	case httpwire.EqualFold(p.scheme, "http"):
		p.scheme = "http"
	default:
		return httpwire.Refuse(codes.TargetInvalid, "a scheme other than http and https")
	}
	if p.path == "" || p.path[0] != '/' {
		return httpwire.Refuse(codes.TargetInvalid, "a :path that is not a path")
	}
	p.hasAuthority = p.seen&seenAuthority != 0
	if p.hasAuthority && !isAuthority(p.authority) {
		return httpwire.Refuse(codes.TargetInvalid, "an :authority that is not a host and a port")
	}
	return nil
}

// isAuthority reports whether s may be a host with a port. User names are none
// (section 8.3.1), nor is anything that would end an authority in a URI. Which
// host it is, if any, is for others to judge.
func isAuthority(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f || strings.IndexByte(`@/\?#,`, s[i]) >= 0 {
			return false
		}
	}
	return s != ""
}

// fields makes the fields of the head of those of the list.
func (p *pseudo) fields(list []hpack.HeaderField) (httpwire.Fields, error) {
	out := make(httpwire.Fields, 1, len(list)+2) // Host, and room for a framing field
	te, cookies, hosts := false, 0, 0
	for i := range list {
		f := &list[i]
		kind, err := classify(f)
		if err != nil {
			return nil, err
		}
		switch kind {
		case hostField:
			hosts++
			if hosts > 1 {
				return nil, httpwire.Refuse(codes.HostHeaderInvalid, "more than one host field")
			}
			if err := p.host(f.Value); err != nil {
				return nil, err
			}
			continue
		case cookieField:
			if cookies++; cookies == 1 {
				out = append(out, httpwire.Field{Name: f.Name, Value: joinCookies(list[i:])})
			}
			continue
		case teField:
			te = true
			continue
		}
		out = append(out, httpwire.Field{Name: f.Name, Value: f.Value})
	}
	if p.authority == "" {
		return nil, httpwire.Refuse(codes.HostHeaderInvalid, "neither :authority nor a host field")
	}
	if te && isGRPC(out) {
		out = append(out, httpwire.Field{Name: "te", Value: "trailers"})
	}
	out[0] = httpwire.Field{Name: "Host", Value: p.authority}
	return out, nil
}

// joinCookies gives the value of all cookie fields of a list as one field
// (section 8.2.3). The first field of the list is one.
func joinCookies(list []hpack.HeaderField) string {
	first, size, n := list[0].Value, 0, 0
	for i := range list {
		if list[i].Name == "cookie" {
			size, n = size+len("; ")+len(list[i].Value), n+1
		}
	}
	if n == 1 {
		return first
	}
	all := make([]byte, 0, size)
	for i := range list {
		if list[i].Name == "cookie" {
			if len(all) > 0 || i > 0 {
				all = append(all, "; "...)
			}
			all = append(all, list[i].Value...)
		}
	}
	return string(all)
}

// host takes in a host field: it stands for a missing :authority, and must say
// the same as one that is there (section 8.3.1).
func (p *pseudo) host(value string) error {
	switch {
	case !p.hasAuthority && isAuthority(value):
		p.authority = value
	case !p.hasAuthority:
		return httpwire.Refuse(codes.HostHeaderInvalid, "a host field that is not a host and a port")
	case !httpwire.EqualFold(value, p.authority):
		return httpwire.Refuse(codes.AuthorityMismatch, "a host field that differs from :authority")
	}
	return nil
}

// isGRPC reports whether the fields are those of a call whose server insists
// on the TE field. Nobody else needs it: that trailers are understood is no
// secret between the two ends of HTTP/2.
func isGRPC(fields httpwire.Fields) bool {
	v, _ := fields.Get("content-type")
	const grpc = "application/grpc"
	return len(v) >= len(grpc) && httpwire.EqualFold(v[:len(grpc)], grpc)
}

// AppendRequest appends the header list of q to dst. :authority is the value of
// the Host field, or where there is none the authority of q. Fields that mean
// something to HTTP/1.1 only are left out, names are put in lower case.
func AppendRequest(dst []hpack.HeaderField, q *httpwire.Request, scheme, path string) []hpack.HeaderField {
	authority, ok := q.Fields.Get("host")
	if !ok {
		authority = q.Authority
	}
	dst = append(dst,
		hpack.HeaderField{Name: ":method", Value: q.Method},
		hpack.HeaderField{Name: ":scheme", Value: scheme},
		hpack.HeaderField{Name: ":authority", Value: authority},
		hpack.HeaderField{Name: ":path", Value: path},
	)
	return appendFields(dst, q.Fields)
}
