// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package httpwire_test

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"bawn/internal/codes"
	"bawn/internal/httpwire"
)

var update = flag.Bool("update", false, "write the golden files anew")

// A refusedForm is one row of docs/http1.md: what is refused, the section it
// follows from, the code, and bytes that have it.
type refusedForm struct {
	what    string
	section string // of RFC 9112 unless it names another
	code    codes.Code
	bytes   string // {H} stands for "Host: h\r\n"
}

var refusedRequests = []refusedForm{
	{"a bare LF ends the request line", "2.2", codes.HeaderInvalid, "GET / HTTP/1.1\n{H}\r\n"},
	{"a bare LF ends a field line", "2.2", codes.HeaderInvalid, "GET / HTTP/1.1\r\nHost: h\nA: b\r\n\r\n"},
	{"a bare LF ends the head", "2.2", codes.HeaderInvalid, "GET / HTTP/1.1\r\n{H}\n"},
	{"a bare CR in a value", "2.2", codes.HeaderInvalid, "GET / HTTP/1.1\r\n{H}A: b\rAuthorization: x\r\n\r\n"},
	{"a bare CR in a name", "2.2", codes.HeaderInvalid, "GET / HTTP/1.1\r\n{H}A\r: b\r\n\r\n"},
	{"a bare CR in the target", "2.2", codes.TargetInvalid, "GET /a\rb HTTP/1.1\r\n{H}\r\n"},
	{"CR CR LF ends a line", "2.2", codes.HeaderInvalid, "GET / HTTP/1.1\r\nHost: h\r\r\n\r\n"},
	{"more than one empty line before the request line", "2.2", codes.ProtocolError, "\r\n\r\nGET / HTTP/1.1\r\n{H}\r\n"},
	{"a blank before the request line", "2.2", codes.ProtocolError, " GET / HTTP/1.1\r\n{H}\r\n"},
	{"a blank between the request line and the fields", "2.2", codes.HeaderInvalid, "GET / HTTP/1.1\r\n Host: h\r\n\r\n"},
	{"an octet that cannot begin a method (TLS on a plain port)", "3", codes.ProtocolError, "\x16\x03\x01\x00\x05hello\r\n\r\n"},
	{"HTTP/2.0", "2.3", codes.ProtocolError, "GET / HTTP/2.0\r\n{H}\r\n"},
	{"the preface of HTTP/2", "RFC 9113 3.4", codes.ProtocolError, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
	{"a version in lower case", "2.3", codes.ProtocolError, "GET / http/1.1\r\n{H}\r\n"},
	{"a version of two digits", "2.3", codes.ProtocolError, "GET / HTTP/1.10\r\n{H}\r\n"},
	{"a version with a sign", "2.3", codes.ProtocolError, "GET / HTTP/1.+1\r\n{H}\r\n"},
	{"no version, and not GET", "3", codes.ProtocolError, "POST /\r\n{H}\r\n"},
	{"a method that is not a token", "3.1", codes.ProtocolError, "GE(T / HTTP/1.1\r\n{H}\r\n"},
	{"a tab between the parts of the request line", "3", codes.ProtocolError, "GET\t/\tHTTP/1.1\r\n{H}\r\n"},
	{"two spaces before the target", "3", codes.TargetInvalid, "GET  / HTTP/1.1\r\n{H}\r\n"},
	{"two spaces after the target", "3", codes.TargetInvalid, "GET /  HTTP/1.1\r\n{H}\r\n"},
	{"a space in the path", "3.2", codes.TargetInvalid, "GET /a b HTTP/1.1\r\n{H}\r\n"},
	{"a tab in the target", "3.2", codes.TargetInvalid, "GET /heal\tth HTTP/1.1\r\n{H}\r\n"},
	{"NUL in the target", "3.2", codes.TargetInvalid, "GET /a\x00b HTTP/1.1\r\n{H}\r\n"},
	{"an octet outside ASCII in the target", "3.2", codes.TargetInvalid, "GET /\xff HTTP/1.1\r\n{H}\r\n"},
	{"a fragment in the target", "3.2", codes.TargetInvalid, "GET /health#/../../admin HTTP/1.1\r\n{H}\r\n"},
	{"a target that is neither a path nor an address", "3.2", codes.TargetInvalid, "GET health HTTP/1.1\r\n{H}\r\n"},
	{"a scheme other than http and https", "3.2.2", codes.TargetInvalid, "GET ftp://h/ HTTP/1.1\r\n{H}\r\n"},
	{"the absolute-form without an authority", "3.2.2", codes.TargetInvalid, "GET http:///x HTTP/1.1\r\n{H}\r\n"},
	{"userinfo in the absolute-form", "RFC 9110 4.2.4", codes.TargetInvalid, "GET http://a@h/ HTTP/1.1\r\n{H}\r\n"},
	{"a backslash in the authority", "3.2.2", codes.TargetInvalid, "GET http://127.1.1.1:80\\@127.2.2.2:80/ HTTP/1.1\r\n{H}\r\n"},
	{"CONNECT with a path", "3.2.3", codes.TargetInvalid, "CONNECT /x HTTP/1.1\r\n{H}\r\n"},
	{"CONNECT with an address", "3.2.3", codes.TargetInvalid, "CONNECT http://h:443/ HTTP/1.1\r\n{H}\r\n"},
	{"the authority-form without CONNECT", "3.2.3", codes.TargetInvalid, "GET h:443 HTTP/1.1\r\n{H}\r\n"},
	{"the asterisk-form without OPTIONS", "3.2.4", codes.TargetInvalid, "GET * HTTP/1.1\r\n{H}\r\n"},
	{"no Host in HTTP/1.1", "3.2", codes.HostHeaderInvalid, "GET / HTTP/1.1\r\n\r\n"},
	{"two Host fields", "3.2", codes.HostHeaderInvalid, "GET / HTTP/1.1\r\nHost: ok\r\nHost: evil\r\n\r\n"},
	{"two equal Host fields", "3.2", codes.HostHeaderInvalid, "GET / HTTP/1.1\r\n{H}{H}\r\n"},
	{"NUL in Host", "RFC 9110 5.5", codes.HeaderInvalid, "GET / HTTP/1.1\r\nHost: google.com\x00.kallus.org\r\n\r\n"},
	{"a line without a colon", "5", codes.HeaderInvalid, "GET / HTTP/1.1\r\n{H}A\r\n\r\n"},
	{"an empty field name", "5", codes.HeaderInvalid, "GET / HTTP/1.1\r\n{H}: x\r\n\r\n"},
	{"a field name that is not a token", "5.1", codes.HeaderInvalid, "GET / HTTP/1.1\r\n{H}A(b): c\r\n\r\n"},
	{"a blank inside a field name", "5.1", codes.HeaderInvalid, "GET / HTTP/1.1\r\n{H}A b: c\r\n\r\n"},
	{"an octet outside ASCII in a field name", "5.1", codes.HeaderInvalid, "GET / HTTP/1.1\r\n{H}\xc5\xbfet: c\r\n\r\n"},
	{"NUL in a field name", "5.1", codes.HeaderInvalid, "GET / HTTP/1.1\r\n{H}A\x00: c\r\n\r\n"},
	{"a blank before the colon of a framing field", "5.1", codes.HeaderInvalid, "POST / HTTP/1.1\r\n{H}Content-Length : 5\r\n\r\nhello"},
	{"a tab before the colon of a framing field", "5.1", codes.HeaderInvalid, "POST / HTTP/1.1\r\n{H}Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n"},
	{"a blank before the colon of Host", "5.1", codes.HeaderInvalid, "GET / HTTP/1.1\r\nHost : h\r\n\r\n"},
	{"a blank before the colon of a credential", "5.1", codes.HeaderInvalid, "GET / HTTP/1.1\r\n{H}Authorization : x\r\n\r\n"},
	{"a control octet before a framing name", "5.1", codes.HeaderInvalid, "POST / HTTP/1.1\r\n{H}\x01Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
	{"a folded line", "5.2", codes.HeaderInvalid, "GET / HTTP/1.1\r\n{H}A: b\r\n c\r\n\r\n"},
	{"a folded line with a tab", "5.2", codes.HeaderInvalid, "GET / HTTP/1.1\r\n{H}A: b\r\n\tc: d\r\n\r\n"},
	{"NUL in a value", "RFC 9110 5.5", codes.HeaderInvalid, "GET / HTTP/1.1\r\n{H}A: b\x00c\r\n\r\n"},
	{"a control octet in a value that the boundary reads", "RFC 9110 5.5", codes.HeaderInvalid, "GET / HTTP/1.1\r\n{H}Connection: a\x01\r\n\r\n"},
	{"two Content-Type fields", "RFC 9110 5.3", codes.HeaderDuplicate, "POST / HTTP/1.1\r\n{H}Content-Type: a/b\r\nContent-type: a/c\r\n\r\n"},
	{"two Content-Encoding fields", "RFC 9110 5.3", codes.HeaderDuplicate, "POST / HTTP/1.1\r\n{H}Content-Encoding: gzip\r\nContent-Encoding: identity\r\n\r\n"},
	{"two Authorization fields", "RFC 9110 5.3", codes.HeaderDuplicate, "GET / HTTP/1.1\r\n{H}Authorization: a\r\nAuthorization: b\r\n\r\n"},
	{"a Connection option that is not a token", "9.6", codes.HeaderInvalid, "GET / HTTP/1.1\r\n{H}Connection: close x\r\n\r\n"},
	{"an expectation other than 100-continue", "RFC 9110 10.1.1", codes.HeaderInvalid, "POST / HTTP/1.1\r\n{H}Expect: 200-ok\r\nContent-Length: 1\r\n\r\nx"},
	{"Content-Length and Transfer-Encoding", "6.1", codes.FramingInvalid, "POST / HTTP/1.1\r\n{H}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
	{"Transfer-Encoding in HTTP/1.0", "6.1", codes.FramingInvalid, "POST / HTTP/1.0\r\n{H}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
	{"Transfer-Encoding: xchunked", "6.1", codes.FramingInvalid, "POST / HTTP/1.1\r\n{H}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"},
	{"Transfer-Encoding: chunked with a comma", "6.1", codes.FramingInvalid, "POST / HTTP/1.1\r\n{H}Transfer-Encoding: chunked,\r\n\r\n0\r\n\r\n"},
	{"Transfer-Encoding: chunked with a tab after it", "6.1", codes.FramingInvalid, "POST / HTTP/1.1\r\n{H}Transfer-Encoding: chunked\t\r\n\r\n0\r\n\r\n"},
	{"Transfer-Encoding: chunked with a tab before it", "6.1", codes.FramingInvalid, "POST / HTTP/1.1\r\n{H}Transfer-Encoding:\tchunked\r\n\r\n0\r\n\r\n"},
	{"Transfer-Encoding: gzip, chunked", "6.1", codes.FramingInvalid, "POST / HTTP/1.1\r\n{H}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"},
	{"Transfer-Encoding: chunked, gzip", "6.3", codes.FramingInvalid, "POST / HTTP/1.1\r\n{H}Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n"},
	{"Transfer-Encoding: identity", "6.1", codes.FramingInvalid, "POST / HTTP/1.1\r\n{H}Transfer-Encoding: identity\r\n\r\n"},
	{"Transfer-Encoding with a parameter", "7", codes.FramingInvalid, "POST / HTTP/1.1\r\n{H}Transfer-Encoding: chunked;a=b\r\n\r\n0\r\n\r\n"},
	{"Transfer-Encoding in quotes", "6.1", codes.FramingInvalid, "POST / HTTP/1.1\r\n{H}Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n"},
	{"two Transfer-Encoding fields", "6.1", codes.FramingInvalid, "POST / HTTP/1.1\r\n{H}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
	{"an empty Transfer-Encoding", "6.1", codes.FramingInvalid, "POST / HTTP/1.1\r\n{H}Transfer-Encoding:\r\n\r\n"},
	{"an empty Content-Length", "6.2", codes.FramingInvalid, "POST / HTTP/1.1\r\n{H}Content-Length:\r\n\r\n"},
	{"Content-Length with a plus", "6.2", codes.FramingInvalid, "POST / HTTP/1.1\r\n{H}Content-Length: +5\r\n\r\nhello"},
	{"Content-Length with a minus", "6.2", codes.FramingInvalid, "POST / HTTP/1.1\r\n{H}Content-Length: -5\r\n\r\nhello"},
	{"Content-Length in hexadecimal", "6.2", codes.FramingInvalid, "POST / HTTP/1.1\r\n{H}Content-Length: 0x5\r\n\r\nhello"},
	{"Content-Length with an underscore", "6.2", codes.FramingInvalid, "POST / HTTP/1.1\r\n{H}Content-Length: 1_0\r\n\r\nhellohello"},
	{"Content-Length with a blank inside", "6.2", codes.FramingInvalid, "POST / HTTP/1.1\r\n{H}Content-Length: 1 0\r\n\r\nhellohello"},
	{"Content-Length as a list of equal values", "6.3", codes.FramingInvalid, "POST / HTTP/1.1\r\n{H}Content-Length: 5, 5\r\n\r\nhello"},
	{"Content-Length over 63 bits", "6.2", codes.FramingInvalid, "POST / HTTP/1.1\r\n{H}Content-Length: 9223372036854775808\r\n\r\n"},
	{"two equal Content-Length fields", "6.3", codes.FramingInvalid, "POST / HTTP/1.1\r\n{H}Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello"},
	{"two different Content-Length fields", "6.3", codes.FramingInvalid, "POST / HTTP/1.1\r\n{H}Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello"},
	{"Content_Length", "RFC 3875 4.1.18", codes.FramingInvalid, "POST / HTTP/1.1\r\n{H}Content_Length: 5\r\n\r\nhello"},
	{"Transfer_Encoding", "RFC 3875 4.1.18", codes.FramingInvalid, "POST / HTTP/1.1\r\n{H}Transfer_Encoding: chunked\r\n\r\n0\r\n\r\n"},
	{"Transfer---Encoding", "RFC 3875 4.1.18", codes.FramingInvalid, "POST / HTTP/1.1\r\n{H}Transfer---Encoding: chunked\r\n\r\n0\r\n\r\n"},
	{"ContentLength", "RFC 3875 4.1.18", codes.FramingInvalid, "POST / HTTP/1.1\r\n{H}ContentLength: 5\r\n\r\nhello"},
	{"CONNECT with a body", "RFC 9110 9.3.6", codes.FramingInvalid, "CONNECT h:443 HTTP/1.1\r\n{H}Content-Length: 5\r\n\r\nhello"},
	{"TRACE with a body", "RFC 9110 9.3.8", codes.FramingInvalid, "TRACE / HTTP/1.1\r\n{H}Content-Length: 5\r\n\r\nhello"},
	{"a head over 64 KiB", "3, 5", codes.HeadTooLarge, "GET / HTTP/1.1\r\n{H}A: " + strings.Repeat("a", 64<<10) + "\r\n\r\n"},
	{"a line over 64 KiB without an end", "3, 5", codes.HeadTooLarge, "GET /" + strings.Repeat("a", 64<<10)},
	{"more than 256 fields", "5", codes.HeadTooLarge, "GET / HTTP/1.1\r\n{H}" + strings.Repeat("A: b\r\n", 256) + "\r\n"},
}

// refusedBodies are chunked bodies.
var refusedBodies = []refusedForm{
	{"a bare LF after the chunk size", "7.1", codes.FramingInvalid, "5\nhello\r\n0\r\n\r\n"},
	{"a bare LF after the chunk", "7.1", codes.FramingInvalid, "5\r\nhello\n0\r\n\r\n"},
	{"a chunk longer than its size", "7.1", codes.FramingInvalid, "4\r\nhello\r\n0\r\n\r\n"},
	{"an empty chunk size", "7.1", codes.FramingInvalid, "\r\nhello\r\n0\r\n\r\n"},
	{"a chunk size with 0x", "7.1", codes.FramingInvalid, "0x5\r\nhello\r\n0\r\n\r\n"},
	{"a chunk size with a sign", "7.1", codes.FramingInvalid, "+5\r\nhello\r\n0\r\n\r\n"},
	{"a chunk size with a minus", "7.1", codes.FramingInvalid, "-1\r\nhello\r\n0\r\n\r\n"},
	{"a chunk size with an underscore", "7.1", codes.FramingInvalid, "0_5\r\nhello\r\n0\r\n\r\n"},
	{"a chunk size that overflows", "7.1", codes.FramingInvalid, "10000000000000005\r\nhello\r\n0\r\n\r\n"},
	{"a blank before the chunk size", "7.1", codes.FramingInvalid, " 5\r\nhello\r\n0\r\n\r\n"},
	{"a blank after the chunk size", "7.1", codes.FramingInvalid, "5 \r\nhello\r\n0\r\n\r\n"},
	{"a blank before a chunk extension", "7.1.1", codes.FramingInvalid, "5 ;a=b\r\nhello\r\n0\r\n\r\n"},
	{"a chunk extension without a name", "7.1.1", codes.FramingInvalid, "5;\r\nhello\r\n0\r\n\r\n"},
	{"a chunk extension with an open quote", "7.1.1", codes.FramingInvalid, "5;a=\"b\r\nhello\r\n0\r\n\r\n"},
	{"a bare CR in a chunk extension", "7.1.1", codes.FramingInvalid, "5;a=b\rc\r\nhello\r\n0\r\n\r\n"},
	{"a chunk line without an end", "7.1.1", codes.FramingInvalid, "5;a=" + strings.Repeat("b", 8<<10)},
	{"too many octets of chunk extensions", "7.1.1", codes.FramingInvalid, strings.Repeat("1;"+strings.Repeat("e", 1000)+"\r\nx\r\n", 20) + "0\r\n\r\n"},
	{"a trailer that is not a field", "7.1.2", codes.HeaderInvalid, "0\r\nA\r\n\r\n"},
	{"a folded trailer", "7.1.2", codes.HeaderInvalid, "0\r\nA: b\r\n c\r\n\r\n"},
	{"a bare LF in the trailers", "7.1.2", codes.FramingInvalid, "0\r\nA: b\n\r\n"},
	{"too many octets of trailers", "7.1.2", codes.HeadTooLarge, "0\r\n" + strings.Repeat("A: "+strings.Repeat("b", 1000)+"\r\n", 20) + "\r\n"},
	{"the connection ends inside a chunk", "8", codes.BodyTruncated, "5\r\nhel"},
	{"the connection ends before the last chunk", "8", codes.BodyTruncated, "5\r\nhello\r\n"},
	{"the connection ends inside the trailers", "8", codes.BodyTruncated, "0\r\nA: b\r\n"},
}

// refusedResponses are heads from an upstream, in answer to GET.
var refusedResponses = []refusedForm{
	{"a status line of another protocol", "4", codes.ProtocolError, "ICY 200 OK\r\n\r\n"},
	{"HTTP/2.0 in a status line", "2.3", codes.ProtocolError, "HTTP/2.0 200 OK\r\n\r\n"},
	{"a status of two digits", "4", codes.ProtocolError, "HTTP/1.1 20 OK\r\n\r\n"},
	{"a status of four digits", "4", codes.ProtocolError, "HTTP/1.1 2000 OK\r\n\r\n"},
	{"a status below 100", "RFC 9110 15", codes.ProtocolError, "HTTP/1.1 099 OK\r\n\r\n"},
	{"a bare LF in a response", "2.2", codes.HeaderInvalid, "HTTP/1.1 200 OK\nA: b\r\n\r\n"},
	{"a folded line in a response", "5.2", codes.HeaderInvalid, "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n"},
	{"a bare CR in a response", "2.2", codes.HeaderInvalid, "HTTP/1.1 200 OK\r\nA: b\rc: d\r\n\r\n"},
	{"Content-Length and Transfer-Encoding in a response", "6.3", codes.FramingInvalid, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"},
	{"two Content-Length fields in a response", "6.3", codes.FramingInvalid, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n"},
	{"a Transfer-Encoding other than chunked in a response", "6.3", codes.FramingInvalid, "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"},
	{"Transfer-Encoding in a response of HTTP/1.0", "6.1", codes.FramingInvalid, "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"},
	{"a response head over 64 KiB", "5", codes.HeadTooLarge, "HTTP/1.1 200 OK\r\nA: " + strings.Repeat("a", 64<<10) + "\r\n\r\n"},
}

func reader(s string) *bufio.Reader {
	return bufio.NewReader(strings.NewReader(strings.ReplaceAll(s, "{H}", "Host: h\r\n")))
}

func wantCode(t *testing.T, err error, want codes.Code) {
	t.Helper()
	e, ok := errors.AsType[*httpwire.Error](err)
	if !ok {
		t.Fatalf("got error %v, want code %s", err, want)
	}
	if e.Code != want {
		t.Errorf("got %s (%s), want code %s", e.Code, e.Detail, want)
	}
	if e.Status < 400 || e.Status > 499 || e.Detail == "" {
		t.Errorf("got status %d and detail %q, want a status of the client's fault and a detail", e.Status, e.Detail)
	}
}

func TestRefusedRequests(t *testing.T) {
	for _, c := range refusedRequests {
		t.Run(c.what, func(t *testing.T) {
			_, err := httpwire.ReadRequest(reader(c.bytes), httpwire.Limits{})
			wantCode(t, err, c.code)
		})
	}
}

func TestRefusedBodies(t *testing.T) {
	for _, c := range refusedBodies {
		t.Run(c.what, func(t *testing.T) {
			var b httpwire.Body
			b.Reset(reader(c.bytes), httpwire.Framing{Kind: httpwire.Chunked}, httpwire.Limits{})
			_, err := io.ReadAll(&b)
			wantCode(t, err, c.code)
			if b.Done() {
				t.Error("a refused body says that it is done")
			}
		})
	}
}

func TestRefusedResponses(t *testing.T) {
	for _, c := range refusedResponses {
		t.Run(c.what, func(t *testing.T) {
			_, err := httpwire.ReadResponse(reader(c.bytes), "GET", httpwire.Limits{})
			wantCode(t, err, c.code)
		})
	}
}

// TestRefusedByteByByte reads every refused form one octet at a time: where
// the segments of a connection end must not change what is read.
func TestRefusedByteByByte(t *testing.T) {
	for _, c := range refusedRequests {
		r := bufio.NewReader(oneByOne{reader(c.bytes)})
		if _, err := httpwire.ReadRequest(r, httpwire.Limits{}); err == nil {
			t.Errorf("%s: read in single octets it is accepted", c.what)
		} else if e, ok := errors.AsType[*httpwire.Error](err); !ok || e.Code != c.code {
			t.Errorf("%s: read in single octets: got %v, want code %s", c.what, err, c.code)
		}
	}
}

type oneByOne struct{ r io.Reader }

func (o oneByOne) Read(p []byte) (int, error) { return o.r.Read(p[:min(1, len(p))]) }

const docPath = "../../docs/http1.md"

// TestDocListsRefusedForms keeps docs/http1.md in step with the tables above.
func TestDocListsRefusedForms(t *testing.T) {
	var b bytes.Buffer
	b.WriteString(docHead)
	for _, part := range []struct {
		title, test string
		rows        []refusedForm
	}{
		{"Heads of requests", "TestRefusedRequests", refusedRequests},
		{"Chunked bodies, both directions", "TestRefusedBodies", refusedBodies},
		{"Heads of responses", "TestRefusedResponses", refusedResponses},
		{"Targets", "TestRefusedTargets", refusedTargets},
	} {
		fmt.Fprintf(&b, "\n## %s\n\nEach row is a case of `%s` in `internal/httpwire`.\n\n| refused | section | code | case |\n|---|---|---|---|\n", part.title, part.test)
		for _, r := range part.rows {
			fmt.Fprintf(&b, "| %s | %s | `%s` | `%s` |\n", r.what, r.section, r.code, shown(r.bytes))
		}
	}
	if *update {
		if err := os.WriteFile(docPath, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(docPath)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, b.Bytes()) {
		t.Errorf("%s is not what the tests list; run go test ./internal/httpwire -run DocLists -update", docPath)
	}
}

func shown(s string) string {
	s = strings.ReplaceAll(s, "{H}", "Host: h\r\n")
	s = fmt.Sprintf("%q", s)
	s = s[1 : len(s)-1]
	if len(s) > 100 {
		s = s[:70] + "..."
	}
	return strings.NewReplacer("|", `\|`, "`", "'").Replace(s)
}

const docHead = `# What the HTTP/1.1 codec refuses

## What to do

What real clients, libraries and servers send passes. When one of these refusals comes up all the same:

- ` + "`" + `bawn log --code header_invalid` + "`" + ` shows who sent what, and the detail what was wrong with it (so do the other codes below). ` + "`" + `bawn codes CODE` + "`" + ` says what a code means.
- A refused request was written by a program that breaks the standard, or by somebody who tries whether two readers take it in two ways. Update or mend the program: no rule of a policy can allow it.
- What is not HTTP at all needs a rule that says so: ` + "`" + `ports: [PORT/tcp]` + "`" + ` with ` + "`" + `inspect: none` + "`" + `.
- A refused response (502 for the agent) is the server's fault: tell whoever runs it.

The tables at the end are for those who review Bawn: each row is a case of a test.

## What is refused and tolerated

Generated from the tests of ` + "`internal/httpwire`" + `; do not edit. Sections are those of RFC 9112 unless the row names another document. The same reader serves agents and upstreams. A refused request is answered 400 (431 for a head over its limits) with its code and the connection is closed; a refused response becomes 502.

Tolerated, because what goes out is written anew and is the same to every reader:

- one empty line before a request (section 2.2), spaces after the version (section 3), raw spaces in a query (sent as %20);
- a minor version above 1 is read as HTTP/1.1 (RFC 9110 section 2.5); a GET of HTTP/0.9, with or without the version written, is read as HTTP/1.0 without keep-alive. What is sent is HTTP/1.1;
- a field whose name has blanks or control octets around it, or whose value has control octets other than NUL, CR and LF, is left out, unless it is a field that the framing, the routing or a guard could depend on (Host, the framing and hop-by-hop fields, credentials, every field that may appear only once): such a message is refused. What is left out is neither judged nor sent. Section 5.1 would have the whole request refused for a blank before the colon;
- a body with GET, HEAD, DELETE or OPTIONS (RFC 9110 section 9.3): sent with the upstream connection closed after it, so that a server which overlooks the body cannot take it for a request.

Request trailers are read, checked and dropped. Chunk extensions are checked and dropped. A Connection field takes only the hop-by-hop fields of the standards out of a message; whatever else it names stays.
`
