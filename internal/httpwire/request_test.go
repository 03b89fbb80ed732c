// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package httpwire_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"bawn/internal/httpwire"
)

func TestReadRequest(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		want httpwire.Request
	}{
		"origin-form": {
			"GET /a?b HTTP/1.1\r\nHost: h\r\nAccept:\ta \r\naccept: b\r\n\r\n",
			httpwire.Request{
				Method: "GET", Target: "/a?b", PathQuery: "/a?b", Minor: 1, Host: "h", HasHost: true,
				Fields: httpwire.Fields{{Name: "Host", Value: "h"}, {Name: "Accept", Value: "a"}, {Name: "accept", Value: "b"}},
			},
		},
		"absolute-form": {
			"POST HTTP://h:80?b HTTP/1.1\r\nHost: h\r\nContent-Length: 007\r\n\r\n",
			httpwire.Request{
				Method: "POST", Target: "HTTP://h:80?b", Form: httpwire.Absolute, Scheme: "http", Authority: "h:80",
				PathQuery: "/?b", Minor: 1, Host: "h", HasHost: true,
				Fields:  httpwire.Fields{{Name: "Host", Value: "h"}, {Name: "Content-Length", Value: "7"}},
				Framing: httpwire.Framing{Kind: httpwire.Length, Length: 7},
			},
		},
		"CONNECT in HTTP/1.0": {
			"CONNECT h:443 HTTP/1.0\r\n\r\n",
			httpwire.Request{Method: "CONNECT", Target: "h:443", Form: httpwire.Authority, Authority: "h:443", Close: true},
		},
		"asterisk-form": {
			"OPTIONS * HTTP/1.1\r\nHost: h\r\nConnection: Close\r\n\r\n",
			httpwire.Request{
				Method: "OPTIONS", Target: "*", Form: httpwire.Asterisk, Minor: 1, Host: "h", HasHost: true, Close: true,
				Fields: httpwire.Fields{{Name: "Host", Value: "h"}, {Name: "Connection", Value: "Close"}},
			},
		},
		"chunked, an expectation, an upgrade": {
			"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: CHUNKED\r\nExpect: 100-Continue\r\nConnection: x, Upgrade\r\nUpgrade: websocket\r\n\r\n",
			httpwire.Request{
				Method: "PUT", Target: "/", PathQuery: "/", Minor: 1, Host: "h", HasHost: true, Expect: true, Upgrade: "websocket",
				Framing: httpwire.Framing{Kind: httpwire.Chunked},
				Fields: httpwire.Fields{
					{Name: "Host", Value: "h"},
					{Name: "Transfer-Encoding", Value: "chunked"},
					{Name: "Expect", Value: "100-Continue"},
					{Name: "Connection", Value: "x, Upgrade"},
					{Name: "Upgrade", Value: "websocket"},
				},
			},
		},
		"keep-alive in HTTP/1.0": {
			"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
			httpwire.Request{
				Method: "GET", Target: "/", PathQuery: "/",
				Fields: httpwire.Fields{{Name: "Connection", Value: "keep-alive"}},
			},
		},
		"an empty line before, a space after the version, spaces in the query, a later minor version": {
			"\r\nGET /?a b HTTP/1.7 \r\nHost:\r\n\r\n",
			httpwire.Request{
				Method: "GET", Target: "/?a%20b", PathQuery: "/?a%20b", Minor: 1, HasHost: true,
				Fields: httpwire.Fields{{Name: "Host"}},
			},
		},
		"HTTP/0.9 without a version": {
			"GET /\r\n\r\n",
			httpwire.Request{Method: "GET", Target: "/", PathQuery: "/", Close: true, Fields: httpwire.Fields{}},
		},
		"malformed fields that mean nothing are dropped": {
			"GET / HTTP/1.1\r\nX-Custom : a\r\n\x01X-More: b\r\nX-Last: c\x02\r\nHost: h\r\n\r\n",
			httpwire.Request{
				Method: "GET", Target: "/", PathQuery: "/", Minor: 1, Host: "h", HasHost: true, Dropped: 3,
				Fields: httpwire.Fields{{Name: "Host", Value: "h"}},
			},
		},
		"repeated list fields": {
			"GET / HTTP/1.1\r\nHost: h\r\nCookie: a\r\nCookie: b\r\n\r\n",
			httpwire.Request{
				Method: "GET", Target: "/", PathQuery: "/", Minor: 1, Host: "h", HasHost: true,
				Fields: httpwire.Fields{{Name: "Host", Value: "h"}, {Name: "Cookie", Value: "a"}, {Name: "Cookie", Value: "b"}},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := httpwire.ReadRequest(reader(c.in), httpwire.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Fields) == 0 && len(c.want.Fields) == 0 {
				got.Fields = c.want.Fields
			}
			if diff := cmp.Diff(c.want, *got); diff != "" {
				t.Errorf("want -, got +\n%s", diff)
			}
		})
	}
}

// TestReadRequestPipelined reads two requests that came in one piece: the
// second begins where the body of the first ends.
func TestReadRequestPipelined(t *testing.T) {
	r := reader("POST /ok HTTP/1.1\r\n{H}Content-Length: 5\r\n\r\nhello\r\nDELETE /x HTTP/1.1\r\n{H}\r\n")
	var q httpwire.Request
	var b httpwire.Body
	if err := q.Read(r, httpwire.Limits{}); err != nil {
		t.Fatal(err)
	}
	b.Reset(r, q.Framing, httpwire.Limits{})
	if body, err := io.ReadAll(&b); err != nil || string(body) != "hello" || !b.Done() {
		t.Fatalf("got body %q, %v, done %v", body, err, b.Done())
	}
	if err := q.Read(r, httpwire.Limits{}); err != nil || q.Method != "DELETE" || q.Target != "/x" {
		t.Fatalf("got second request %s %s, %v", q.Method, q.Target, err)
	}
	if err := q.Read(r, httpwire.Limits{}); !errors.Is(err, io.EOF) {
		t.Errorf("after the last request: got %v, want EOF", err)
	}
}

func TestReadRequestCutShort(t *testing.T) {
	whole := "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
	for i := 1; i < len(whole); i++ {
		if _, err := httpwire.ReadRequest(reader(whole[:i]), httpwire.Limits{}); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("after %q: got %v, want an unexpected end", whole[:i], err)
		}
	}
}

func TestReadRequestLongerThanBuffer(t *testing.T) {
	long := strings.Repeat("a", 20_000)
	r := bufio.NewReaderSize(strings.NewReader("GET / HTTP/1.1\r\nHost: h\r\nA: "+long+"\r\n\r\nrest"), 4096)
	q, err := httpwire.ReadRequest(r, httpwire.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if v, _ := q.Fields.Get("a"); v != long {
		t.Errorf("got a value of %d octets, want %d", len(v), len(long))
	}
	if rest, _ := io.ReadAll(r); string(rest) != "rest" {
		t.Errorf("got %q after the head, want %q", rest, "rest")
	}
}

func TestHopByHop(t *testing.T) {
	for _, name := range []string{"Connection", "keep-alive", "PROXY-AUTHORIZATION", "Te", "Trailer", "Upgrade", "Proxy-Connection", "HTTP2-Settings"} {
		if !httpwire.HopByHop(name) {
			t.Errorf("%s is not hop-by-hop", name)
		}
	}
	for _, name := range []string{"Authorization", "Via", "Host", "Content-Length", "X-Guard", ""} {
		if httpwire.HopByHop(name) {
			t.Errorf("%s is hop-by-hop", name)
		}
	}
}

func TestFieldsSet(t *testing.T) {
	f := httpwire.Fields{{Name: "A", Value: "1"}, {Name: "b", Value: "2"}, {Name: "a", Value: "3"}}
	if err := f.Set("a", "4"); err != nil {
		t.Fatal(err)
	}
	if err := f.Set("C", "5"); err != nil {
		t.Fatal(err)
	}
	want := httpwire.Fields{{Name: "A", Value: "4"}, {Name: "b", Value: "2"}, {Name: "C", Value: "5"}}
	if diff := cmp.Diff(want, f); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
	for name, value := range map[string]string{"a b": "c", "a": "b\r\nc: d", "": "x", "d": " x", "e": "\x00"} {
		if err := f.Set(name, value); err == nil {
			t.Errorf("%q: %q was set", name, value)
		}
	}
	f.Del("a")
	if f.Count("a") != 0 || f.Count("b") != 1 || len(f) != 2 {
		t.Errorf("after Del: %v", f)
	}
}

func TestSetFraming(t *testing.T) {
	q, err := httpwire.ReadRequest(reader("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n{H}\r\n"), httpwire.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	q.SetFraming(httpwire.Framing{Kind: httpwire.Length, Length: 3})
	if got, want := string(httpwire.AppendRequest(nil, q, "/")), "POST / HTTP/1.1\r\nContent-Length: 3\r\nHost: h\r\n\r\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	q.SetFraming(httpwire.Framing{})
	q.SetFraming(httpwire.Framing{Kind: httpwire.Chunked})
	if got, want := string(httpwire.AppendRequest(nil, q, "/")), "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// rewrite reads one request with its body and writes it as the proxy would.
// It returns nil where the request is refused or incomplete.
func rewrite(in []byte) (q *httpwire.Request, body, out []byte) {
	r := bufio.NewReader(bytes.NewReader(in))
	q, err := httpwire.ReadRequest(r, httpwire.Limits{})
	if err != nil || q.Form == httpwire.Authority || q.Form == httpwire.Asterisk || !q.HasHost {
		return nil, nil, nil
	}
	path, query, err := httpwire.CanonicalTarget(q.PathQuery)
	if err != nil {
		return nil, nil, nil
	}
	var b httpwire.Body
	b.Reset(r, q.Framing, httpwire.Limits{})
	if body, err = io.ReadAll(&b); err != nil {
		return nil, nil, nil
	}
	q.Fields.DelFunc(httpwire.HopByHop)
	var w bytes.Buffer
	bw := bufio.NewWriter(&w)
	bw.Write(httpwire.AppendRequest(nil, q, path+query))
	var bodyOut httpwire.BodyWriter
	bodyOut.Reset(bw, q.Framing)
	if _, err := bodyOut.Write(body); err != nil {
		return nil, nil, nil
	}
	if err := bodyOut.Close(nil); err != nil {
		return nil, nil, nil
	}
	bw.Flush()
	return q, body, w.Bytes()
}

// checkRewritten is the oracle: net/http reads what was written as the same
// request that we judged, with nothing left over, and our own reader reads
// and writes it once more without a change.
func checkRewritten(t *testing.T, q *httpwire.Request, body, out []byte) {
	t.Helper()
	r := bufio.NewReader(bytes.NewReader(out))
	std, err := http.ReadRequest(r)
	if err != nil {
		t.Fatalf("net/http refuses %q: %v", out, err)
	}
	stdBody, err := io.ReadAll(std.Body)
	if err != nil {
		t.Fatalf("net/http cannot read the body of %q: %v", out, err)
	}
	path, query, _ := httpwire.CanonicalTarget(q.PathQuery)
	if std.Method != q.Method || std.RequestURI != path+query || std.Host != q.Host {
		t.Errorf("net/http reads %s %s of %q, we judged %s %s of %q", std.Method, std.RequestURI, std.Host, q.Method, path+query, q.Host)
	}
	if !bytes.Equal(stdBody, body) {
		t.Errorf("net/http reads body %q, we read %q", stdBody, body)
	}
	if rest, _ := io.ReadAll(r); len(rest) > 0 {
		t.Errorf("net/http leaves %q of %q", rest, out)
	}
	fields := 0
	for _, v := range std.Header {
		fields += len(v)
	}
	want := 0
	for _, f := range q.Fields {
		switch strings.ToLower(f.Name) {
		case "host", "transfer-encoding", "trailer":
		default:
			want++
		}
	}
	if q.BodyUnexpected() {
		want++ // Connection
		if !std.Close {
			t.Errorf("a body that the server may overlook goes up without Connection: close in %q", out)
		}
	}
	if fields != want {
		t.Errorf("net/http reads %d fields in %q, we judged %d", fields, out, want)
	}
	_, body2, out2 := rewrite(out)
	if !bytes.Equal(out, out2) || !bytes.Equal(body, body2) {
		t.Errorf("%q is rewritten as %q", out, out2)
	}
}

func FuzzRequest(f *testing.F) {
	for _, rows := range [][]refusedForm{refusedRequests, refusedBodies} {
		for _, c := range rows {
			if len(c.bytes) < 4096 {
				f.Add([]byte(strings.ReplaceAll(c.bytes, "{H}", "Host: h\r\n")))
			}
		}
	}
	f.Add([]byte("GET http://h/a?b c HTTP/1.2\r\nhost:h\r\nX : y\r\nConnection: a, upgrade\r\nUpgrade: h2c\r\n\r\n"))
	f.Add([]byte("POST /%7e/ HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5;a=\"b\"\r\nhello\r\n0\r\nT: u\r\n\r\n"))
	f.Add([]byte("POST / HTTP/1.0\r\nHost: h\r\nContent-Length: 05\r\n\r\nhello"))
	f.Fuzz(func(t *testing.T, in []byte) {
		if q, body, out := rewrite(in); q != nil {
			checkRewritten(t, q, body, out)
		}
	})
}

func BenchmarkReadRequest(b *testing.B) {
	head := []byte("GET /v1/things/12345?limit=2&after=abc HTTP/1.1\r\nHost: api.example.com\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\nAccept-Encoding: gzip, deflate, br\r\nAuthorization: Bearer abcdefghijklmnopqrstuvwxyz0123456789\r\nContent-Type: application/json\r\nX-Request-Id: 0123456789abcdef\r\nConnection: keep-alive\r\n\r\n")
	src := bytes.NewReader(nil)
	r := bufio.NewReader(src)
	var q httpwire.Request
	var out []byte
	b.ReportAllocs()
	for b.Loop() {
		src.Reset(head)
		r.Reset(src)
		if err := q.Read(r, httpwire.Limits{}); err != nil {
			b.Fatal(err)
		}
		path, query, err := httpwire.CanonicalTarget(q.PathQuery)
		if err != nil || query == "" {
			b.Fatal(err)
		}
		q.Fields.DelFunc(httpwire.HopByHop)
		out = httpwire.AppendRequest(out[:0], &q, path+query)
	}
}
