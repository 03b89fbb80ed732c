// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package h2conn_test

import (
	"io"
	"sync"
	"testing"

	"golang.org/x/net/http2"

	"bawn/internal/h2conn"
	"bawn/internal/httpwire"
	"bawn/internal/roottest"
)

// TestIdleConnectionsAreSmall holds many connections that have served a request
// with a body, and now wait.
func TestIdleConnectionsAreSmall(t *testing.T) {
	const most = 14 << 10 // octets of each, its goroutine and what the race detector adds included
	n := roottest.Count(500, 10_000)
	in := append([]byte(http2.ClientPreface), script(func(p *peer) {
		p.fr.WriteSettings()
		p.fr.WriteSettingsAck()
		p.ask(1, false, "user-agent=a client of the usual sort", "accept=*/*", "authorization=Bearer 0123456789")
		p.fr.WriteData(1, true, make([]byte, 10_000))
	})...)
	var served, idle sync.WaitGroup
	end := make(chan struct{})
	before := heap()
	for range n {
		served.Add(1)
		nc := &waitingConn{memConn: newMemConn(in), end: end}
		close(nc.open)
		v := h2conn.NewServer(nc, h2conn.Limits{}, func(s *h2conn.ServerStream) {
			io.Copy(io.Discard, s.Body())
			s.WriteHead(status(200, "content-type", "text/plain", "date", "Mon, 30 Nov 2026 13:00:00 GMT"), false)
			s.Write(make([]byte, 10_000))
			s.End(nil)
			served.Done()
		})
		idle.Go(func() { v.Serve() })
	}
	served.Wait()
	each := int(heap()-before) / n
	close(end)
	idle.Wait()
	if t.Logf("each takes %d octets", each); each > most {
		t.Errorf("an idle connection takes %d octets, more than %d", each, most)
	}
}

// A waitingConn says what it has to say and then waits.
type waitingConn struct {
	*memConn
	end chan struct{}
}

func (c *waitingConn) Read(p []byte) (int, error) {
	n, err := c.memConn.Read(p)
	if n == 0 {
		<-c.end
	}
	return n, err
}

func (c *waitingConn) Write(p []byte) (int, error) { return len(p), nil }

// TestFinishedStreamsLeaveNothing sends many requests on one connection, and
// cancels some.
func TestFinishedStreamsLeaveNothing(t *testing.T) {
	addr := serveH2(t, h2conn.Limits{}, answerKilobyte)
	k := dialH2(t, addr, h2conn.Limits{})
	buf := make([]byte, 4<<10)
	round := func(n int) {
		for i := range n {
			if err := ask(k, buf); err != nil {
				t.Fatal(err)
			}
			if i%10 == 0 {
				s, err := k.Open(request("POST"), "https", "/", false)
				if err != nil {
					t.Fatal(err)
				}
				s.Write(buf[:kilobyte])
				s.Reset(http2.ErrCodeCancel)
				var p httpwire.Response
				if s.ReadHead(&p) == nil {
					t.Error("a stream that was reset goes on")
				}
			}
		}
	}
	round(500)
	before := heap()
	n := roottest.Count(3000, 1_000_000)
	round(n)
	if more := heap() - before; more > 512<<10 {
		t.Errorf("%d requests have left %d octets", n, more)
	}
}
