// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"bawn/internal/egress"
	"bawn/internal/ids"
	"bawn/internal/netplan"
)

const turmoilRules = `
version: 1
profiles:
  p:
    rules:
      - {id: api, host: api.example.com, websocket: true, paths: ["/v1/**"]}
agents:
  dev: {profile: p}
  ops: {profile: p}
`

// A turmoil is two agents that ask in all ways at once, and give up at any
// moment, while the policy goes back and forth.
type turmoil struct {
	t      *testing.T
	r      *rig
	change atomic.Int64 // odd: while the policy changes
	tight  atomic.Bool
	rounds int
	good   atomic.Int64
}

type connKey struct{}

// ServeHTTP says who asked for what, and fails if a connection carries two
// agents.
func (m *turmoil) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	who := q.Header.Get("X-Who")
	if first := q.Context().Value(connKey{}).(*atomic.Pointer[string]); !first.CompareAndSwap(nil, &who) && *first.Load() != who {
		m.t.Errorf("a connection of %s carries a request of %s", *first.Load(), who)
	}
	if strings.HasSuffix(q.URL.Path, "/ws") {
		ws, err := websocket.Accept(w, q, &websocket.AcceptOptions{CompressionMode: websocket.CompressionContextTakeover})
		if err != nil {
			return
		}
		defer ws.CloseNow()
		for {
			kind, message, err := ws.Read(q.Context())
			if err != nil || ws.Write(q.Context(), kind, append([]byte(who+" "), message...)) != nil {
				return
			}
		}
	}
	body, err := io.ReadAll(q.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	fmt.Fprintf(w, "%s %s %s %s", who, q.Method, q.URL.Path, body)
}

func (m *turmoil) toggle() {
	m.change.Add(1)
	rules := turmoilRules
	if !m.tight.Load() {
		rules = strings.Replace(rules, `"/v1/**"`, `"/v1/a/**"`, 1)
	}
	m.r.apply(rules)
	m.tight.Store(!m.tight.Load())
	m.change.Add(1)
}

// ask sends one request, and is content with its own answer or with none.
func (m *turmoil) ask(ctx context.Context, c *http.Client, who string, n int) {
	path := fmt.Sprintf("/v1/%c/%d", 'a'+rune(n%2), n)
	size := []int{0, 10, 20_000, 200_000}[rand.IntN(4)]
	method, body := "GET", bytes.Repeat([]byte{byte(n)}, size)
	if size > 0 {
		method = "POST"
	}
	before, tight := m.change.Load(), m.tight.Load()
	q, _ := http.NewRequestWithContext(ctx, method, "https://"+apiHost+path, bytes.NewReader(body))
	q.Header.Set("X-Who", who)
	res, err := c.Do(q)
	if err != nil {
		return
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if res.StatusCode != 200 || err != nil {
		return
	}
	if tight && n%2 == 1 && before%2 == 0 && m.change.Load() == before {
		m.t.Errorf("%s was answered, and is not allowed", path)
	}
	if want := fmt.Sprintf("%s %s %s %s", who, method, path, body); string(got) != want {
		m.t.Errorf("%s %s got %d octets of another answer: %.60q", method, path, len(got), got)
	}
	m.good.Add(1)
}

// talk opens a WebSocket and says a few things.
func (m *turmoil) talk(ctx context.Context, proxy, who string) {
	ws, _, err := m.r.wsDial(proxy, "wss://"+apiHost+"/v1/b/ws", websocket.DialOptions{
		HTTPHeader: http.Header{"X-Who": {who}}, CompressionMode: websocket.CompressionContextTakeover,
	})
	if err != nil {
		return
	}
	defer ws.CloseNow()
	for i := range 10 {
		say := strings.Repeat(fmt.Sprint(i), 1+i*5000)
		if ws.Write(ctx, websocket.MessageText, []byte(say)) != nil {
			return
		}
		ws.SetReadLimit(1 << 20)
		_, got, err := ws.Read(ctx)
		if err != nil {
			return
		}
		if string(got) != who+" "+say {
			m.t.Errorf("%s said %d octets and heard %d of another: %.20q", who, len(say), len(got), got)
		}
		m.good.Add(1)
	}
}

// TestTurmoil: whatever happens at once, each answer is that to its request, no
// two agents share a connection, and nothing that is not allowed is answered.
func TestTurmoil(t *testing.T) {
	for _, protocol := range []string{"http/1.1", "h2"} {
		t.Run(protocol, func(t *testing.T) {
			m := &turmoil{t: t, r: newRig(t, turmoilRules), rounds: 24}
			protocols := []string{protocol, "http/1.1"}
			m.r.upstreamALPN(apiHost, apiAddr, protocols, m, func(srv *http.Server) {
				srv.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
					return context.WithValue(ctx, connKey{}, new(atomic.Pointer[string]))
				}
			})
			var all sync.WaitGroup
			for i, who := range []string{"dev", "ops"} {
				ln, err := net.Listen("tcp", "127.0.0.1:0")
				must(t, err)
				m.r.serve(ln, egress.Source{Arrival: netplan.Explicit, Identity: ids.Identity{
					Slot: i, Gen: ids.Generation{Epoch: 1, Count: 1}, Session: "s", Agent: who, User: "u",
				}})
				proxy := ln.Addr().String()
				for _, c := range []*http.Client{m.r.client(proxy), m.r.clientH2(proxy)} {
					for range 3 {
						all.Go(func() {
							for n := range m.rounds {
								ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+rand.IntN(40))*time.Millisecond)
								if n%4 == 0 {
									m.ask(t.Context(), c, who, n)
								} else {
									m.ask(ctx, c, who, n)
								}
								cancel()
							}
						})
					}
				}
				all.Go(func() {
					for range m.rounds / 8 {
						m.talk(t.Context(), proxy, who)
					}
				})
			}
			done := make(chan bool)
			go func() { all.Wait(); close(done) }()
			for {
				select {
				case <-done:
					if m.good.Load() == 0 {
						t.Error("nothing was answered at all")
					}
					return
				case <-time.After(30 * time.Millisecond):
					m.toggle()
				}
			}
		})
	}
}
