// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package h2head

import (
	"strings"

	"golang.org/x/net/http2/hpack"

	"bawn/internal/codes"
	"bawn/internal/httpwire"
)

// A fieldKind is what a field means to the mapping.
type fieldKind uint8

const (
	plainField fieldKind = iota
	hostField
	cookieField
	teField
	http1Field // of HTTP/1.1 only, RFC 9113 section 8.2.2
)

func kindOf(lower string) fieldKind {
	switch lower {
	case "host":
		return hostField
	case "cookie":
		return cookieField
	case "te":
		return teField
	case "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "http2-settings":
		return http1Field
	}
	return plainField
}

// classify judges a field of a list by what HTTP/2 adds to the rules of
// HTTP/1.1, which httpwire has.
func classify(f *hpack.HeaderField) (fieldKind, error) {
	if f.IsPseudo() {
		return 0, httpwire.Refuse(codes.ProtocolError, "a pseudo-field after a field")
	}
	for i := range len(f.Name) {
		if c := f.Name[i]; 'A' <= c && c <= 'Z' {
			return 0, httpwire.Refuse(codes.HeaderInvalid, "a field name in upper case")
		}
	}
	k := kindOf(f.Name)
	switch {
	case k == teField && f.Value != "trailers":
		return 0, httpwire.Refuse(codes.HeaderInvalid, "a te field with something else than trailers")
	case k == http1Field && f.Name == "transfer-encoding":
		return 0, httpwire.Refuse(codes.FramingInvalid, "a transfer-encoding in HTTP/2")
	case k == http1Field:
		return 0, httpwire.Refuse(codes.HeaderInvalid, "a field of HTTP/1.1 connections in HTTP/2")
	}
	return k, nil
}

// appendFields appends the fields that HTTP/2 may carry.
func appendFields(dst []hpack.HeaderField, fields httpwire.Fields) []hpack.HeaderField {
	for i := range fields {
		name, value := lower(fields[i].Name), fields[i].Value
		secret := false
		switch kindOf(name) {
		case hostField, http1Field:
			continue
		case teField:
			if value != "trailers" || !isGRPC(fields) {
				continue
			}
		case cookieField:
			secret = len(value) < shortCookie
		default:
			secret = isSecret(name)
		}
		dst = append(dst, hpack.HeaderField{Name: name, Value: value, Sensitive: secret})
	}
	return dst
}

// shortCookie is the length below which a cookie could be guessed from what it
// does to the size of later heads.
const shortCookie = 20

// isSecret reports whether a value must never stand in a table that later heads
// refer to, here or further on (RFC 7541 section 7.1.3).
func isSecret(name string) bool {
	switch name {
	case "authorization", "proxy-authorization", "x-api-key", "x-goog-api-key", "api-key":
		return true
	}
	return false
}

// lower gives a field name in lower case, without an allocation for the names
// that most messages have.
func lower(name string) string {
	for i := range len(name) {
		if c := name[i]; 'A' <= c && c <= 'Z' {
			if known, ok := common[name]; ok {
				return known
			}
			return strings.ToLower(name)
		}
	}
	return name
}

// common has the names that are common, from their usual spelling.
var common = spellings(
	"Accept", "Accept-Encoding", "Accept-Language", "Accept-Ranges", "Access-Control-Allow-Origin",
	"Access-Control-Expose-Headers", "Age", "Allow", "Alt-Svc", "Authorization", "Cache-Control", "Content-Disposition",
	"Content-Encoding", "Content-Language", "Content-Length", "Content-Range", "Content-Security-Policy", "Content-Type",
	"Cookie", "Date", "ETag", "Etag", "Expect", "Expires", "Host", "If-Match", "If-Modified-Since", "If-None-Match",
	"Last-Modified", "Link", "Location", "Origin", "Pragma", "Range", "Referer", "Referrer-Policy", "Retry-After", "Server",
	"Set-Cookie", "Strict-Transport-Security", "TE", "Te", "Trailer", "Transfer-Encoding", "Connection", "Keep-Alive",
	"User-Agent", "Vary", "Via", "WWW-Authenticate", "Www-Authenticate", "X-Content-Type-Options", "X-Frame-Options",
	"X-Request-Id", "X-Requested-With", "Bawn-Code",
)

func spellings(names ...string) map[string]string {
	m := make(map[string]string, len(names))
	for _, n := range names {
		m[n] = strings.ToLower(n)
	}
	return m
}
