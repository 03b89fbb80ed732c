// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"bawn/internal/budget"
	"bawn/internal/codes"
	"bawn/internal/netplan"
	"bawn/internal/wswire"
)

// TestHeadsBeyondABudgetAreNotSent, whatever the two legs speak: on a connection
// that carries streams of others, a head that is handed over goes out with theirs.
func TestHeadsBeyondABudgetAreNotSent(t *testing.T) {
	for _, server := range []string{"http/1.1", "h2"} {
		t.Run(server, func(t *testing.T) {
			r := newRig(t, bounded("egress_bytes: 20kB/day"), day)
			var large atomic.Int64
			r.upstreamALPN(apiHost, apiAddr, []string{server}, http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
				large.Add(int64(len(q.Header.Get("X-Large"))))
			}))
			c := r.clientH2(r.listen(netplan.Explicit))
			ask := func(large int) *http.Response {
				q, err := http.NewRequest("GET", "https://"+apiHost+"/", nil)
				must(t, err)
				q.Header.Set("X-Large", strings.Repeat("x", large))
				res, err := c.Do(q)
				must(t, err)
				return res
			}
			res := ask(1)
			res.Body.Close()
			for range 5 {
				wantDenial(t, ask(25_000), 429, codes.BudgetExceeded)
			}
			time.Sleep(50 * time.Millisecond) // for what went out to arrive
			if n := large.Load(); n > 1 {
				t.Errorf("%d octets went out", n)
			}
		})
	}
}

// TestInterimResponsesAreCounted before they go on.
func TestInterimResponsesAreCounted(t *testing.T) {
	for _, agent := range []string{"http/1.1", "h2"} {
		t.Run(agent, func(t *testing.T) {
			r := newRig(t, bounded("ingress_bytes: 20kB/day"), day)
			r.upstream(apiHost, apiAddr, 443, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				w.Header().Set("Link", "<"+strings.Repeat("x", 15_000)+">")
				w.WriteHeader(103)
			}))
			proxy := r.listen(netplan.Explicit)
			c := r.client(proxy)
			if agent == "h2" {
				c = r.clientH2(proxy)
			}
			var got int
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
				Got1xxResponse: func(_ int, h textproto.MIMEHeader) error { got += len(h.Get("Link")); return nil },
			})
			for range 4 {
				q, err := http.NewRequestWithContext(ctx, "GET", "https://"+apiHost+"/", nil)
				must(t, err)
				if res, err := c.Do(q); err == nil {
					io.Copy(io.Discard, res.Body) //nolint:errcheck // it may break off
					res.Body.Close()
				}
			}
			if got > 20_000 {
				t.Errorf("%d octets came down", got)
			}
		})
	}
}

// boundedChat is a policy of WebSockets with budgets.
func boundedChat(budgets string) string {
	return strings.Replace(chat, "agents:\n", "    budgets: {"+budgets+"}\nagents:\n", 1)
}

// TestWebSocketHeadsAreCounted: the answer that opens one is what a server says.
func TestWebSocketHeadsAreCounted(t *testing.T) {
	r := newRig(t, boundedChat("ingress_bytes: 5kB/day"), day)
	r.upstream(apiHost, apiAddr, 443, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		c, buf, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		buf.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: " +
			wswire.Accept(q.Header.Get("Sec-WebSocket-Key")) + "\r\nX-Large: " + strings.Repeat("x", 8000) + "\r\n\r\n")
		buf.Flush()
		io.Copy(io.Discard, buf) //nolint:errcheck // it is cut
	}))
	c := r.tunnel(r.listen(netplan.Explicit), apiHost)
	_, err := io.WriteString(c, "GET /ws/a HTTP/1.1\r\nHost: "+apiHost+"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	must(t, err)
	all, _ := io.ReadAll(c)
	if bytes.Contains(all, []byte(strings.Repeat("x", 100))) {
		t.Errorf("%d octets came down", len(all))
	}
	if o := r.journal.lastOutcome(t, 1); o.Code != codes.BudgetExceeded || o.Cut != "budget" {
		t.Errorf("%+v", o)
	}
}

// TestGoodbyesAreCounted: the reason of a close frame is text like any message.
func TestGoodbyesAreCounted(t *testing.T) {
	goodbye := "\x0f\xa0" + strings.Repeat("x", 110)
	t.Run("up", func(t *testing.T) {
		m := budget.NewMeter()
		r := newRig(t, boundedChat("egress_bytes: 1kB/day"), day, func(r *rig) { r.cfg.Meter = m })
		w := r.open("/ws/a", false)
		p, _, _ := r.policies.Current()
		used, err := m.Usage("dev", p.Agent("dev").Budgets(), r.cfg.Now())
		must(t, err)
		must(t, m.Use("dev", used[0].Key, used[0].Limit-used[0].Used-50, r.cfg.Now()))
		w.say(wswire.Close, true, 0, goodbye)
		w.wantServer(t, "close 1001")
		w.wantAgent(t, "close 1008 budget_exceeded")
	})
	t.Run("down", func(t *testing.T) {
		r := newRig(t, boundedChat("ingress_bytes: 220B/day"), day)
		w := r.open("/ws/a", false)
		w.reply(wswire.Close, true, 0, goodbye)
		w.wantServer(t, "close 1001")
		w.wantAgent(t, "close 1008 budget_exceeded")
	})
}
