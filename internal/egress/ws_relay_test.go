// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress_test

import (
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"bawn/internal/codes"
	"bawn/internal/egress"
	"bawn/internal/netplan"
	"bawn/internal/verdict"
	"bawn/internal/wswire"
)

const (
	text   = wswire.Text
	binary = wswire.Binary
	cont   = wswire.Continuation
	ping   = wswire.Ping
	pong   = wswire.Pong
	bye    = wswire.Close
)

func squeezed(s string) string {
	var b bytes.Buffer
	w, _ := flate.NewWriter(&b, 9)
	io.WriteString(w, s)
	w.Flush()
	return strings.TrimSuffix(b.String(), "\x00\x00\xff\xff")
}

// TestWebSocketViolations: rows 118 and 121 of the list of attacks, and the
// others of RFC 6455. The agent hears what it did, the server that it is over,
// and nothing of the message.
func TestWebSocketViolations(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(w *ws)
		want string // what the agent hears
		code codes.Code
	}{
		"no mask":                   {func(w *ws) { w.agent.Write([]byte("\x81\x01a")) }, "close 1002 websocket_protocol_error", codes.WebSocketProtocolError},
		"a reserved opcode":         {func(w *ws) { w.say(3, true, 0, "a") }, "close 1002 websocket_protocol_error", codes.WebSocketProtocolError},
		"a reserved bit":            {func(w *ws) { w.say(text, true, 1, "a") }, "close 1002 websocket_protocol_error", codes.WebSocketProtocolError},
		"RSV1 on a continuation":    {func(w *ws) { w.say(text, false, 4, squeezed("a")[:1]); w.say(cont, true, 4, squeezed("a")[1:]) }, "close 1002 websocket_protocol_error", codes.WebSocketProtocolError},
		"a fragmented ping":         {func(w *ws) { w.say(ping, false, 0, "a") }, "close 1002 websocket_protocol_error", codes.WebSocketProtocolError},
		"a text that is no UTF-8":   {func(w *ws) { w.say(text, true, 0, "\xff") }, "close 1007 websocket_protocol_error", codes.WebSocketProtocolError},
		"one that does not inflate": {func(w *ws) { w.say(text, true, 4, "\xff\xff") }, "close 1007 websocket_protocol_error", codes.WebSocketProtocolError},
		"one that inflates too far": {func(w *ws) { w.say(binary, true, 4, squeezed(strings.Repeat("a", 1<<20))) }, "close 1009 body_too_large", codes.BodyTooLarge},
		"a close status of none":    {func(w *ws) { w.say(bye, true, 0, "\x03\xed") }, "close 1002 websocket_protocol_error", codes.WebSocketProtocolError},
		"too many pings": {func(w *ws) {
			for range 400 {
				w.say(ping, true, 0, strings.Repeat("x", 125))
			}
		}, "close 1008 rate_limited", codes.RateLimited},
	} {
		for _, path := range []string{"/ws/a", "/json/a"} {
			t.Run(name+" "+path, func(t *testing.T) {
				r := newRig(t, chat, func(r *rig) { r.cfg.Limits.WebSocket.Free = 100 << 10 })
				w := r.open(path, true)
				go c.do(w)
				for {
					got := heard(t, w.agentR, wswire.Server)
					if strings.HasPrefix(got, "pong") {
						continue
					}
					if got != c.want {
						t.Errorf("the agent heard %q, want %q", got, c.want)
					}
					break
				}
				for {
					got := heard(t, w.serveR, wswire.Client)
					if got == "ping " { // of Bawn's own
						continue
					}
					if got != "close 1001" {
						t.Errorf("the server heard %q", got)
					}
					break
				}
				if o := r.journal.lastOutcome(t, 1); o.Code != c.code || o.Error == "" || o.MessagesUp != 0 {
					t.Errorf("outcome %+v", o)
				}
			})
		}
	}
}

// TestWebSocketServerViolates: the server hears what it did, the agent that its
// server is at fault.
func TestWebSocketServerViolates(t *testing.T) {
	for name, c := range map[string]struct {
		frame  []byte
		server string
	}{
		"a mask":     {wswire.AppendFrame(nil, wswire.Header{Fin: true, Op: text, Masked: true}, []byte("a")), "close 1002"},
		"RSV1":       {wswire.AppendFrame(nil, wswire.Header{Fin: true, Op: text, Rsv: 4}, []byte("a")), "close 1002"},
		"no UTF-8":   {wswire.AppendFrame(nil, wswire.Header{Fin: true, Op: text}, []byte("\xff")), "close 1007"},
		"a fragment": {wswire.AppendFrame(nil, wswire.Header{Fin: true, Op: cont}, nil), "close 1002"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, chat)
			w := r.open("/ws/a", false)
			w.server.Write(c.frame)
			w.wantServer(t, c.server)
			w.wantAgent(t, "close 1014 upstream_unreachable")
			if o := r.journal.lastOutcome(t, 1); o.Code != codes.UpstreamUnreachable || o.Close != 1014 {
				t.Errorf("outcome %+v", o)
			}
		})
	}
}

// TestWebSocketPings: they are answered where they come and go no further.
func TestWebSocketPings(t *testing.T) {
	r := newRig(t, chat)
	w := r.open("/ws/a", false)
	w.say(ping, true, 0, "secret")
	w.wantAgent(t, "pong secret")
	w.wantServer(t, "ping ") // Bawn's own: the agent is there
	w.reply(pong, true, 0, "")
	w.reply(ping, true, 0, "data")
	w.wantServer(t, "pong data")
	w.wantAgent(t, "ping ")
	w.say(pong, true, 0, "unasked")
	w.say(ping, true, 0, "again")
	w.wantAgent(t, "pong again")
	// Between the fragments of a message as well.
	w.say(text, false, 0, "Hel")
	w.say(ping, true, 0, "between")
	w.wantAgent(t, "pong between")
	w.say(cont, true, 0, "lo")
	w.wantServer(t, "text Hello")
	w.say(bye, true, 0, "\x03\xe8")
	w.wantServer(t, "close 1000")
	w.reply(bye, true, 0, "\x03\xe8")
	w.wantAgent(t, "close 1000")
}

// TestWebSocketCloses: status and reason go to the other end, whoever begins,
// and the end of a connection without them stays one.
func TestWebSocketCloses(t *testing.T) {
	for name, c := range map[string]struct {
		path   string
		do     func(t *testing.T, w *ws)
		status int
		error  string
	}{
		"the agent": {"/ws/a", func(t *testing.T, w *ws) {
			w.say(bye, true, 0, "\x0f\xa0why")
			w.wantServer(t, "close 4000 why")
			w.reply(text, true, 0, "one more")
			w.wantAgent(t, "text one more")
			w.reply(bye, true, 0, "\x0f\xa1ok")
			w.wantAgent(t, "close 4001 ok")
		}, 4000, ""},
		"the agent, where guards judge": {"/json/a", func(t *testing.T, w *ws) {
			w.say(bye, true, 0, "\x0f\xa0secret")
			w.wantServer(t, "close 4000")
			w.reply(bye, true, 0, "\x0f\xa0why")
			w.wantAgent(t, "close 4000 why")
		}, 4000, ""},
		"the server": {"/ws/a", func(t *testing.T, w *ws) {
			w.reply(bye, true, 0, "\x03\xe9going")
			w.wantAgent(t, "close 1001 going")
			w.say(bye, true, 0, "\x03\xe9")
			w.wantServer(t, "close 1001")
		}, 1001, ""},
		"without a status": {"/ws/a", func(t *testing.T, w *ws) {
			w.say(bye, true, 0, "")
			w.wantServer(t, "close 1005")
			w.reply(bye, true, 0, "")
			w.wantAgent(t, "close 1005")
		}, 1005, ""},
		"the server, at once": {"/ws/a", func(t *testing.T, w *ws) {
			w.reply(bye, true, 0, "\x03\xe8")
			w.end()
			w.wantAgent(t, "close 1000")
			w.say(bye, true, 0, "\x03\xe8")
			w.wantAgent(t, "EOF")
		}, 1000, ""},
		"the agent is gone": {"/ws/a", func(t *testing.T, w *ws) {
			w.say(text, true, 0, "last words")
			w.agent.Close()
			w.wantServer(t, "text last words")
			w.wantServer(t, "EOF")
		}, 1006, "the agent ended"},
		"the server is gone": {"/ws/a", func(t *testing.T, w *ws) {
			w.reply(text, true, 0, "last words")
			w.end()
			w.wantAgent(t, "text last words")
			w.wantAgent(t, "EOF")
		}, 1006, "the server ended"},
		"the server is gone within a message": {"/ws/a", func(t *testing.T, w *ws) {
			w.reply(text, false, 0, "half")
			time.Sleep(10 * time.Millisecond)
			w.end()
			w.wantAgent(t, "unexpected EOF")
		}, 1006, "the server ended"},
		"one end does not answer": {"/ws/a", func(t *testing.T, w *ws) {
			w.say(bye, true, 0, "\x03\xe8")
			w.wantServer(t, "close 1000")
			w.wantServer(t, "EOF")
		}, 1000, "waited too long for the end of the closing handshake"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, chat, func(r *rig) { r.cfg.Limits.Closing = 100 * time.Millisecond })
			if !strings.Contains(name, "does not answer") {
				r = newRig(t, chat)
			}
			w := r.open(c.path, false)
			c.do(t, w)
			w.end()
			if o := r.journal.lastOutcome(t, 1); o.Close != c.status || !strings.HasPrefix(o.Error, c.error) || c.error == "" && o.Error != "" {
				t.Errorf("outcome %+v, want close %d, %s", o, c.status, c.error)
			}
		})
	}
}

// TestWebSocketFragments: row 117 of the list of attacks. What a guard judges is
// the message, whichever way it was cut and squeezed, and it goes on in one
// piece, or not at all.
func TestWebSocketFragments(t *testing.T) {
	const good, evil = `{"model":"a","prompt":"hello hello hello"}`, `{"model":"a","mo` + `del":"b"}`
	send := map[string]func(w *ws, s string){
		"whole": func(w *ws, s string) { w.say(text, true, 0, s) },
		"cut": func(w *ws, s string) {
			w.say(text, false, 0, s[:16])
			w.say(ping, true, 0, "")
			w.say(cont, false, 0, "")
			w.say(cont, true, 0, s[16:])
		},
		"octet by octet": func(w *ws, s string) {
			w.say(text, false, 0, "")
			for i := range len(s) {
				w.say(cont, i == len(s)-1, 0, s[i:i+1])
			}
		},
		"squeezed": func(w *ws, s string) { w.say(text, true, 4, squeezed(s)) },
		"squeezed and cut": func(w *ws, s string) {
			z := squeezed(s)
			w.say(text, false, 4, z[:5])
			w.say(cont, true, 0, z[5:])
		},
	}
	for name, do := range send {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, chat)
			w := r.open("/json/a", true)
			do(w, good)
			want := "text " + good
			if strings.HasPrefix(name, "squeezed") {
				want = "text compressed " + good
			}
			got := heard(t, w.serveR, wswire.Client)
			if got == "ping " {
				got = heard(t, w.serveR, wswire.Client)
			}
			if got != want {
				t.Errorf("the server heard %q, want %q", got, want)
			}
			do(w, evil)
			for got = "pong"; strings.HasPrefix(got, "pong"); {
				got = heard(t, w.agentR, wswire.Server)
			}
			if got != "close 1008 json_duplicate_key" {
				t.Errorf("the agent heard %q", got)
			}
			w.wantServer(t, "close 1001")
			o := r.journal.lastOutcome(t, 1)
			if o.Code != codes.JSONDuplicateKey || o.MessagesUp != 1 || o.Close != 1008 {
				t.Errorf("outcome %+v", o)
			}
			d, _ := r.journal.all()
			if len(d) != 3 || d[0].Message != 0 || d[1].Message != 1 || d[1].Verdict != verdict.Allow || d[1].Stage != "message" || d[1].Rule != "judged" || d[1].Proto != "websocket" ||
				d[2].Message != 2 || d[2].Verdict != verdict.Deny || d[2].Code != codes.JSONDuplicateKey || d[2].Request != d[0].Request {
				t.Errorf("decisions %+v", d)
			}
		})
	}
}

// TestWebSocketMessagesRefused: what the guard json does not take, and what no
// guard can.
func TestWebSocketMessagesRefused(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(w *ws)
		want string
	}{
		"not JSON":  {func(w *ws) { w.say(text, true, 0, "hello") }, "close 1008 body_not_json"},
		"binary":    {func(w *ws) { w.say(binary, true, 0, "{}") }, "close 1008 websocket_uninspectable"},
		"too deep":  {func(w *ws) { w.say(text, true, 0, strings.Repeat("[", 100)) }, "close 1008 json_too_deep"},
		"too large": {func(w *ws) { w.say(text, true, 0, `"`+strings.Repeat("a", 2000)+`"`) }, "close 1009 body_too_large"},
		"too large, cut": {func(w *ws) {
			w.say(text, false, 0, strings.Repeat("a", 900))
			w.say(cont, true, 0, strings.Repeat("a", 900))
		}, "close 1009 body_too_large"},
		"inflates to more": {func(w *ws) { w.say(text, true, 4, squeezed(strings.Repeat("a", 2000))) }, "close 1009 body_too_large"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, chat, func(r *rig) { r.cfg.Limits.GuardBody = 1000 })
			w := r.open("/json/a", true)
			c.do(w)
			w.wantAgent(t, c.want)
			w.wantServer(t, "close 1001")
			if o := r.journal.lastOutcome(t, 1); "close "+fmt.Sprint(o.Close)+" "+string(o.Code) != c.want || o.MessagesUp != 0 {
				t.Errorf("outcome %+v", o)
			}
		})
	}
}

// TestI7MessagesAreOnRecordFirst: a message that cannot be put on record goes
// nowhere.
func TestI7MessagesAreOnRecordFirst(t *testing.T) {
	r := newRig(t, chat)
	w := r.open("/json/a", false)
	r.journal.mu.Lock()
	r.journal.fail = io.ErrShortWrite
	r.journal.mu.Unlock()
	w.say(text, true, 0, "{}")
	w.wantAgent(t, "close 1008 journal_unavailable")
	w.wantServer(t, "close 1001")
}

// TestWebSocketStreams: what no guard asks for goes on as it comes, before the
// message or even the frame is whole.
func TestWebSocketStreams(t *testing.T) {
	r := newRig(t, chat)
	w := r.open("/ws/a", false)
	whole := wswire.AppendFrame(nil, wswire.Header{Fin: true, Op: text}, []byte(strings.Repeat("x", 1000)))
	w.server.Write(whole[:500])
	var in wswire.Reader
	in.Reset(w.agentR, wswire.Server, false, wswire.Limits{})
	if op, _, err := in.Next(); op != text || err != nil {
		t.Fatal(op, err)
	}
	p := make([]byte, 2000)
	n, err := in.Read(p)
	if n == 0 || err != nil {
		t.Fatal(n, err)
	}
	w.server.Write(whole[500:])
	rest, err := in.Whole(nil)
	if err != nil || n+len(rest) != 1000 {
		t.Errorf("%d octets, %v", n+len(rest), err)
	}
}

// TestWebSocketKeepsFramesTogether: what came in one frame and one record of TLS
// goes on in one.
func TestWebSocketKeepsFramesTogether(t *testing.T) {
	for _, n := range []int{1, 125, 500, 1024, 1300} { // a Go server begins with small records
		r := newRig(t, chat)
		w := r.open("/ws/a", false)
		for range 2 {
			frame := wswire.AppendFrame(nil, wswire.Header{Fin: true, Op: binary}, make([]byte, n))
			w.server.Write(frame)
			got := make([]byte, len(frame))
			if _, err := io.ReadFull(w.agentR, got); err != nil || !bytes.Equal(got, frame) {
				t.Errorf("%d octets: %v, begins %x, want %x", n, err, got[:2], frame[:2])
			}
		}
	}
}

// TestI10WebSocketsAreCut: a change of policy ends them at once; both ends and
// the record hear of it.
func TestI10WebSocketsAreCut(t *testing.T) {
	for name, c := range map[string]struct {
		do     func(*rig)
		want   string
		code   codes.Code
		cut    string
		status int
	}{
		"a policy without the host": {func(r *rig) { r.apply(nothing) }, "close 1008 host_not_allowed", codes.HostNotAllowed, "policy", 1008},
		"a policy without WebSockets": {func(r *rig) { r.apply(strings.ReplaceAll(chat, "websocket: true", "websocket: false")) },
			"close 1008 websocket_not_allowed", codes.WebSocketNotAllowed, "policy", 1008},
		"a guard that has not seen it": {func(r *rig) {
			r.apply(strings.ReplaceAll(chat, "websocket: true, ports", "websocket: true, guard: json, ports"))
		},
			"close 1008 policy_denied", codes.PolicyDenied, "policy", 1008},
		"a lease that lapsed": {func(r *rig) { r.policies.set(nil, verdict.Refuse("lease", codes.LeaseLapsed, "gone")) },
			"close 1008 lease_lapsed", codes.LeaseLapsed, "lease", 1008},
	} {
		for _, busy := range []string{"idle", "in a message", "with a server that reads nothing", "with an agent that reads nothing"} {
			t.Run(name+", "+busy, func(t *testing.T) {
				r := newRig(t, chat)
				w := r.open("/ws/a", false)
				flood := strings.Repeat("x", 1<<20)
				switch busy {
				case "in a message":
					w.say(text, false, 0, "half")
				case "with a server that reads nothing":
					go func() {
						for range 50 {
							w.say(binary, true, 0, flood)
						}
					}()
					time.Sleep(100 * time.Millisecond)
				case "with an agent that reads nothing":
					go func() {
						for range 50 {
							w.reply(binary, true, 0, flood)
						}
					}()
					time.Sleep(100 * time.Millisecond)
				}
				c.do(r)
				o := r.journal.lastOutcome(t, 1)
				if o.Code != c.code || o.Cut != c.cut || o.Close != c.status {
					t.Errorf("outcome %+v", o)
				}
				if busy == "idle" || busy == "in a message" {
					w.wantAgent(t, c.want)
				}
				if busy == "idle" {
					w.wantServer(t, "close 1001")
				}
			})
		}
	}
}

// TestI10MessagesAreJudgedByThePolicyInForce: a guarded message that comes
// before the sweep does meets the new policy all the same.
func TestI10MessagesAreJudgedByThePolicyInForce(t *testing.T) {
	r := newRig(t, chat)
	w := r.open("/json/a", false)
	w.say(text, true, 0, "{}")
	w.wantServer(t, "text {}")
	r.apply(strings.ReplaceAll(chat, "agents:", "      - deny: {host: api.example.com, paths: [\"/json/**\"]}\nagents:"))
	w.say(text, true, 0, `{"a":1}`)
	w.wantAgent(t, "close 1008 policy_denied")
	w.wantServer(t, "close 1001")
	if o := r.journal.lastOutcome(t, 1); o.Cut != "policy" || o.MessagesUp != 1 {
		t.Errorf("outcome %+v", o)
	}
}

func TestI10AllowedWebSocketsGoOn(t *testing.T) {
	r := newRig(t, chat)
	w := r.open("/json/a", false)
	for i := range 3 {
		w.say(text, true, 0, fmt.Sprint(i))
		w.wantServer(t, fmt.Sprintf("text %d", i))
		r.apply(chat)
	}
	if d := r.journal.lastDecision(t, 4); d.Revision < 2 || d.Message != 3 {
		t.Errorf("decision %+v", d)
	}
}

func TestWebSocketTimeLimits(t *testing.T) {
	for name, c := range map[string]struct {
		limit func(r *rig)
		error string
	}{
		"idle": {func(r *rig) { r.cfg.Limits.MessageIdle = time.Millisecond }, "waited too long for a message, or a ping"},
		"life": {func(r *rig) { r.cfg.Limits.MessageLife = time.Millisecond }, "was open for as long as it may be"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, chat, c.limit)
			w := r.open("/ws/a", false)
			w.wantAgent(t, "close 1001 limit")
			w.wantServer(t, "close 1001")
			if o := r.journal.lastOutcome(t, 1); o.Cut != "limit" || o.Error != c.error || o.Close != 1001 {
				t.Errorf("outcome %+v", o)
			}
		})
	}
}

// TestWebSocketsEndWithTheSession: within the time that a goodbye takes.
func TestWebSocketsEndWithTheSession(t *testing.T) {
	for _, c := range []struct {
		cause     error
		cut, says string
	}{{nil, "shutdown", "the proxy ends"}, {egress.ErrSessionEnded, "session", "the session ended"}} {
		r := newRig(t, chat)
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		stop := r.serveUntil(ln, egress.Source{Identity: r.id, Arrival: netplan.Explicit}, c.cause)
		w := r.openAt(ln.Addr().String(), "/ws/a", false)
		go stop()
		w.wantAgent(t, "close 1001 "+c.cut)
		if o := r.journal.lastOutcome(t, 1); o.Cut != c.cut || o.Error != c.says {
			t.Errorf("outcome %+v", o)
		}
	}
}

// TestWebSocketSurvivesPlainRequests: the upgraded connection stands for itself
// while others go on; nothing of it is pooled.
func TestWebSocketSurvivesPlainRequests(t *testing.T) {
	r := newRig(t, chat)
	echoes := wsEcho(websocket.CompressionContextTakeover)
	r.upstream(apiHost, apiAddr, 443, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/plain" {
			io.WriteString(w, "plain")
			return
		}
		echoes.ServeHTTP(w, q)
	}))
	proxy := r.listen(netplan.Explicit)
	plain := func() {
		t.Helper()
		res, err := r.client(proxy).Get("https://api.example.com/plain")
		must(t, err)
		if body, _ := io.ReadAll(res.Body); string(body) != "plain" {
			t.Errorf("got %q", body)
		}
		res.Body.Close()
	}
	plain()
	c, _, err := r.wsDial(proxy, "wss://api.example.com/ws/a", websocket.DialOptions{})
	must(t, err)
	plain()
	must(t, c.Write(t.Context(), websocket.MessageText, []byte("close me")))
	if _, _, err := c.Read(t.Context()); websocket.CloseStatus(err) != 4321 || !strings.Contains(err.Error(), "because you said so") {
		t.Errorf("got %v", err)
	}
	plain()
	if r.net.dials() != 2 {
		t.Errorf("dialled %d times", r.net.dials())
	}
}
