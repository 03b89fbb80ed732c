// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package h2head

import (
	"strconv"
	"strings"

	"golang.org/x/net/http2/hpack"

	"bawn/internal/codes"
	"bawn/internal/httpwire"
)

// Response maps the header list of a response to a request of the method given
// to its head. end says that the message ends with the list. Errors are
// [*httpwire.Error].
func Response(list []hpack.HeaderField, end bool, method string, lim httpwire.Limits) (httpwire.Response, error) {
	var p httpwire.Response
	if err := bounds(list, lim); err != nil {
		return p, err
	}
	if len(list) == 0 || list[0].Name != ":status" {
		return p, httpwire.Refuse(codes.ProtocolError, "a response that does not begin with :status")
	}
	status, err := parseStatus(list[0].Value)
	switch {
	case err != nil:
		return p, err
	case status < 200 && end:
		return p, httpwire.Refuse(codes.FramingInvalid, "an interim response that ends the stream")
	}
	fields := make(httpwire.Fields, 0, len(list))
	for i := range list[1:] {
		f := &list[1+i]
		kind, err := classify(f)
		if err != nil {
			return p, err
		}
		if kind != teField {
			fields = append(fields, httpwire.Field{Name: f.Name, Value: strings.Trim(f.Value, " \t")})
		}
	}
	if err := p.Compose(status, fields, method, !end, lim); err != nil {
		return p, err
	}
	p.Close = false // a stream is used once in any case
	return p, nil
}

// parseStatus reads a status of three digits. HTTP/2 has no 101 (RFC 9113
// section 8.6).
func parseStatus(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || len(s) != 3 || n < 100 || n == 101 {
		return 0, httpwire.Refuse(codes.ProtocolError, "a :status that is not one")
	}
	return n, nil
}

// AppendResponse appends the header list of p to dst. Fields that mean
// something to HTTP/1.1 only are left out, names are put in lower case.
func AppendResponse(dst []hpack.HeaderField, p *httpwire.Response) []hpack.HeaderField {
	dst = append(dst, hpack.HeaderField{Name: ":status", Value: statusText(p.Status)})
	return appendFields(dst, p.Fields)
}

// statusText is strconv.Itoa, without an allocation where that is usual.
func statusText(n int) string {
	if n == 200 {
		return "200"
	}
	return strconv.Itoa(n)
}

// Trailers maps the header list of a trailer section to its fields. Those which
// have no place there are left out (RFC 9110 section 6.5.1).
func Trailers(list []hpack.HeaderField, lim httpwire.Limits) (httpwire.Fields, error) {
	fields := make(httpwire.Fields, 0, len(list))
	for i := range list {
		f := &list[i]
		if _, err := classify(f); err != nil {
			return nil, err
		}
		fields = append(fields, httpwire.Field{Name: f.Name, Value: strings.Trim(f.Value, " \t")})
	}
	return httpwire.ComposeTrailers(fields, lim)
}

// AppendTrailers appends the header list of trailer fields to dst.
func AppendTrailers(dst []hpack.HeaderField, fields httpwire.Fields) []hpack.HeaderField {
	return appendFields(dst, fields)
}
