// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"bawn/internal/codes"
	"bawn/internal/egress"
	"bawn/internal/netplan"
)

// TestEventsAtOnce: each event arrives before the next is written.
func TestEventsAtOnce(t *testing.T) {
	for _, framing := range []string{"Transfer-Encoding: chunked\r\n", ""} {
		r := newRig(t, basic)
		next := make(chan string)
		r.script(apiHost, apiAddr, 443, func(c net.Conn, br *bufio.Reader) {
			readHead(br)
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"+framing+"\r\n")
			for event := range next {
				if framing != "" {
					// The line end of a chunk comes with the next chunk.
					event = fmt.Sprintf("%x\r\n%s", len(event), event) + "\r\n"
				}
				io.WriteString(c, event)
			}
			if framing != "" {
				io.WriteString(c, "0\r\n\r\n")
			}
		})
		res, err := r.client(r.listen(netplan.Explicit)).Get("https://api.example.com/v1/events")
		must(t, err) // the head came before any event
		br := bufio.NewReader(res.Body)
		for i := range 3 {
			want := fmt.Sprintf("data: %d\n", i)
			next <- want
			if got, err := br.ReadString('\n'); got != want {
				t.Fatalf("got %q, %v, want %q", got, err, want)
			}
		}
		close(next)
		if _, err := br.ReadString('\n'); err != io.EOF {
			t.Errorf("after the last event: %v", err)
		}
	}
}

// TestEarlyFinalResponse: an upstream that refuses in the middle of a large
// body is heard.
func TestEarlyFinalResponse(t *testing.T) {
	r := newRig(t, basic)
	r.script(apiHost, apiAddr, 443, func(c net.Conn, br *bufio.Reader) {
		readHead(br)
		io.ReadFull(br, make([]byte, 1000))
		io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig")
	})
	conn := r.tunnel(r.listen(netplan.Explicit), apiHost)
	fmt.Fprint(conn, "POST /v1/a HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 100000000\r\n\r\n")
	conn.Write(make([]byte, 100_000))
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(t, err)
	body, err := io.ReadAll(res.Body)
	if res.StatusCode != 413 || string(body) != "big" || err != nil {
		t.Errorf("got %s, %q, %v", res.Status, body, err)
	}
	if o := r.journal.lastOutcome(t, 1); o.Status != 413 || o.BytesUp < 1000 {
		t.Errorf("outcome %+v", o)
	}
}

func TestExpectContinue(t *testing.T) {
	const head = "POST /v1/a HTTP/1.1\r\nHost: api.example.com\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
	for name, c := range map[string]struct {
		upstream func(c net.Conn, br *bufio.Reader)
		want     []string // status lines, the body sent after a 100
	}{
		"the upstream asks": {func(c net.Conn, br *bufio.Reader) {
			readHead(br)
			io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n")
			io.ReadFull(br, make([]byte, 5))
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}, []string{"HTTP/1.1 100 Continue", "HTTP/1.1 200 OK"}},
		"the upstream only waits": {func(c net.Conn, br *bufio.Reader) {
			readHead(br)
			io.ReadFull(br, make([]byte, 5))
			io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}, []string{"HTTP/1.1 100 Continue", "HTTP/1.1 200 OK"}},
		"the upstream refuses": {func(c net.Conn, br *bufio.Reader) {
			readHead(br)
			io.WriteString(c, "HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n")
			br.ReadByte()
		}, []string{"HTTP/1.1 401 No"}},
		"early hints": {func(c net.Conn, br *bufio.Reader) {
			readHead(br)
			io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}, []string{"HTTP/1.1 103 Early Hints", "HTTP/1.1 200 OK"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, basic, func(r *rig) { r.cfg.Limits.Continue = 100 * time.Millisecond })
			r.script(apiHost, apiAddr, 443, c.upstream)
			conn := r.tunnel(r.listen(netplan.Explicit), apiHost)
			io.WriteString(conn, head)
			br := bufio.NewReader(conn)
			var got []string
			for len(got) < len(c.want) {
				line, _, _ := strings.Cut(readHead(br), "\r\n")
				if line == "" {
					break
				}
				got = append(got, line)
				if strings.Contains(line, " 100 ") {
					io.WriteString(conn, "hello")
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestAgentGoesAway: an agent that closes while it waits ends the request, also
// in the middle of a response that is silent.
func TestAgentGoesAway(t *testing.T) {
	for _, begun := range []string{"", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"} {
		r := newRig(t, basic)
		ended := make(chan error, 1)
		r.script(apiHost, apiAddr, 443, func(c net.Conn, br *bufio.Reader) {
			readHead(br)
			io.WriteString(c, begun)
			_, err := br.ReadByte()
			ended <- err
		})
		conn := r.tunnel(r.listen(netplan.Explicit), apiHost)
		fmt.Fprint(conn, "GET /v1/a HTTP/1.1\r\nHost: api.example.com\r\n\r\n")
		wait(t, "the request to be up", func() bool { return r.net.dials() == 1 })
		io.ReadFull(conn, make([]byte, len(begun)))
		conn.NetConn().Close()
		if err := <-ended; err == nil {
			t.Error("the upstream read on")
		}
		if o := r.journal.lastOutcome(t, 1); !strings.Contains(o.Error, "agent closed") || o.Cut != "" {
			t.Errorf("outcome %+v", o)
		}
	}
}

// TestBodyCutShort: a body that ends early never looks whole to the upstream.
func TestBodyCutShort(t *testing.T) {
	for name, in := range map[string]string{
		"by length":  "Content-Length: 10000\r\n\r\n" + strings.Repeat("x", 5000),
		"in a chunk": "Transfer-Encoding: chunked\r\n\r\n1000\r\nxxx",
		"a bad size": "Transfer-Encoding: chunked\r\n\r\n3\r\nxxx\r\n|zz\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, basic)
			ended := make(chan string, 1)
			r.script(apiHost, apiAddr, 443, func(_ net.Conn, br *bufio.Reader) {
				readHead(br)
				all, err := io.ReadAll(br)
				ended <- fmt.Sprintf("%.200s %v", all, err != nil)
			})
			conn := r.tunnel(r.listen(netplan.Explicit), apiHost)
			now, later, _ := strings.Cut(in, "|")
			io.WriteString(conn, "POST /v1/a HTTP/1.1\r\nHost: api.example.com\r\n"+now)
			wait(t, "the request to be up", func() bool { return r.net.dials() == 1 })
			io.WriteString(conn, later)
			conn.CloseWrite()
			if got := <-ended; !strings.HasSuffix(got, " true") || strings.Contains(got, "0\r\n\r\n") {
				t.Errorf("the upstream read %s", got)
			}
			want := codes.BodyTruncated
			if name == "a bad size" {
				want = codes.FramingInvalid
			}
			if o := r.journal.lastOutcome(t, 1); o.Code != want {
				t.Errorf("outcome %+v, want %s", o, want)
			}
		})
	}
}

// TestResponseCutShort: a response that ends early does not look whole to the
// agent.
func TestResponseCutShort(t *testing.T) {
	for name, c := range map[string]struct{ version, answer string }{
		"by length":           {"1.1", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"},
		"chunked":             {"1.1", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"},
		"chunked to HTTP/1.0": {"1.0", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, basic)
			r.script(apiHost, apiAddr, 443, func(conn net.Conn, br *bufio.Reader) {
				readHead(br)
				io.WriteString(conn, c.answer)
			})
			conn := r.tunnel(r.listen(netplan.Explicit), apiHost)
			fmt.Fprintf(conn, "GET /v1/a HTTP/%s\r\nHost: api.example.com\r\n\r\n", c.version)
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			must(t, err)
			if body, err := io.ReadAll(res.Body); string(body) != "hello" || err == nil {
				t.Errorf("got %q, %v, want an error behind it", body, err)
			}
			if o := r.journal.lastOutcome(t, 1); o.Code != codes.UpstreamUnreachable || o.Error == "" || o.Status != 200 {
				t.Errorf("outcome %+v", o)
			}
		})
	}
}

func TestResponsesRefused(t *testing.T) {
	for name, answer := range map[string]string{
		"nothing":                "",
		"no HTTP":                "SSH-2.0-x\r\n",
		"CL and TE":              "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"a folded line":          "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
		"101":                    "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
		"interim without end":    strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 100),
		"a head that is endless": "HTTP/1.1 200 OK\r\nA: " + strings.Repeat("a", 70<<10),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, basic)
			r.script(apiHost, apiAddr, 443, func(conn net.Conn, br *bufio.Reader) {
				readHead(br)
				io.WriteString(conn, answer)
			})
			conn := r.tunnel(r.listen(netplan.Explicit), apiHost)
			fmt.Fprint(conn, "GET /v1/a HTTP/1.0\r\nHost: api.example.com\r\nConnection: keep-alive\r\n\r\n")
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			must(t, err)
			wantDenial(t, res, 502, codes.UpstreamUnreachable)
			if o := r.journal.lastOutcome(t, 1); o.Code != codes.UpstreamUnreachable || o.Status != 502 {
				t.Errorf("outcome %+v", o)
			}
		})
	}
}

// TestResponseFramingForAgent: what the agent gets is framed for its version.
func TestResponseFramingForAgent(t *testing.T) {
	for name, c := range map[string]struct{ method, version, answer, down string }{
		"until close becomes chunks": {"GET", "1.1", "HTTP/1.1 200 OK\r\n\r\nhello", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"},
		"trailers":                   {"GET", "1.1", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\n\r\n"},
		"chunks to HTTP/1.0":         {"GET", "1.0", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello"},
		"HEAD":                       {"HEAD", "1.1", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"},
		"204":                        {"GET", "1.1", "HTTP/1.1 204 No Content\r\nKeep-Alive: x\r\n\r\n", "HTTP/1.1 204 No Content\r\n\r\n"},
		"repeated fields":            {"GET", "1.1", "HTTP/1.1 200 OK\r\nset-Cookie: a\r\nSet-Cookie: b\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 OK\r\nset-Cookie: a\r\nSet-Cookie: b\r\nContent-Length: 0\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, basic)
			r.script(apiHost, apiAddr, 443, func(conn net.Conn, br *bufio.Reader) {
				readHead(br)
				io.WriteString(conn, c.answer)
			})
			conn := r.tunnel(r.listen(netplan.Explicit), apiHost)
			fmt.Fprintf(conn, "%s /v1/a HTTP/%s\r\nHost: api.example.com\r\n\r\n", c.method, c.version)
			got := make([]byte, len(c.down))
			if _, err := io.ReadFull(conn, got); err != nil || string(got) != c.down {
				t.Errorf("got %q, %v, want %q", got, err, c.down)
			}
		})
	}
}

// TestConcurrencyLimit: connections beyond the bound are refused with a code.
func TestConcurrencyLimit(t *testing.T) {
	r := newRig(t, basic, func(r *rig) { r.cfg.Limits.Connections = 2 })
	proxy := r.listen(netplan.Explicit)
	one, two := r.connect(proxy, "api.example.com:443"), r.connect(proxy, "api.example.com:443")
	res, err := http.ReadResponse(bufio.NewReader(r.dial(proxy)), nil)
	must(t, err)
	wantDenial(t, res, 429, codes.ConcurrencyExceeded)
	one.Close()
	two.Close()
	wait(t, "a free place", func() bool {
		c := r.dial(proxy)
		defer c.Close()
		fmt.Fprint(c, "CONNECT api.example.com:443 HTTP/1.1\r\nHost: api.example.com:443\r\n\r\n")
		return strings.HasPrefix(readHead(bufio.NewReader(c)), "HTTP/1.1 200 ")
	})
	if d, _ := r.journal.all(); d[0].Code != codes.ConcurrencyExceeded || d[0].Stage != "accept" {
		t.Errorf("decision %+v", d[0])
	}
}

// TestTimeLimits: what takes too long is ended and says so on record.
func TestTimeLimits(t *testing.T) {
	short := 50 * time.Millisecond
	for name, c := range map[string]struct {
		limits egress.Limits
		in     string // in the tunnel; empty: no handshake
		want   string
	}{
		"handshake": {egress.Limits{Handshake: short}, "", "TLS handshake"},
		"head":      {egress.Limits{Head: short}, "GET /v1/a HT", "end of a head"},
		"response":  {egress.Limits{Response: short}, "GET /v1/a HTTP/1.1\r\nHost: api.example.com\r\n\r\n", "the response"},
		"body":      {egress.Limits{Stall: short}, "POST /v1/a HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 9\r\n\r\nx", "rest of a body"},
		"idle":      {egress.Limits{Idle: short}, "-", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, basic, func(r *rig) { r.cfg.Limits = c.limits })
			r.script(apiHost, apiAddr, 443, func(_ net.Conn, br *bufio.Reader) { io.Copy(io.Discard, br) })
			proxy := r.listen(netplan.Explicit)
			var conn net.Conn
			if c.in == "" {
				conn = r.connect(proxy, "api.example.com:443")
			} else {
				conn = r.tunnel(proxy, apiHost)
				io.WriteString(conn, strings.Trim(c.in, "-"))
			}
			if _, err := io.ReadAll(conn); errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
			switch name {
			case "idle":
				if d, o := r.journal.all(); len(d)+len(o) > 0 {
					t.Errorf("recorded %+v, %+v", d, o)
				}
			case "response", "body":
				if o := r.journal.lastOutcome(t, 1); o.Cut != "limit" || !strings.Contains(o.Error, c.want) {
					t.Errorf("outcome %+v", o)
				}
			default:
				if d := r.journal.lastDecision(t, 1); !strings.Contains(d.Detail, c.want) {
					t.Errorf("decision %+v", d)
				}
			}
		})
	}
}

// TestTunnelsAreBoundedInTime: what is not looked into ends as well, when nobody
// says anything in it, and in the end in any case.
func TestTunnelsAreBoundedInTime(t *testing.T) {
	yaml := strings.Replace(basic, "agents:", "      - {id: db, host: db.example.com, ports: [5432/tcp], inspect: none}\nagents:", 1)
	for name, c := range map[string]struct {
		limits egress.Limits
		talk   bool
		want   string
	}{
		"silence":                 {egress.Limits{Silence: 100 * time.Millisecond}, false, "waited too long for either end"},
		"total, in the middle of": {egress.Limits{Total: 300 * time.Millisecond, Silence: time.Hour}, true, "longer than anything may"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, yaml, func(r *rig) { r.cfg.Limits = c.limits })
			r.listenAt("db.example.com", "93.184.215.15", 80, func(ln net.Listener) {
				for {
					conn, err := ln.Accept()
					if err != nil {
						return
					}
					go io.Copy(conn, conn)
				}
			})
			r.net.move("93.184.215.15", 80, 5432)
			conn := r.connect(r.listen(netplan.Explicit), "db.example.com:5432")
			for c.talk {
				if _, err := conn.Write([]byte("x")); err != nil {
					break
				}
				if _, err := conn.Read(make([]byte, 1)); err != nil {
					break
				}
				time.Sleep(time.Millisecond)
			}
			io.Copy(io.Discard, conn) //nolint:errcheck // until it is cut
			if o := r.journal.lastOutcome(t, 1); o.Cut != "limit" || !strings.Contains(o.Error, c.want) {
				t.Errorf("outcome %+v", o)
			}
		})
	}
}
