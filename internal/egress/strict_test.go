// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"bawn/internal/codes"
	"bawn/internal/netplan"
)

// TestI5AmbiguousIsRefused sends malformed requests through a tunnel: each is
// answered with its code, the connection ends, and nothing goes out.
func TestI5AmbiguousIsRefused(t *testing.T) {
	const host = "Host: api.example.com\r\n"
	for name, c := range map[string]struct {
		in   string
		code codes.Code
		keep bool // the connection goes on
	}{
		"no Host":                        {"GET /v1/a HTTP/1.1\r\n\r\n", codes.HostHeaderInvalid, false},
		"no Host in HTTP/1.0":            {"GET /v1/a HTTP/1.0\r\n\r\n", codes.HostHeaderInvalid, false},
		"two Hosts":                      {"GET /v1/a HTTP/1.1\r\n" + host + "Host: evil.example\r\n\r\n", codes.HostHeaderInvalid, false},
		"another Host":                   {"GET /v1/a HTTP/1.1\r\nHost: evil.example\r\n\r\n", codes.HostHeaderInvalid, true},
		"another port in Host":           {"GET /v1/a HTTP/1.1\r\nHost: api.example.com:444\r\n\r\n", codes.HostHeaderInvalid, true},
		"an address in Host":             {"GET /v1/a HTTP/1.1\r\nHost: 93.184.215.14\r\n\r\n", codes.HostHeaderInvalid, true},
		"userinfo in Host":               {"GET /v1/a HTTP/1.1\r\nHost: a@api.example.com\r\n\r\n", codes.HostHeaderInvalid, true},
		"an absolute target of another":  {"GET https://evil.example/v1/a HTTP/1.1\r\n" + host + "\r\n", codes.AuthorityMismatch, true},
		"an absolute target of http":     {"GET http://api.example.com/v1/a HTTP/1.1\r\n" + host + "\r\n", codes.AuthorityMismatch, true},
		"CONNECT in a tunnel":            {"CONNECT api.example.com:443 HTTP/1.1\r\n" + host + "\r\n", codes.MethodNotAllowed, true},
		"the target *":                   {"OPTIONS * HTTP/1.1\r\n" + host + "\r\n", codes.TargetInvalid, true},
		"the preface of HTTP/2":          {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", codes.ProtocolError, false},
		"CL and TE":                      {"POST /v1/a HTTP/1.1\r\n" + host + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", codes.FramingInvalid, false},
		"a bare CR":                      {"GET /v1/a HTTP/1.1\r\n" + host + "A: b\rAuthorization: x\r\n\r\n", codes.HeaderInvalid, false},
		"a bare LF":                      {"GET /v1/a HTTP/1.1\n" + host + "\n", codes.HeaderInvalid, false},
		"two Content-Encodings":          {"POST /v1/a HTTP/1.1\r\n" + host + "Content-Encoding: gzip\r\nContent-Encoding: identity\r\nContent-Length: 0\r\n\r\n", codes.HeaderDuplicate, false},
		"a head too large":               {"GET /v1/a HTTP/1.1\r\n" + host + "A: " + strings.Repeat("a", 65<<10), codes.HeadTooLarge, false},
		"a dot segment":                  {"GET /v1/../admin HTTP/1.1\r\n" + host + "\r\n", codes.TargetInvalid, true},
		"a WebSocket":                    {"GET /v1/a HTTP/1.1\r\n" + host + "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n\r\n", codes.WebSocketNotAllowed, true},
		"a large body to a refused path": {"POST /admin HTTP/1.1\r\n" + host + "Content-Length: 100000000\r\n\r\nabc", codes.PathNotAllowed, false},
		"a chunked body to one":          {"POST /admin HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n", codes.PathNotAllowed, false},
		"one that waits for 100":         {"POST /admin HTTP/1.1\r\n" + host + "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n", codes.PathNotAllowed, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, basic)
			conn := r.tunnel(r.listen(netplan.Explicit), apiHost)
			fmt.Fprint(conn, c.in)
			br := bufio.NewReader(conn)
			res, err := http.ReadResponse(br, &http.Request{Method: "GET"})
			must(t, err)
			wantDenial(t, res, codes.StatusOf(c.code), c.code)
			if res.Close == c.keep {
				t.Errorf("Connection: close is %v", res.Close)
			}
			if d := r.journal.lastDecision(t, 1); d.Code != c.code {
				t.Errorf("on record as %s", d.Code)
			}
			if !c.keep {
				if rest, err := io.ReadAll(br); len(rest) > 0 || err != nil {
					t.Errorf("after the denial: %q, %v", rest, err)
				}
			}
			if r.net.lookups()+r.net.dials() != 0 {
				t.Error("asked or dialled")
			}
		})
	}
}

func TestExplicitRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		code codes.Code
	}{
		"a path only":                   {"GET /v1/a HTTP/1.1\r\nHost: api.example.com\r\n\r\n", codes.TargetInvalid},
		"https without TLS":             {"GET https://api.example.com/v1/a HTTP/1.1\r\nHost: api.example.com\r\n\r\n", codes.PlainHTTPDenied},
		"a port that speaks TLS":        {"GET http://api.example.com:443/v1/a HTTP/1.1\r\nHost: api.example.com:443\r\n\r\n", codes.PlainHTTPDenied},
		"Host of another":               {"GET http://api.example.com/v1/a HTTP/1.1\r\nHost: evil.example\r\n\r\n", codes.HostHeaderInvalid},
		"a port with letters":           {"GET http://api.example.com:8x0/v1/a HTTP/1.1\r\nHost: api.example.com\r\n\r\n", codes.HostInvalid},
		"an escaped host":               {"GET http://%65vil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n", codes.HostInvalid},
		"garbage before an address":     {"GET http://api.example.com[::1]/ HTTP/1.1\r\nHost: api.example.com\r\n\r\n", codes.HostInvalid},
		"octal loopback":                {"GET http://0177.0.0.1/ HTTP/1.1\r\nHost: 0177.0.0.1\r\n\r\n", codes.IPLiteralDenied},
		"CONNECT without a port":        {"CONNECT api.example.com HTTP/1.1\r\nHost: api.example.com\r\n\r\n", codes.HostInvalid},
		"CONNECT with a bad port":       {"CONNECT api.example.com:4a3 HTTP/1.1\r\nHost: api.example.com\r\n\r\n", codes.HostInvalid},
		"CONNECT with a signed port":    {"CONNECT api.example.com:+443 HTTP/1.1\r\nHost: api.example.com\r\n\r\n", codes.HostInvalid},
		"CONNECT with userinfo":         {"CONNECT a@api.example.com:443 HTTP/1.1\r\nHost: api.example.com\r\n\r\n", codes.HostInvalid},
		"CONNECT with NUL":              {"CONNECT evil.example\x00.api.example.com:443 HTTP/1.1\r\nHost: api.example.com\r\n\r\n", codes.TargetInvalid},
		"CONNECT with two final dots":   {"CONNECT api.example.com..:443 HTTP/1.1\r\nHost: api.example.com\r\n\r\n", codes.HostInvalid},
		"CONNECT with a zone":           {"CONNECT [::1%25.api.example.com]:443 HTTP/1.1\r\nHost: api.example.com\r\n\r\n", codes.HostInvalid},
		"CONNECT and another Host":      {"CONNECT api.example.com:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n", codes.HostHeaderInvalid},
		"CONNECT and another Host port": {"CONNECT api.example.com:443 HTTP/1.1\r\nHost: api.example.com:80\r\n\r\n", codes.HostHeaderInvalid},
		"TLS to the proxy itself":       {"\x16\x03\x01\x00\x05hello", codes.ProtocolError},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, basic)
			conn := r.dial(r.listen(netplan.Explicit))
			fmt.Fprint(conn, c.in)
			res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: "GET"})
			must(t, err)
			wantDenial(t, res, codes.StatusOf(c.code), c.code)
			if d := r.journal.lastDecision(t, 1); d.Code != c.code {
				t.Errorf("on record as %s", d.Code)
			}
			if r.net.lookups()+r.net.dials() != 0 {
				t.Error("asked or dialled")
			}
		})
	}
}

// TestForwardedExactly compares, octet for octet, what goes up.
func TestForwardedExactly(t *testing.T) {
	for name, c := range map[string]struct{ in, up string }{
		"order and case are kept, connection fields go": {
			"GET /v1/a?b=1 HTTP/1.1\r\nHost: API.example.com.\r\naccept: x\r\nProxy-Connection: keep-alive\r\nVia: 1.1 me\r\nTE: trailers\r\nX-b:y\r\nKeep-Alive: 5\r\nProxy-Authorization: Basic eA==\r\n\r\n",
			"GET /v1/a?b=1 HTTP/1.1\r\nHost: api.example.com\r\naccept: x\r\nVia: 1.1 me\r\nX-b: y\r\n\r\n",
		},
		"Connection takes no end-to-end fields": {
			"GET /v1/a HTTP/1.1\r\nHost: api.example.com:443\r\nConnection: authorization, x-guard\r\nAuthorization: a\r\nX-Guard: b\r\n\r\n",
			"GET /v1/a HTTP/1.1\r\nHost: api.example.com:443\r\nAuthorization: a\r\nX-Guard: b\r\n\r\n",
		},
		"h2c and method overrides": {
			"GET /v1/a HTTP/1.1\r\nHost: api.example.com\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\nX-HTTP-Method-Override: DELETE\r\nX-Method-Override: DELETE\r\nX-HTTP-Method: DELETE\r\n\r\n",
			"GET /v1/a HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
		},
		"an absolute target of the tunnel's own host": {
			"GET https://API.example.com:443/v1/%61 HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
			"GET /v1/a HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
		},
		"chunks are written anew, trailers dropped": {
			"POST /v1/a HTTP/1.1\r\nHost: api.example.com\r\nTrailer: X\r\nTransfer-Encoding: Chunked\r\n\r\n5;ext=1\r\nhello\r\n0\r\nX: y\r\n\r\n",
			"POST /v1/a HTTP/1.1\r\nHost: api.example.com\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
		},
		"a body that GET gives no meaning to": {
			"GET /v1/a HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 05\r\n\r\nhello",
			"GET /v1/a HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
		},
		"malformed fields that mean nothing": {
			"GET /v1/a HTTP/1.1\r\nHost: api.example.com\r\nX-Bad : a\r\nX-Good: b\r\n\r\n",
			"GET /v1/a HTTP/1.1\r\nHost: api.example.com\r\nX-Good: b\r\n\r\n",
		},
		"HTTP/1.0": {
			"GET /v1/a HTTP/1.0\r\nHost: api.example.com\r\n\r\n",
			"GET /v1/a HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, basic)
			var mu sync.Mutex
			var got []byte
			r.script(apiHost, apiAddr, 443, func(conn net.Conn, br *bufio.Reader) {
				b := make([]byte, 4096)
				for len(c.up) > len(got) {
					n, err := br.Read(b)
					mu.Lock()
					got = append(got, b[:n]...)
					mu.Unlock()
					if err != nil {
						return
					}
				}
				io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			})
			conn := r.tunnel(r.listen(netplan.Explicit), apiHost)
			io.WriteString(conn, c.in)
			if head := readHead(bufio.NewReader(conn)); !strings.HasPrefix(head, "HTTP/1.1 200 OK\r\n") {
				t.Fatalf("got %q", head)
			}
			mu.Lock()
			defer mu.Unlock()
			if string(got) != c.up {
				t.Errorf("went up as\n%q, want\n%q", got, c.up)
			}
		})
	}
}

// TestI5EachRequestIsJudged sends two requests in one piece.
func TestI5EachRequestIsJudged(t *testing.T) {
	r := newRig(t, basic)
	r.upstream(apiHost, apiAddr, 443, echo)
	conn := r.tunnel(r.listen(netplan.Explicit), apiHost)
	fmt.Fprint(conn, "GET /v1/ok HTTP/1.1\r\nHost: api.example.com\r\n\r\nDELETE /x HTTP/1.1\r\nHost: api.example.com\r\n\r\nGET /v1/more HTTP/1.1\r\nHost: api.example.com\r\n\r\n")
	br := bufio.NewReader(conn)
	for _, want := range []int{200, 403, 200} {
		res, err := http.ReadResponse(br, nil)
		must(t, err)
		io.Copy(io.Discard, res.Body)
		if res.StatusCode != want {
			t.Errorf("got %s, want %d", res.Status, want)
		}
	}
	if d := r.journal.lastDecision(t, 3); d.Path != "/v1/more" {
		t.Errorf("decision %+v", d)
	}
}
