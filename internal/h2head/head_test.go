// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package h2head_test

import (
	"bufio"
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/net/http2/hpack"

	"bawn/internal/h2head"
	"bawn/internal/httpwire"
)

func TestRequest(t *testing.T) {
	for name, c := range map[string]struct {
		list []hpack.HeaderField
		open bool
		want httpwire.Request
	}{
		"a request without a body": {
			get("accept=*/*", "priority=u=1"), false,
			httpwire.Request{Method: "GET", Target: "/", PathQuery: "/", Fields: fields("Host=h", "accept=*/*", "priority=u=1")},
		},
		"a length": {
			post("content-length=007", "expect=100-continue"), true,
			httpwire.Request{
				Method: "POST", Target: "/", PathQuery: "/", Expect: true,
				Framing: httpwire.Framing{Kind: httpwire.Length, Length: 7},
				Fields:  fields("Host=h", "content-length=7", "expect=100-continue"),
			},
		},
		"no body, and a length that says so": {
			post("content-length=0"), false,
			httpwire.Request{
				Method: "POST", Target: "/", PathQuery: "/", Framing: httpwire.Framing{Kind: httpwire.Length},
				Fields: fields("Host=h", "content-length=0"),
			},
		},
		"an unknown length": {
			post(), true,
			httpwire.Request{
				Method: "POST", Target: "/", PathQuery: "/", Framing: httpwire.Framing{Kind: httpwire.Chunked}, Fields: fields("Host=h"),
			},
		},
		"a host field that agrees": {
			get("host=H"), false,
			httpwire.Request{Method: "GET", Target: "/", PathQuery: "/", Fields: fields("Host=h")},
		},
		"a host field alone": {
			list(":path=/a?b", ":scheme=HTTPS", ":method=GET", "a=b", "host=h"), false,
			httpwire.Request{Method: "GET", Target: "/a?b", PathQuery: "/a?b", Fields: fields("Host=h", "a=b")},
		},
		"cookies in pieces": {
			get("cookie=a=1", "x=y", "cookie=b=2", "cookie=c=3"), false,
			httpwire.Request{Method: "GET", Target: "/", PathQuery: "/", Fields: fields("Host=h", "cookie=a=1; b=2; c=3", "x=y")},
		},
		"te goes": {
			get("te=trailers"), false,
			httpwire.Request{Method: "GET", Target: "/", PathQuery: "/", Fields: fields("Host=h")},
		},
		"te stays with gRPC": {
			post("te=trailers", "content-type=application/grpc+proto"), true,
			httpwire.Request{
				Method: "POST", Target: "/", PathQuery: "/", Framing: httpwire.Framing{Kind: httpwire.Chunked},
				Fields: fields("Host=h", "content-type=application/grpc+proto", "te=trailers"),
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := h2head.Request(c.list, !c.open, httpwire.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			c.want.Minor, c.want.Host, c.want.HasHost, c.want.Scheme, c.want.Authority = 1, "h", true, "https", "h"
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestRefusedRequestSaysWhatItAsked: the record of a refusal names its target.
func TestRefusedRequestSaysWhatItAsked(t *testing.T) {
	for _, bad := range []string{"connection=close", "A=b", "a=\x00", "content-length=x", "host=x"} {
		q, err := h2head.Request(get(bad), true, httpwire.Limits{})
		if err == nil || q.Method != "GET" || q.Target != "/" || q.Authority != "h" {
			t.Errorf("%q: %v, and the head is %+v", bad, err, q)
		}
	}
}

func fields(lines ...string) httpwire.Fields {
	var out httpwire.Fields
	for _, f := range list(lines...) {
		out = append(out, httpwire.Field{Name: f.Name, Value: f.Value})
	}
	return out
}

func TestAppendRequest(t *testing.T) {
	q := httpwire.Request{Method: "POST", Fields: fields(
		"Host=h:8443", "Content-Type=a/b", "X-Own=1", "Connection=close", "Transfer-Encoding=chunked", "TE=trailers",
		"Keep-Alive=1", "Proxy-Connection=x", "Upgrade=y", "HTTP2-Settings=z", "Cookie=a=1", "authorization=s")}
	got := h2head.AppendRequest(nil, &q, "https", "/p?q")
	want := list(":method=POST", ":scheme=https", ":authority=h:8443", ":path=/p?q", "content-type=a/b", "x-own=1", "cookie=a=1", "authorization=s")
	want[6].Sensitive, want[7].Sensitive = true, true
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestResponse(t *testing.T) {
	chunked := httpwire.Framing{Kind: httpwire.Chunked}
	for name, c := range map[string]struct {
		list   []hpack.HeaderField
		method string
		open   bool
		want   httpwire.Response
	}{
		"a length":                 {list(":status=200", "content-length=5"), "GET", true, httpwire.Response{Status: 200, Fields: fields("content-length=5"), Framing: httpwire.Framing{Kind: httpwire.Length, Length: 5}}},
		"an unknown length":        {list(":status=200", "a= b\t"), "GET", true, httpwire.Response{Status: 200, Fields: fields("a=b"), Framing: chunked}},
		"no body":                  {list(":status=200"), "GET", false, httpwire.Response{Status: 200, Fields: fields()}},
		"HEAD":                     {list(":status=200", "content-length=5"), "HEAD", false, httpwire.Response{Status: 200, Fields: fields("content-length=5")}},
		"HEAD, not yet at its end": {list(":status=200"), "HEAD", true, httpwire.Response{Status: 200}},
		"304":                      {list(":status=304", "content-length=5"), "GET", false, httpwire.Response{Status: 304, Fields: fields("content-length=5")}},
		"204 with a length":        {list(":status=204", "content-length=5"), "GET", true, httpwire.Response{Status: 204}},
		"103":                      {list(":status=103", "link=x"), "GET", true, httpwire.Response{Status: 103, Fields: fields("link=x")}},
		"two cookies":              {list(":status=200", "set-cookie=a", "set-cookie=b", "te=trailers"), "GET", false, httpwire.Response{Status: 200, Fields: fields("set-cookie=a", "set-cookie=b")}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := h2head.Response(c.list, !c.open, c.method, httpwire.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			c.want.Minor = 1
			if len(c.want.Fields) == 0 {
				c.want.Fields = httpwire.Fields{}
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestAppendResponse(t *testing.T) {
	p := httpwire.Response{Status: 404, Reason: "Not Found", Fields: fields("Content-Length=5", "Connection=close", "Set-Cookie=a=1", "Date=now")}
	got := h2head.AppendResponse(nil, &p)
	if d := cmp.Diff(list(":status=404", "content-length=5", "set-cookie=a=1", "date=now"), got); d != "" {
		t.Error(d)
	}
}

func TestTrailers(t *testing.T) {
	got, err := h2head.Trailers(list("grpc-status=0", "content-length=5", "host=x", "grpc-message= ok "), httpwire.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(fields("grpc-status=0", "grpc-message=ok"), got); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(list("grpc-status=0", "grpc-message=ok"), h2head.AppendTrailers(nil, got)); d != "" {
		t.Error(d)
	}
}

// decode reads the fuzzer's bytes as lines of name and value, of which the
// first octet says where the value begins.
func decode(data []byte) []hpack.HeaderField {
	var out []hpack.HeaderField
	for len(data) > 1 {
		name := min(int(data[0]), len(data)-1)
		rest := data[1:]
		n := bytes.IndexByte(rest[name:], 0xff)
		if n < 0 {
			n = len(rest) - name
		}
		out = append(out, hpack.HeaderField{Name: string(rest[:name]), Value: string(rest[name : name+n])})
		data = rest[min(name+n+1, len(rest)):]
	}
	return out
}

func encode(list []hpack.HeaderField) []byte {
	var out []byte
	for _, f := range list {
		out = append(out, byte(len(f.Name)))
		out = append(out, f.Name...)
		out = append(append(out, f.Value...), 0xff)
	}
	return out
}

// FuzzRequest holds the mapping to its promise: what it accepts comes back the
// same from a list, and reads the same when it is sent as HTTP/1.1.
func FuzzRequest(f *testing.F) {
	for _, c := range refusedLists {
		if len(c.list) < 100 && c.code != "head_too_large" {
			f.Add(encode(c.list), c.open)
		}
	}
	f.Add(encode(post("te=trailers", "content-type=application/grpc", "cookie=a", "cookie=b", "trailer=x")), true)
	f.Add(encode(get("host=H", "accept=a", "content-length=0")), false)
	f.Fuzz(func(t *testing.T, data []byte, open bool) {
		q, err := h2head.Request(decode(data), !open, httpwire.Limits{})
		if err != nil {
			if _, ok := errors.AsType[*httpwire.Error](err); !ok {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		again, err := h2head.Request(plainly(h2head.AppendRequest(nil, &q, q.Scheme, q.PathQuery)), !open, httpwire.Limits{})
		if err != nil {
			t.Fatalf("%+v comes back as %v", q, err)
		}
		if d := cmp.Diff(q, again); d != "" {
			t.Fatal(d)
		}
		asText(t, &q)
	})
}

// plainly is list as it arrives: that a value is secret stays with the sender.
func plainly(list []hpack.HeaderField) []hpack.HeaderField {
	for i := range list {
		list[i].Sensitive = false
	}
	return list
}

// asText sends q as HTTP/1.1 and expects to read the same, and nothing more.
func asText(t *testing.T, q *httpwire.Request) {
	t.Helper()
	q.SetFraming(q.Framing)
	text := httpwire.AppendRequest(nil, q, q.PathQuery)
	r := bufio.NewReader(bytes.NewReader(text))
	got, err := httpwire.ReadRequest(r, httpwire.Limits{})
	if err != nil {
		t.Fatalf("%q is refused: %v", text, err)
	}
	want := *q
	want.Scheme, want.Authority = "", ""
	if q.BodyUnexpected() {
		want.Close, want.Fields = true, append(want.Fields, httpwire.Field{Name: "Connection", Value: "close"})
	}
	if d := cmp.Diff(&want, got); d != "" {
		t.Fatalf("%q reads differently: %s", text, d)
	}
	if r.Buffered() > 0 {
		t.Fatalf("%q is more than a head", text)
	}
}

// FuzzResponse is FuzzRequest for responses.
func FuzzResponse(f *testing.F) {
	for _, c := range refusedAnswers {
		if c.code != "head_too_large" {
			f.Add(encode(c.list), "GET", c.open)
		}
	}
	f.Add(encode(list(":status=200", "content-length=5", "set-cookie=a", "a=b")), "GET", true)
	f.Add(encode(list(":status=304", "content-length=5")), "GET", false)
	f.Add(encode(list(":status=204", "content-length=0")), "HEAD", true)
	f.Fuzz(func(t *testing.T, data []byte, method string, open bool) {
		p, err := h2head.Response(decode(data), !open, method, httpwire.Limits{})
		if err != nil {
			if _, ok := errors.AsType[*httpwire.Error](err); !ok {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		again, err := h2head.Response(h2head.AppendResponse(nil, &p), !open, method, httpwire.Limits{})
		if err != nil {
			t.Fatalf("%+v comes back as %v", p, err)
		}
		if d := cmp.Diff(p, again); d != "" {
			t.Fatal(d)
		}
		answerAsText(t, &p, method)
	})
}

func answerAsText(t *testing.T, p *httpwire.Response, method string) {
	t.Helper()
	if _, said := p.Fields.Get("content-length"); p.Status >= 200 && p.Status != 204 && p.Status != 304 && method != "HEAD" && !said {
		if p.Framing.Kind == httpwire.None {
			p.SetFraming(httpwire.Framing{Kind: httpwire.Length})
		} else {
			p.SetFraming(httpwire.Framing{Kind: httpwire.Chunked})
		}
	}
	text := httpwire.AppendResponse(nil, p)
	r := bufio.NewReader(bytes.NewReader(text))
	got, err := httpwire.ReadResponse(r, method, httpwire.Limits{})
	if err != nil {
		t.Fatalf("%q is refused: %v", text, err)
	}
	if d := cmp.Diff(p, got, cmpopts.EquateEmpty()); d != "" {
		t.Fatalf("%q reads differently: %s", text, d)
	}
	if r.Buffered() > 0 {
		t.Fatalf("%q is more than a head", text)
	}
}

// FuzzTrailers has the trailers read back from a list and from chunks.
func FuzzTrailers(f *testing.F) {
	f.Add(encode(list("grpc-status=0", "grpc-message= ok ")))
	f.Add(encode(list("content-length=5", "a=b")))
	f.Fuzz(func(t *testing.T, data []byte) {
		fields, err := h2head.Trailers(decode(data), httpwire.Limits{})
		if err != nil {
			return
		}
		again, err := h2head.Trailers(plainly(h2head.AppendTrailers(nil, fields)), httpwire.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(fields, again); d != "" {
			t.Fatal(d)
		}
		var text bytes.Buffer
		w := bufio.NewWriter(&text)
		var to httpwire.BodyWriter
		to.Reset(w, httpwire.Framing{Kind: httpwire.Chunked})
		to.Close(fields)
		w.Flush()
		var b httpwire.Body
		b.Reset(bufio.NewReaderSize(&text, 64<<10), httpwire.Framing{Kind: httpwire.Chunked}, httpwire.Limits{Extra: 64 << 10})
		for err == nil {
			_, err = b.Read(make([]byte, 1))
		}
		if !b.Done() {
			t.Fatalf("%v as chunks: %v", fields, err)
		}
		if len(fields) > 0 || len(b.Trailers()) > 0 {
			if d := cmp.Diff(fields, b.Trailers()); d != "" {
				t.Fatal(d)
			}
		}
	})
}

func BenchmarkRequest(b *testing.B) {
	l := get("accept=*/*", "user-agent=x", "content-type=application/json", "cookie="+strings.Repeat("c", 40), "authorization=Bearer x")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := h2head.Request(l, true, httpwire.Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendRequest(b *testing.B) {
	q := httpwire.Request{Method: "POST", Fields: fields("Host=h", "Content-Type=a/b", "Accept=1", "Content-Length=5", "User-Agent=x")}
	var dst []hpack.HeaderField
	b.ReportAllocs()
	for b.Loop() {
		dst = h2head.AppendRequest(dst[:0], &q, "https", "/")
	}
}
