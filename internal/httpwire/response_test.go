// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package httpwire_test

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"bawn/internal/httpwire"
)

func TestResponseFraming(t *testing.T) {
	for name, c := range map[string]struct {
		method, in string
		framing    httpwire.Framing
		close      bool
		out        string // the head written anew; empty: as it came
	}{
		"a length":                   {"GET", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", httpwire.Framing{Kind: httpwire.Length, Length: 5}, false, ""},
		"no body":                    {"GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", httpwire.Framing{Kind: httpwire.Length}, false, ""},
		"chunked":                    {"GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", httpwire.Framing{Kind: httpwire.Chunked}, false, ""},
		"until close":                {"GET", "HTTP/1.1 200 OK\r\nA: b\r\n\r\n", httpwire.Framing{Kind: httpwire.UntilClose}, true, ""},
		"HEAD":                       {"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", httpwire.Framing{}, false, ""},
		"HEAD of a chunked one":      {"HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", httpwire.Framing{}, false, ""},
		"304 with a length":          {"GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", httpwire.Framing{}, false, ""},
		"204":                        {"GET", "HTTP/1.1 204 No Content\r\n\r\n", httpwire.Framing{}, false, ""},
		"204 with a length of zero":  {"GET", "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", httpwire.Framing{}, false, "HTTP/1.1 204 No Content\r\n\r\n"},
		"204 with a length":          {"GET", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", httpwire.Framing{}, true, "HTTP/1.1 204 No Content\r\n\r\n"},
		"100":                        {"GET", "HTTP/1.1 100 Continue\r\n\r\n", httpwire.Framing{}, false, ""},
		"103 that claims to be more": {"GET", "HTTP/1.1 103 Early Hints\r\nTransfer-Encoding: chunked\r\n\r\n", httpwire.Framing{}, true, "HTTP/1.1 103 Early Hints\r\n\r\n"},
		"Connection: close":          {"GET", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\n", httpwire.Framing{Kind: httpwire.Length, Length: 5}, true, ""},
		"HTTP/1.0":                   {"GET", "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n", httpwire.Framing{Kind: httpwire.Length, Length: 5}, true, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"},
		"no reason":                  {"GET", "HTTP/1.1 200\r\nContent-Length: 5\r\n\r\n", httpwire.Framing{Kind: httpwire.Length, Length: 5}, false, "HTTP/1.1 200 \r\nContent-Length: 5\r\n\r\n"},
		"repeated fields":            {"GET", "HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nContent-Type: a/b\r\nContent-Length: 5\r\n\r\n", httpwire.Framing{Kind: httpwire.Length, Length: 5}, false, ""},
		"a blank before a colon":     {"GET", "HTTP/1.1 200 OK\r\nX-A : b\r\nContent-Length: 5\r\n\r\n", httpwire.Framing{Kind: httpwire.Length, Length: 5}, false, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := httpwire.ReadResponse(reader(c.in), c.method, httpwire.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			if p.Framing != c.framing || p.Close != c.close {
				t.Errorf("got framing %v and close %v, want %v and %v", p.Framing, p.Close, c.framing, c.close)
			}
			if c.out == "" {
				c.out = c.in
			}
			if got := string(httpwire.AppendResponse(nil, p)); got != c.out {
				t.Errorf("written as %q, want %q", got, c.out)
			}
		})
	}
}

func TestBody(t *testing.T) {
	for name, c := range map[string]struct {
		framing            httpwire.Framing
		in, body, trailers string
		rest               string
	}{
		"none":                   {httpwire.Framing{}, "rest", "", "", "rest"},
		"length":                 {httpwire.Framing{Kind: httpwire.Length, Length: 5}, "hellorest", "hello", "", "rest"},
		"until close":            {httpwire.Framing{Kind: httpwire.UntilClose}, "hello", "hello", "", ""},
		"chunks":                 {httpwire.Framing{Kind: httpwire.Chunked}, "5\r\nhello\r\n0006\r\n world\r\n0\r\n\r\nrest", "hello world", "", "rest"},
		"extensions":             {httpwire.Framing{Kind: httpwire.Chunked}, "5;a;b=c;d=\"e;\\\"\"\r\nhello\r\n0;x\r\n\r\nrest", "hello", "", "rest"},
		"trailers":               {httpwire.Framing{Kind: httpwire.Chunked}, "0\r\nA: b\r\nContent-Length: 5\r\nHost: x\r\nC: d\r\n\r\nrest", "", "A=b,C=d,", "rest"},
		"chunk sizes of letters": {httpwire.Framing{Kind: httpwire.Chunked}, "aB\r\n" + strings.Repeat("x", 0xab) + "\r\n00\r\n\r\n", strings.Repeat("x", 0xab), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, in := range []io.Reader{strings.NewReader(c.in), oneByOne{strings.NewReader(c.in)}} {
				r := bufio.NewReader(in)
				var b httpwire.Body
				b.Reset(r, c.framing, httpwire.Limits{})
				got, err := io.ReadAll(&b)
				if err != nil || string(got) != c.body {
					t.Fatalf("got %q, %v, want %q", got, err, c.body)
				}
				if b.Done() != (c.framing.Kind != httpwire.UntilClose) {
					t.Errorf("got done %v", b.Done())
				}
				trailers := ""
				for _, f := range b.Trailers() {
					trailers += f.Name + "=" + f.Value + ","
				}
				if trailers != c.trailers {
					t.Errorf("got trailers %q, want %q", trailers, c.trailers)
				}
				if rest, _ := io.ReadAll(r); string(rest) != c.rest {
					t.Errorf("got %q after the body, want %q", rest, c.rest)
				}
			}
		})
	}
}

// TestBodyReady feeds a chunked body in pieces: Ready must not promise what is
// not there, or a stream would stall, and must know an end that is.
func TestBodyReady(t *testing.T) {
	whole := "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"
	var b httpwire.Body
	p := make([]byte, 100)
	for cut := 1; cut < len(whole); cut++ {
		src := &pieces{left: []string{whole[:cut], whole[cut:]}}
		r := bufio.NewReader(src)
		r.Peek(1)
		b.Reset(r, httpwire.Framing{Kind: httpwire.Chunked}, httpwire.Limits{})
		got := ""
		for {
			ready, given := b.Ready(), src.given
			n, err := b.Read(p)
			got += string(p[:n])
			if ready && src.given != given {
				t.Fatalf("cut at %d, after %q: Ready, but Read asked for more", cut, got)
			}
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if got != "hello world" || !b.Ready() {
			t.Errorf("cut at %d: got %q, ready %v", cut, got, b.Ready())
		}
	}
}

// pieces gives one piece a read, and counts them.
type pieces struct {
	left  []string
	given int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.left) == 0 {
		return 0, io.EOF
	}
	p.given++
	n := copy(b, p.left[0])
	p.left = p.left[1:]
	return n, nil
}

func TestBodyWriter(t *testing.T) {
	for name, c := range map[string]struct {
		framing  httpwire.Framing
		writes   []string
		trailers httpwire.Fields
		want     string
		fails    bool
	}{
		"length":      {httpwire.Framing{Kind: httpwire.Length, Length: 5}, []string{"he", "", "llo"}, nil, "hello", false},
		"too long":    {httpwire.Framing{Kind: httpwire.Length, Length: 5}, []string{"hello!"}, nil, "", true},
		"too short":   {httpwire.Framing{Kind: httpwire.Length, Length: 5}, []string{"hell"}, nil, "hell", true},
		"none":        {httpwire.Framing{}, []string{""}, nil, "", false},
		"more":        {httpwire.Framing{}, []string{"x"}, nil, "", true},
		"until close": {httpwire.Framing{Kind: httpwire.UntilClose}, []string{"x", "y"}, nil, "xy", false},
		"chunks":      {httpwire.Framing{Kind: httpwire.Chunked}, []string{"hello", "", strings.Repeat("x", 31)}, nil, "5\r\nhello\r\n1f\r\n" + strings.Repeat("x", 31) + "\r\n0\r\n\r\n", false},
		"trailers":    {httpwire.Framing{Kind: httpwire.Chunked}, nil, httpwire.Fields{{Name: "A", Value: "b"}}, "0\r\nA: b\r\n\r\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			w := bufio.NewWriter(&out)
			var b httpwire.BodyWriter
			b.Reset(w, c.framing)
			var err error
			for _, s := range c.writes {
				if _, err = b.Write([]byte(s)); err != nil {
					break
				}
			}
			if err == nil {
				err = b.Close(c.trailers)
			}
			w.Flush()
			if (err != nil) != c.fails || out.String() != c.want {
				t.Errorf("got %q, %v, want %q", out.String(), err, c.want)
			}
		})
	}
}

// FuzzResponse checks that what is accepted from an upstream and written for
// an agent is read by net/http as the same response with the same body.
func FuzzResponse(f *testing.F) {
	for _, c := range refusedResponses {
		if len(c.bytes) < 4096 {
			f.Add("GET", []byte(c.bytes))
		}
	}
	f.Add("GET", []byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\n\r\n"))
	f.Add("HEAD", []byte("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"))
	f.Add("GET", []byte("HTTP/1.0 404 \r\nA: b\r\n\r\nbody"))
	f.Add("GET", []byte("HTTP/1.1 204 No\r\nContent-Length: 5\r\n\r\nhello"))
	f.Fuzz(func(t *testing.T, method string, in []byte) {
		if method != "GET" && method != "HEAD" {
			return
		}
		r := bufio.NewReader(bytes.NewReader(in))
		p, err := httpwire.ReadResponse(r, method, httpwire.Limits{})
		if err != nil || p.Informational() || p.Status == 101 {
			return
		}
		var b httpwire.Body
		b.Reset(r, p.Framing, httpwire.Limits{})
		body, err := io.ReadAll(&b)
		if err != nil {
			return
		}
		p.Fields.DelFunc(httpwire.HopByHop)
		out := writeResponse(t, p, body, b.Trailers())
		std, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(out)), &http.Request{Method: method})
		if err != nil {
			t.Fatalf("net/http refuses %q: %v", out, err)
		}
		stdBody, err := io.ReadAll(std.Body)
		if err != nil || std.StatusCode != p.Status || !bytes.Equal(stdBody, body) {
			t.Fatalf("net/http reads %d and %q (%v) in %q, we read %d and %q", std.StatusCode, stdBody, err, out, p.Status, body)
		}
	})
}

func writeResponse(t *testing.T, p *httpwire.Response, body []byte, trailers httpwire.Fields) []byte {
	t.Helper()
	var w bytes.Buffer
	bw := bufio.NewWriter(&w)
	bw.Write(httpwire.AppendResponse(nil, p))
	var bodyOut httpwire.BodyWriter
	bodyOut.Reset(bw, p.Framing)
	if _, err := bodyOut.Write(body); err != nil {
		t.Fatal(err)
	}
	if err := bodyOut.Close(trailers); err != nil {
		t.Fatal(err)
	}
	bw.Flush()
	return w.Bytes()
}
