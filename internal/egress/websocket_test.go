// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"bawn/internal/codes"
	"bawn/internal/netplan"
	"bawn/internal/wswire"
)

// chat allows WebSockets, and with guard: json on /json.
const chat = `
version: 1
profiles:
  p:
    rules:
      - {id: api, host: api.example.com, websocket: true, ports: [443, 80], paths: ["/ws/**"]}
      - {id: judged, host: api.example.com, websocket: true, guard: json, paths: ["/json/**"]}
      - {id: reading, host: api.example.com, websocket: true, guard: read-only, paths: ["/reading"]}
      - {id: plain, host: api.example.com, paths: ["/plain"]}
agents:
  dev: {profile: p}
`

// wsEcho is a server that sends back what it gets, by another implementation.
func wsEcho(mode websocket.CompressionMode) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		c, err := websocket.Accept(w, q, &websocket.AcceptOptions{CompressionMode: mode, CompressionThreshold: 1, Subprotocols: []string{"chat.v2"}, InsecureSkipVerify: true})
		if err != nil {
			return
		}
		c.SetReadLimit(32 << 20)
		defer c.CloseNow()
		for {
			kind, data, err := c.Read(context.Background())
			if err != nil {
				return
			}
			if string(data) == "close me" {
				c.Close(4321, "because you said so")
				return
			}
			if err := c.Write(context.Background(), kind, data); err != nil {
				return
			}
		}
	})
}

// wsDial opens a WebSocket through the proxy by another implementation.
func (r *rig) wsDial(proxy, url string, opts websocket.DialOptions) (*websocket.Conn, *http.Response, error) {
	r.t.Helper()
	opts.HTTPClient = r.client(proxy)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c, res, err := websocket.Dial(ctx, url, &opts)
	if err == nil {
		r.t.Cleanup(func() { c.CloseNow() })
		c.SetReadLimit(32 << 20)
	}
	return c, res, err
}

var compressions = map[string]websocket.CompressionMode{
	"none": websocket.CompressionDisabled, "alone": websocket.CompressionNoContextTakeover, "context": websocket.CompressionContextTakeover,
}

// TestWebSocketEcho: real ends on either side, each with its own idea of
// compression, and messages of every size.
func TestWebSocketEcho(t *testing.T) {
	for down, downMode := range compressions {
		for up, upMode := range compressions {
			t.Run(down+" to "+up, func(t *testing.T) {
				r := newRig(t, chat)
				r.upstream(apiHost, apiAddr, 443, wsEcho(upMode))
				c, res, err := r.wsDial(r.listen(netplan.Explicit), "wss://api.example.com/ws/a?b=c", websocket.DialOptions{CompressionMode: downMode, CompressionThreshold: 1, Subprotocols: []string{"chat.v1", "chat.v2"}})
				must(t, err)
				if res.Header.Get("Sec-WebSocket-Protocol") != "chat.v2" {
					t.Errorf("subprotocol %q", res.Header.Get("Sec-WebSocket-Protocol"))
				}
				for _, data := range []string{"", "a", "Hällo 😀", strings.Repeat("again and again ", 100), string(noise(100)), strings.Repeat("0123456789", 200000)} {
					for _, kind := range []websocket.MessageType{websocket.MessageText, websocket.MessageBinary} {
						must(t, c.Write(t.Context(), kind, []byte(data)))
						gotKind, got, err := c.Read(t.Context())
						if err != nil || gotKind != kind || string(got) != data {
							t.Fatalf("sent %d octets, got %d, %v, %v", len(data), len(got), gotKind, err)
						}
					}
				}
				must(t, c.Write(t.Context(), websocket.MessageBinary, noise(3<<20)))
				if _, got, err := c.Read(t.Context()); err != nil || !bytes.Equal(got, noise(3<<20)) {
					t.Fatalf("got %d octets, %v", len(got), err)
				}
				must(t, c.Close(3456, "done"))
				d := r.journal.lastDecision(t, 1)
				o := r.journal.lastOutcome(t, 1)
				if d.Rule != "api" || d.Path != "/ws/a" || d.Query == "" || o.Status != 101 || o.MessagesUp != 13 || o.MessagesDown != 13 || o.Close != 3456 || o.Code != "" || o.Error != "" || o.BytesUp < 3<<20 || o.BytesDown < 3<<20 {
					t.Errorf("decision %+v, outcome %+v", d, o)
				}
			})
		}
	}
}

// noise is text that no compressor can do anything about.
func noise(n int) []byte {
	rnd := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(' ' + rnd.IntN(90))
	}
	return b
}

// TestWebSocketArrivals: by CONNECT, in the clear and redirected.
func TestWebSocketArrivals(t *testing.T) {
	r := newRig(t, chat, func(r *rig) {
		r.cfg.OriginalDst = func(net.Conn) (netip.AddrPort, error) { return netip.MustParseAddrPort("198.18.1.1:443"), nil }
	})
	r.upstream(apiHost, apiAddr, 443, wsEcho(0))
	r.upstream(apiHost, apiAddr, 80, wsEcho(0))
	hello := func(c *websocket.Conn, err error) {
		t.Helper()
		must(t, err)
		must(t, c.Write(t.Context(), websocket.MessageText, []byte("hello")))
		if _, got, err := c.Read(t.Context()); err != nil || string(got) != "hello" {
			t.Fatalf("got %q, %v", got, err)
		}
		must(t, c.Close(1000, ""))
	}
	c, _, err := r.wsDial(r.listen(netplan.Explicit), "ws://api.example.com/ws/a", websocket.DialOptions{})
	hello(c, err)
	transparent := r.listen(netplan.Transparent)
	straight := &http.Client{Transport: &http.Transport{
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			d := tls.Dialer{Config: &tls.Config{RootCAs: r.minterCA, ServerName: apiHost}}
			return d.DialContext(ctx, "tcp", transparent)
		},
	}}
	c, _, err = websocket.Dial(t.Context(), "wss://api.example.com/ws/a", &websocket.DialOptions{HTTPClient: straight})
	hello(c, err)
	r.journal.lastOutcome(t, 2)
}

const opening = "GET /ws/a HTTP/1.1\r\nHost: api.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"

// TestWebSocketOpeningRefused has what makes an opening handshake none.
func TestWebSocketOpeningRefused(t *testing.T) {
	change := func(old, new string) string { return strings.Replace(opening, old, new, 1) + "\r\n" }
	for name, c := range map[string]struct {
		in     string
		code   codes.Code
		status int
		keep   bool
	}{
		"by POST":                         {change("GET", "POST"), codes.MethodNotAllowed, 403, true},
		"a rule for plain requests only":  {change("/ws/a", "/plain"), codes.PathNotAllowed, 403, true},
		"no rule for the path":            {change("/ws/a", "/"), codes.PathNotAllowed, 403, true},
		"a guard that judges no messages": {change("/ws/a", "/reading"), codes.WebSocketUninspectable, 403, true},
		"with a body":                     {change("Host:", "Content-Length: 2\r\nHost:") + "{}", codes.FramingInvalid, 400, true},
		"with chunks":                     {change("Host:", "Transfer-Encoding: chunked\r\nHost:") + "0\r\n\r\n", codes.FramingInvalid, 400, false},
		"with an expectation":             {change("Host:", "Expect: 100-continue\r\nHost:"), codes.HeaderInvalid, 400, true},
		"or something else":               {change("Upgrade: websocket", "Upgrade: websocket, h2c"), codes.UpgradeDenied, 403, true},
		"with a version of its own":       {change("Upgrade: websocket", "Upgrade: websocket/13"), codes.UpgradeDenied, 403, true},
		"version 8":                       {change("Version: 13", "Version: 8"), codes.WebSocketProtocolError, 426, true},
		"no version":                      {change("Sec-WebSocket-Version: 13\r\n", ""), codes.WebSocketProtocolError, 426, true},
		"no key":                          {change("Sec-WebSocket-Key", "X-Key"), codes.WebSocketProtocolError, 400, true},
		"a short key":                     {change("dGhlIHNhbXBsZSBub25jZQ==", "AAAA"), codes.WebSocketProtocolError, 400, true},
		"two keys":                        {change("\r\nSec-WebSocket-Key", "\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Key"), codes.HeaderDuplicate, 400, false},
		"a malformed subprotocol":         {change("Host:", "Sec-WebSocket-Protocol: a b\r\nHost:"), codes.HeaderInvalid, 400, true},
		"a subprotocol twice":             {change("Host:", "Sec-WebSocket-Protocol: a\r\nSec-WebSocket-Protocol: a\r\nHost:"), codes.HeaderInvalid, 400, true},
		"malformed extensions":            {change("Host:", "Sec-WebSocket-Extensions: a;;b\r\nHost:"), codes.HeaderInvalid, 400, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, chat)
			conn := r.tunnel(r.listen(netplan.Explicit), apiHost)
			io.WriteString(conn, c.in)
			res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: "GET"})
			must(t, err)
			wantDenial(t, res, c.status, c.code)
			if res.Close == c.keep {
				t.Errorf("Connection: close is %v", res.Close)
			}
			if c.status == 426 && (res.Header.Get("Sec-WebSocket-Version") != "13" || res.Header.Get("Upgrade") != "websocket") {
				t.Errorf("426 without the version: %v", res.Header)
			}
			if d := r.journal.lastDecision(t, 1); d.Code != c.code || r.net.lookups() != 0 {
				t.Errorf("on record as %s, %d look-ups", d.Code, r.net.lookups())
			}
		})
	}
}

// TestWebSocketOpeningForwarded compares what goes up and comes down, octet for
// octet but for the keys.
func TestWebSocketOpeningForwarded(t *testing.T) {
	r := newRig(t, chat)
	got := make(chan string, 1)
	r.script(apiHost, apiAddr, 443, func(conn net.Conn, br *bufio.Reader) {
		head := readHead(br)
		got <- head
		_, rest, _ := strings.Cut(head, "Sec-WebSocket-Key: ")
		key, _, _ := strings.Cut(rest, "\r\n")
		fmt.Fprintf(conn, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"+
			"HTTP/1.1 101 Switching\r\nUpgrade: WebSocket\r\nconnection: upgrade, keep-alive\r\nAlt-Svc: h3\r\nSet-Cookie: a=b\r\nSec-WebSocket-Protocol: b\r\nSec-WebSocket-Accept: %s\r\nSec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; server_max_window_bits=10\r\n\r\n", wswire.Accept(key))
		br.ReadByte()
	})
	conn := r.tunnel(r.listen(netplan.Explicit), apiHost)
	io.WriteString(conn, opening+"Origin: https://x\r\nSec_WebSocket_Extensions: evil\r\nSec-WebSocket-Protocol: a\r\nSec-WebSocket-Protocol: b,c\r\nSec-WebSocket-Extensions: x-webkit-deflate-frame, permessage-deflate; client_max_window_bits; server_max_window_bits=12\r\n\r\n")
	head := readHead(bufio.NewReader(conn))
	want := "HTTP/1.1 101 Switching\r\nSet-Cookie: a=b\r\nSec-WebSocket-Protocol: b\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" +
		"Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; client_no_context_takeover; server_max_window_bits=12\r\n\r\n"
	if head != want {
		t.Errorf("came down as\n%q, want\n%q", head, want)
	}
	up := <-got
	key := strings.Index(up, "Sec-WebSocket-Key: ") + len("Sec-WebSocket-Key: ")
	if !wswire.ValidKey(up[key:key+24]) || up[key:key+24] == "dGhlIHNhbXBsZSBub25jZQ==" {
		t.Errorf("key %q", up[key:key+24])
	}
	want = "GET /ws/a HTTP/1.1\r\nHost: api.example.com\r\nOrigin: https://x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: KEY\r\nSec-WebSocket-Protocol: a, b, c\r\n" +
		"Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; client_no_context_takeover\r\n\r\n"
	if up = up[:key] + "KEY" + up[key+24:]; up != want {
		t.Errorf("went up as\n%q, want\n%q", up, want)
	}
}

// TestWebSocketNeedsAValid101 is row 82 of the list of attacks: no tunnel to a
// server that did not agree to this very WebSocket.
func TestWebSocketNeedsAValid101(t *testing.T) {
	for name, c := range map[string]struct {
		answer string // ACCEPT stands for the right one
		error  string
	}{
		"a wrong accept":           {"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n", "does not answer the key"},
		"no accept":                {"Upgrade: websocket\r\nConnection: Upgrade\r\n", "does not answer the key"},
		"two accepts":              {"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ACCEPT\r\nSec-WebSocket-Accept: x\r\n", "does not answer the key"},
		"no Upgrade":               {"Connection: Upgrade\r\nSec-WebSocket-Accept: ACCEPT\r\n", "another protocol"},
		"no Connection":            {"Upgrade: websocket\r\nSec-WebSocket-Accept: ACCEPT\r\n", "another protocol"},
		"another protocol":         {"Upgrade: h2c\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ACCEPT\r\n", "another protocol"},
		"a subprotocol of its own": {"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ACCEPT\r\nSec-WebSocket-Protocol: x\r\n", "subprotocol"},
		"an extension of its own":  {"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ACCEPT\r\nSec-WebSocket-Extensions: x\r\n", "extension"},
		"compression not offered":  {"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ACCEPT\r\nSec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover\r\n", "extension"},
		"a malformed extension":    {"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ACCEPT\r\nSec-WebSocket-Extensions: ;\r\n", "malformed"},
		"a body":                   {"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ACCEPT\r\nContent-Length: 5\r\n", "with a body"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, chat)
			r.script(apiHost, apiAddr, 443, func(conn net.Conn, br *bufio.Reader) {
				_, rest, _ := strings.Cut(readHead(br), "Sec-WebSocket-Key: ")
				key, _, _ := strings.Cut(rest, "\r\n")
				fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\n%s\r\n", strings.ReplaceAll(c.answer, "ACCEPT", wswire.Accept(key)))
				io.Copy(io.Discard, br)
			})
			conn := r.tunnel(r.listen(netplan.Explicit), apiHost)
			io.WriteString(conn, opening+"\r\n")
			res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: "GET"})
			must(t, err)
			wantDenial(t, res, 502, codes.UpstreamUnreachable)
			if o := r.journal.lastOutcome(t, 1); o.Code != codes.UpstreamUnreachable || !strings.Contains(o.Error, c.error) {
				t.Errorf("outcome %+v", o)
			}
		})
	}
}

// TestWebSocketRefusedByServer: any other answer is one to a plain request, and
// the agent's connection goes on.
func TestWebSocketRefusedByServer(t *testing.T) {
	r := newRig(t, chat)
	var conns atomic.Int32
	r.script(apiHost, apiAddr, 443, func(conn net.Conn, br *bufio.Reader) {
		conns.Add(1)
		readHead(br)
		io.WriteString(conn, "HTTP/1.1 401 No\r\nContent-Length: 2\r\nWWW-Authenticate: x\r\n\r\nno")
		io.Copy(io.Discard, br)
	})
	conn := r.tunnel(r.listen(netplan.Explicit), apiHost)
	br := bufio.NewReader(conn)
	for range 2 {
		io.WriteString(conn, opening+"\r\n")
		res, err := http.ReadResponse(br, &http.Request{Method: "GET"})
		must(t, err)
		if body, _ := io.ReadAll(res.Body); res.StatusCode != 401 || string(body) != "no" || res.Header.Get("WWW-Authenticate") != "x" || res.Close {
			t.Errorf("got %s, %q", res.Status, body)
		}
	}
	if o := r.journal.lastOutcome(t, 2); o.Status != 401 || o.Reused || conns.Load() != 2 {
		t.Errorf("outcome %+v, %d connections", o, conns.Load())
	}
}

// ws is a WebSocket whose ends are written by the test itself, octet by octet.
type ws struct {
	agent  net.Conn
	agentR *bufio.Reader
	server net.Conn
	serveR *bufio.Reader
	done   chan struct{} // to be closed to end the server
}

// open opens one, with compression on both sides or none.
func (r *rig) open(path string, deflate bool) *ws {
	r.t.Helper()
	return r.openAt(r.listen(netplan.Explicit), path, deflate)
}

func (r *rig) openAt(proxy, path string, deflate bool) *ws {
	r.t.Helper()
	w := &ws{done: make(chan struct{})}
	ready := make(chan struct{})
	offer, answer := "", ""
	if deflate {
		offer = "Sec-WebSocket-Extensions: permessage-deflate\r\n"
		answer = "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover\r\n"
	}
	r.script(apiHost, apiAddr, 443, func(conn net.Conn, br *bufio.Reader) {
		_, rest, _ := strings.Cut(readHead(br), "Sec-WebSocket-Key: ")
		key, _, _ := strings.Cut(rest, "\r\n")
		w.server, w.serveR = conn, br
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n%s\r\n", wswire.Accept(key), answer)
		close(ready)
		<-w.done
	})
	conn := r.tunnel(proxy, apiHost)
	w.agent, w.agentR = conn, bufio.NewReader(conn)
	io.WriteString(conn, strings.Replace(opening, "/ws/a", path, 1)+offer+"\r\n")
	if head := readHead(w.agentR); !strings.HasPrefix(head, "HTTP/1.1 101 ") {
		r.t.Fatalf("got %q", head)
	}
	<-ready
	r.t.Cleanup(w.end)
	return w
}

func (w *ws) end() {
	select {
	case <-w.done:
	default:
		close(w.done)
	}
}

// say writes a frame of the agent.
func (w *ws) say(op wswire.Opcode, fin bool, rsv uint8, payload string) {
	w.agent.Write(wswire.AppendFrame(nil, wswire.Header{Fin: fin, Rsv: rsv, Op: op, Masked: true, Key: [4]byte{1, 2, 3, 4}}, []byte(payload)))
}

// reply writes a frame of the server.
func (w *ws) reply(op wswire.Opcode, fin bool, rsv uint8, payload string) {
	w.server.Write(wswire.AppendFrame(nil, wswire.Header{Fin: fin, Rsv: rsv, Op: op}, []byte(payload)))
}

// heard reads frames up to the end of a message or to a control frame other
// than a ping, and says in short what came.
func heard(t testing.TB, r *bufio.Reader, from wswire.Role) string {
	t.Helper()
	var in wswire.Reader
	control := errors.New("a control frame")
	got := ""
	in.Control = func(op wswire.Opcode, p []byte) error {
		switch op {
		case wswire.Close:
			return nil
		case wswire.Pong:
			got = fmt.Sprintf("pong %s", p)
		default:
			got = fmt.Sprintf("ping %s", p)
		}
		return control
	}
	in.Reset(r, from, true, wswire.Limits{Message: 1 << 30, Free: 1 << 30})
	op, compressed, err := in.Next()
	if err == nil {
		var data []byte
		if data, err = in.Whole(nil); err == nil {
			what := map[wswire.Opcode]string{wswire.Text: "text", wswire.Binary: "binary"}[op]
			if compressed {
				what += " compressed"
			}
			return what + " " + string(data)
		}
	}
	if c, ok := errors.AsType[*wswire.Closed](err); ok {
		return strings.TrimSpace(fmt.Sprintf("close %d %s", c.Status, c.Reason))
	}
	if errors.Is(err, control) {
		return got
	}
	return err.Error()
}

func (w *ws) wantServer(t testing.TB, want string) {
	t.Helper()
	if got := heard(t, w.serveR, wswire.Client); got != want {
		t.Errorf("the server heard %.200q, want %q", got, want)
	}
}

func (w *ws) wantAgent(t testing.TB, want string) {
	t.Helper()
	if got := heard(t, w.agentR, wswire.Server); got != want {
		t.Errorf("the agent heard %.200q, want %q", got, want)
	}
}
