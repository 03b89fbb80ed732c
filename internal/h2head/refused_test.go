// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package h2head_test

import (
	"errors"
	"flag"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/net/http2/hpack"

	"bawn/internal/codes"
	"bawn/internal/h2head"
	"bawn/internal/h2suite"
	"bawn/internal/httpwire"
)

// list reads "name=value" pairs, one in a line.
func list(lines ...string) []hpack.HeaderField {
	var out []hpack.HeaderField
	for _, l := range lines {
		i := strings.IndexByte(l[min(1, len(l)):], '=') + min(1, len(l))
		out = append(out, hpack.HeaderField{Name: l[:i], Value: l[i+1:]})
	}
	return out
}

// get is a good request, with more fields.
func get(more ...string) []hpack.HeaderField {
	return list(append([]string{":method=GET", ":scheme=https", ":authority=h", ":path=/"}, more...)...)
}

func post(more ...string) []hpack.HeaderField {
	return list(append([]string{":method=POST", ":scheme=https", ":authority=h", ":path=/"}, more...)...)
}

// refusedLists are the requests that HTTP/2 or the boundary refuses. The
// sections are those of RFC 9113 unless another document is named.
var refusedLists = []struct {
	why, section string
	list         []hpack.HeaderField
	open         bool // the list does not end the message
	code         codes.Code
}{
	{"no list", "8.3.1", nil, false, codes.ProtocolError},
	{"no :method", "8.3.1", list(":scheme=https", ":authority=h", ":path=/"), false, codes.ProtocolError},
	{"no :scheme", "8.3.1", list(":method=GET", ":authority=h", ":path=/"), false, codes.ProtocolError},
	{"no :path", "8.3.1", list(":method=GET", ":scheme=https", ":authority=h"), false, codes.ProtocolError},
	{"an empty :method", "8.3.1", list(":method=", ":scheme=https", ":authority=h", ":path=/"), false, codes.ProtocolError},
	{"a :method that is not a token", "8.3.1", list(":method=GET /x HTTP/1.1\r\n", ":scheme=https", ":authority=h", ":path=/"), false, codes.ProtocolError},
	{"the method of the preface", "3.4", list(":method=PRI", ":scheme=https", ":authority=h", ":path=/"), false, codes.ProtocolError},
	{"a :scheme that is not of HTTP", "8.3.1", list(":method=GET", ":scheme=file", ":authority=h", ":path=/"), false, codes.TargetInvalid},
	{"a :scheme with a line in it", "8.3.1", list(":method=GET", ":scheme=https://x/ HTTP/1.1\r\n", ":authority=h", ":path=/"), false, codes.TargetInvalid},
	{"an empty :path", "8.3.1", list(":method=GET", ":scheme=https", ":authority=h", ":path="), false, codes.TargetInvalid},
	{"a :path that is a whole address", "8.3.1", list(":method=GET", ":scheme=https", ":authority=h", ":path=https://x/"), false, codes.TargetInvalid},
	{"the :path *", "8.3.1", list(":method=OPTIONS", ":scheme=https", ":authority=h", ":path=*"), false, codes.TargetInvalid},
	{"a :path with a space", "8.3.1", list(":method=GET", ":scheme=https", ":authority=h", ":path=/a HTTP/1.1"), false, codes.TargetInvalid},
	{"a :path with a line break", "8.3.1", list(":method=GET", ":scheme=https", ":authority=h", ":path=/\r\nHost: x"), false, codes.TargetInvalid},
	{"a :path with a fragment", "8.3.1", list(":method=GET", ":scheme=https", ":authority=h", ":path=/a#b"), false, codes.TargetInvalid},
	{"a :path with an octet outside ASCII", "8.3.1", list(":method=GET", ":scheme=https", ":authority=h", ":path=/é"), false, codes.TargetInvalid},
	{"an empty :authority", "8.3.1", list(":method=GET", ":scheme=https", ":authority=", ":path=/"), false, codes.TargetInvalid},
	{"a user name in :authority", "8.3.1", list(":method=GET", ":scheme=https", ":authority=u@h", ":path=/"), false, codes.TargetInvalid},
	{"a path in :authority", "8.3.1", list(":method=GET", ":scheme=https", ":authority=h/x", ":path=/"), false, codes.TargetInvalid},
	{"a space in :authority", "8.3.1", list(":method=GET", ":scheme=https", ":authority=h x", ":path=/"), false, codes.TargetInvalid},
	{"a line break in :authority", "8.3.1", list(":method=GET", ":scheme=https", ":authority=h\r\na: b", ":path=/"), false, codes.TargetInvalid},
	{"neither :authority nor host", "8.3.1", list(":method=GET", ":scheme=https", ":path=/"), false, codes.HostHeaderInvalid},
	{"an empty host without :authority", "8.3.1", list(":method=GET", ":scheme=https", ":path=/", "host="), false, codes.HostHeaderInvalid},
	{"a user name in host", "8.3.1", list(":method=GET", ":scheme=https", ":path=/", "host=u@h"), false, codes.HostHeaderInvalid},
	{"a host that is not :authority", "8.3.1", get("host=x"), false, codes.AuthorityMismatch},
	{"a host that is :authority but for a Kelvin sign", "8.3.1", list(":method=GET", ":scheme=https", ":authority=k", ":path=/", "host=\u212a"), false, codes.AuthorityMismatch},
	{"two host fields", "8.3.1", get("host=h", "host=h"), false, codes.HostHeaderInvalid},
	{"CONNECT", "8.5", list(":method=CONNECT", ":authority=h:443"), true, codes.MethodNotAllowed},
	{"CONNECT with a path", "8.5", list(":method=CONNECT", ":scheme=https", ":authority=h", ":path=/"), true, codes.MethodNotAllowed},
	{"an extended CONNECT", "RFC 8441 4", list(":method=CONNECT", ":protocol=websocket", ":scheme=https", ":authority=h", ":path=/"), true, codes.ProtocolError},
	{"a :protocol without CONNECT", "RFC 8441 4", get(":protocol=websocket"), false, codes.ProtocolError},
	{"a pseudo-field twice", "8.3", get(":path=/admin"), false, codes.ProtocolError},
	{"an equal pseudo-field twice", "8.3", get(":authority=h"), false, codes.ProtocolError},
	{"an unknown pseudo-field", "8.3", get(":x=y"), false, codes.ProtocolError},
	{"a pseudo-field of responses", "8.3", get(":status=200"), false, codes.ProtocolError},
	{"a pseudo-field after a field", "8.3", list(":method=GET", ":scheme=https", "a=b", ":path=/", ":authority=h"), false, codes.ProtocolError},
	{"a pseudo-field in upper case", "8.3", list(":METHOD=GET", ":scheme=https", ":authority=h", ":path=/"), false, codes.ProtocolError},
	{"a name in upper case", "8.2.1", get("X-a=b"), false, codes.HeaderInvalid},
	{"an empty name", "8.2.1", append(get(), hpack.HeaderField{Value: "b"}), false, codes.HeaderInvalid},
	{"a name with a colon", "8.2.1", get("a:b=c"), false, codes.HeaderInvalid},
	{"a name with a blank", "8.2.1", get("a b=c"), false, codes.HeaderInvalid},
	{"a name with a line break", "8.2.1", append(get(), hpack.HeaderField{Name: "a: b\r\nc", Value: "d"}), false, codes.HeaderInvalid},
	{"NUL in a name", "8.2.1", get("a\x00=b"), false, codes.HeaderInvalid},
	{"an octet outside ASCII in a name", "8.2.1", get("\u017fet=b"), false, codes.HeaderInvalid},
	{"NUL in a value", "8.2.1", get("a=b\x00"), false, codes.HeaderInvalid},
	{"CR in a value", "8.2.1", get("a=b\rc"), false, codes.HeaderInvalid},
	{"LF in a value", "8.2.1", get("a=b\ntransfer-encoding: chunked"), false, codes.HeaderInvalid},
	{"a control octet in a value", "RFC 9110 5.5", get("a=b\x01"), false, codes.HeaderInvalid},
	{"a blank before a value", "8.2.1", get("a= b"), false, codes.HeaderInvalid},
	{"a tab after a value", "8.2.1", get("a=b\t"), false, codes.HeaderInvalid},
	{"connection", "8.2.2", get("connection=close"), false, codes.HeaderInvalid},
	{"keep-alive", "8.2.2", get("keep-alive=timeout=5"), false, codes.HeaderInvalid},
	{"proxy-connection", "8.2.2", get("proxy-connection=keep-alive"), false, codes.HeaderInvalid},
	{"upgrade", "8.2.2", get("upgrade=websocket"), false, codes.HeaderInvalid},
	{"http2-settings", "8.2.2", get("http2-settings=AAMAAABkAAQAAP__"), false, codes.HeaderInvalid},
	{"transfer-encoding", "8.2.2", post("transfer-encoding=chunked"), true, codes.FramingInvalid},
	{"transfer-encoding beside content-length", "8.2.2", post("content-length=5", "transfer-encoding=chunked"), true, codes.FramingInvalid},
	{"te: gzip", "8.2.2", get("te=gzip"), false, codes.HeaderInvalid},
	{"te: trailers, gzip", "8.2.2", get("te=trailers, gzip"), false, codes.HeaderInvalid},
	{"two content-length fields", "RFC 9110 8.6", post("content-length=5", "content-length=6"), true, codes.FramingInvalid},
	{"two equal content-length fields", "RFC 9110 8.6", post("content-length=5", "content-length=5"), true, codes.FramingInvalid},
	{"content-length as a list", "RFC 9110 8.6", post("content-length=5, 5"), true, codes.FramingInvalid},
	{"content-length with a plus", "RFC 9110 8.6", post("content-length=+5"), true, codes.FramingInvalid},
	{"content-length over 63 bits", "RFC 9110 8.6", post("content-length=9223372036854775808"), true, codes.FramingInvalid},
	{"a content-length and no body", "8.1.1", post("content-length=5"), false, codes.FramingInvalid},
	{"content_length", "RFC 3875 4.1.18", post("content_length=5"), true, codes.FramingInvalid},
	{"transfer_encoding", "RFC 3875 4.1.18", post("transfer_encoding=chunked"), true, codes.FramingInvalid},
	{"TRACE with a body", "RFC 9110 9.3.8", list(":method=TRACE", ":scheme=https", ":authority=h", ":path=/"), true, codes.FramingInvalid},
	{"two content-type fields", "RFC 9110 5.3", post("content-type=a/b", "content-type=a/c"), true, codes.HeaderDuplicate},
	{"two authorization fields", "RFC 9110 5.3", get("authorization=a", "authorization=b"), false, codes.HeaderDuplicate},
	{"an expectation other than 100-continue", "RFC 9110 10.1.1", post("expect=200-ok", "content-length=1"), true, codes.HeaderInvalid},
	{"a list over 64 KiB", "10.5.1", get("a=" + strings.Repeat("a", 64<<10)), false, codes.HeadTooLarge},
	{"more than 256 fields", "10.5.1", get(many(256)...), false, codes.HeadTooLarge},
}

func many(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = "a=b"
	}
	return out
}

func TestRefusedLists(t *testing.T) {
	for _, c := range refusedLists {
		t.Run(c.why, func(t *testing.T) {
			_, err := h2head.Request(c.list, !c.open, httpwire.Limits{})
			wantCode(t, err, c.code)
		})
	}
}

func wantCode(t *testing.T, err error, want codes.Code) {
	t.Helper()
	e, ok := errors.AsType[*httpwire.Error](err)
	if !ok || e.Code != want {
		t.Fatalf("error is %v, want one with the code %s", err, want)
	}
}

// refusedAnswers are the responses that are refused.
var refusedAnswers = []struct {
	why, section string
	list         []hpack.HeaderField
	open         bool
	code         codes.Code
}{
	{"no list", "8.3.2", nil, false, codes.ProtocolError},
	{"no :status", "8.3.2", list("a=b"), false, codes.ProtocolError},
	{"a :status of two digits", "8.3.2", list(":status=20"), false, codes.ProtocolError},
	{"a :status with a sign", "8.3.2", list(":status=+20"), false, codes.ProtocolError},
	{"a :status below 100", "RFC 9110 15", list(":status=099"), false, codes.ProtocolError},
	{"101", "8.6", list(":status=101"), true, codes.ProtocolError},
	{"two :status fields", "8.3.2", list(":status=200", ":status=404"), false, codes.ProtocolError},
	{"a pseudo-field of requests", "8.3", list(":status=200", ":path=/"), false, codes.ProtocolError},
	{":status after a field", "8.3", list("a=b", ":status=200"), false, codes.ProtocolError},
	{"an interim response that ends the stream", "8.1", list(":status=103"), false, codes.FramingInvalid},
	{"connection in a response", "8.2.2", list(":status=200", "connection=close"), false, codes.HeaderInvalid},
	{"transfer-encoding in a response", "8.2.2", list(":status=200", "transfer-encoding=chunked"), true, codes.FramingInvalid},
	{"a name in upper case in a response", "8.2.1", list(":status=200", "A=b"), false, codes.HeaderInvalid},
	{"LF in a value of a response", "8.2.1", list(":status=200", "a=b\nc: d"), false, codes.HeaderInvalid},
	{"NUL in a value of a response", "8.2.1", list(":status=200", "a=\x00"), false, codes.HeaderInvalid},
	{"two content-length fields in a response", "RFC 9110 8.6", list(":status=200", "content-length=5", "content-length=6"), true, codes.FramingInvalid},
	{"a content-length and no body in a response", "8.1.1", list(":status=200", "content-length=5"), false, codes.FramingInvalid},
	{"a response list over 64 KiB", "10.5.1", list(":status=200", "a="+strings.Repeat("a", 64<<10)), false, codes.HeadTooLarge},
}

func TestRefusedAnswers(t *testing.T) {
	for _, c := range refusedAnswers {
		t.Run(c.why, func(t *testing.T) {
			_, err := h2head.Response(c.list, !c.open, "GET", httpwire.Limits{})
			wantCode(t, err, c.code)
		})
	}
}

func TestRefusedTrailers(t *testing.T) {
	for why, c := range map[string]struct {
		list []hpack.HeaderField
		code codes.Code
	}{
		"a pseudo-field":       {list("a=b", ":path=/"), codes.ProtocolError},
		"a name in upper case": {list("A=b"), codes.HeaderInvalid},
		"a line break":         {list("a=b\r\nc: d"), codes.HeaderInvalid},
		"transfer-encoding":    {list("transfer-encoding=chunked"), codes.FramingInvalid},
		"too many octets":      {list("a=" + strings.Repeat("b", 16<<10)), codes.HeadTooLarge},
		"too many fields":      {list(many(257)...), codes.HeadTooLarge},
	} {
		t.Run(why, func(t *testing.T) {
			_, err := h2head.Trailers(c.list, httpwire.Limits{})
			wantCode(t, err, c.code)
		})
	}
}

var update = flag.Bool("update", false, "write docs/http2.md")

// TestDocListsRefusedLists keeps docs/http2.md in step with the tables above.
func TestDocListsRefusedLists(t *testing.T) {
	const head = "\nEach row is a case of `%s` in `internal/h2head`.\n\n| refused | section | code |\n|---|---|---|\n"
	var b strings.Builder
	fmt.Fprintf(&b, head, "TestRefusedLists")
	for _, c := range refusedLists {
		fmt.Fprintf(&b, "| %s | %s | `%s` |\n", c.why, c.section, c.code)
	}
	b.WriteString("\n")
	h2suite.Section(t, "requests", b.String(), *update)
	b.Reset()
	fmt.Fprintf(&b, head, "TestRefusedAnswers")
	for _, c := range refusedAnswers {
		fmt.Fprintf(&b, "| %s | %s | `%s` |\n", c.why, c.section, c.code)
	}
	b.WriteString("\n")
	h2suite.Section(t, "responses", b.String(), *update)
}
