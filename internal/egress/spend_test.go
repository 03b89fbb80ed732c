// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"bawn/internal/codes"
	"bawn/internal/netplan"
	"bawn/internal/verdict"
)

// bounded is a policy with budgets.
func bounded(budgets string) string {
	return `version: 1
profiles:
  p:
    rules:
      - host: api.example.com
      - host: db.example.com
        ports: [5432/tcp]
        inspect: none
    budgets: {` + budgets + `}
agents:
  dev: {profile: p}
`
}

// day is the middle of one: no period begins while a test runs.
func day(r *rig) {
	r.cfg.Now = func() time.Time { return time.Date(2026, 11, 30, 12, 0, 30, 0, time.UTC) }
}

// swallow counts what it is sent.
func swallow(got *atomic.Int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		buf := make([]byte, 4096)
		for {
			n, err := q.Body.Read(buf)
			got.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
}

// TestBytesBeyondABudgetAreNotPassedOn: a body that is sent while it is read ends
// where the budget does, and the agent is told; a response breaks off there.
func TestBytesBeyondABudgetAreNotPassedOn(t *testing.T) {
	t.Run("up", func(t *testing.T) {
		r := newRig(t, bounded("egress_bytes: 1MB/day"), day)
		var got atomic.Int64
		r.upstream(apiHost, apiAddr, 443, swallow(&got))
		client := r.client(r.listen(netplan.Explicit))
		res, err := client.Post("https://"+apiHost+"/", "text/plain", bytes.NewReader(make([]byte, 3<<20)))
		must(t, err)
		wantDenial(t, res, 429, codes.BudgetExceeded)
		o := r.journal.lastOutcome(t, 1)
		// The server may not read all that came before its connection was reset.
		if n := got.Load(); n > 1e6 || o.BytesUp > 1e6 || o.BytesUp < 1e6-64<<10 || o.Code != codes.BudgetExceeded || o.Cut != "budget" ||
			!strings.Contains(o.Error, "egress_bytes 1MB/day is used up, and begins anew at 2026-12-01T00:00:00Z") {
			t.Errorf("%d octets arrived: %+v", n, o)
		}
		// What is left is less than any request needs, or nearly so.
		res, err = client.Post("https://"+apiHost+"/", "text/plain", bytes.NewReader(make([]byte, 64<<10)))
		must(t, err)
		wantDenial(t, res, 429, codes.BudgetExceeded)
	})
	t.Run("down", func(t *testing.T) {
		r := newRig(t, bounded("ingress_bytes: 1MB/day"), day)
		r.upstream(apiHost, apiAddr, 443, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			w.Write(make([]byte, 3<<20)) //nolint:errcheck // it breaks off
		}))
		res, err := r.client(r.listen(netplan.Explicit)).Get("https://" + apiHost + "/")
		must(t, err)
		n, err := io.Copy(io.Discard, res.Body)
		if err == nil || n > 1e6 {
			t.Errorf("%d octets, and %v at the end", n, err)
		}
		if o := r.journal.lastOutcome(t, 1); o.BytesDown > 1e6 || o.BytesDown < 1e6-64<<10 || o.Code != codes.BudgetExceeded || o.Cut != "budget" {
			t.Errorf("%+v", o)
		}
	})
	t.Run("tunnel", func(t *testing.T) {
		r := newRig(t, bounded("egress_bytes: 100kB/day"), day)
		got := r.counts(dbHost, dbAddr, 5432)
		c := r.dial(r.listen(netplan.Explicit))
		fmt.Fprintf(c, "CONNECT %s:5432 HTTP/1.1\r\nHost: %s:5432\r\n\r\n", dbHost, dbHost)
		_, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: "CONNECT"})
		must(t, err)
		for err == nil {
			_, err = c.Write(make([]byte, 8<<10))
		}
		if o := r.journal.lastOutcome(t, 1); o.Code != codes.BudgetExceeded || o.Cut != "budget" || o.BytesUp > 100e3 || got.Load() > 100e3 {
			t.Errorf("%d octets arrived: %+v", got.Load(), o)
		}
	})
}

// counts is a server that counts what it gets.
func (r *rig) counts(host, addr string, port uint16) *atomic.Int64 {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(r.t, err)
	r.t.Cleanup(func() { ln.Close() })
	r.net.add(host, addr)
	r.net.servers[netip.AddrPortFrom(netip.MustParseAddr(addr), port)] = ln.Addr().String()
	got := new(atomic.Int64)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for buf := make([]byte, 4096); ; {
					n, err := c.Read(buf)
					got.Add(int64(n))
					if err != nil {
						return
					}
				}
			}()
		}
	}()
	return got
}

// TestI13ManyConnectionsShareOneBudget: however an agent splits what it does, over
// connections, listeners, streams and sessions, no more goes out.
func TestI13ManyConnectionsShareOneBudget(t *testing.T) {
	r := newRig(t, bounded("egress_bytes: 500kB/day, requests: 40/h"), day)
	var got atomic.Int64
	r.upstream(apiHost, apiAddr, 443, swallow(&got))
	proxies := []string{r.listen(netplan.Explicit), r.listen(netplan.Explicit)}
	r.id.Slot, r.id.Session = 8, "s-2" // another session of the same agent
	proxies = append(proxies, r.listen(netplan.Explicit))
	var through atomic.Int64
	var group sync.WaitGroup
	for i := range 12 {
		group.Go(func() {
			client := r.client(proxies[i%len(proxies)])
			for range 10 {
				res, err := client.Post("https://"+apiHost+"/", "text/plain", bytes.NewReader(make([]byte, 20<<10)))
				if err != nil {
					continue // refused while it sends
				}
				if res.StatusCode == 200 {
					through.Add(1)
				}
				io.Copy(io.Discard, res.Body) //nolint:errcheck // not asked about
				res.Body.Close()
			}
		})
	}
	group.Wait()
	if n := through.Load(); n > 25 || n < 20 || got.Load() > 500e3 {
		t.Errorf("%d requests of 20 KiB went through, %d octets", n, got.Load())
	}
	_, outcomes := r.journal.all()
	var sum int64
	for _, o := range outcomes {
		sum += o.BytesUp
	}
	if len(outcomes) > 40 || sum > 500e3 {
		t.Errorf("on record are %d requests with %d octets", len(outcomes), sum)
	}
}

// TestI10SmallerBudgetCutsWhatIsOpen, and what comes next is refused; a larger one
// lets it through again.
func TestI10SmallerBudgetCutsWhatIsOpen(t *testing.T) {
	r := newRig(t, bounded("egress_bytes: 1MB/day"), day)
	r.counts(dbHost, dbAddr, 5432)
	var got atomic.Int64
	r.upstream(apiHost, apiAddr, 443, swallow(&got))
	proxy := r.listen(netplan.Explicit)
	c := r.dial(proxy)
	fmt.Fprintf(c, "CONNECT %s:5432 HTTP/1.1\r\nHost: %s:5432\r\n\r\n", dbHost, dbHost)
	_, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: "CONNECT"})
	must(t, err)
	_, err = c.Write(make([]byte, 10_000))
	must(t, err)
	time.Sleep(50 * time.Millisecond) // it is through
	began := time.Now()
	r.apply(bounded("egress_bytes: 5kB/day"))
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the tunnel says something")
	}
	if o := r.journal.lastOutcome(t, 1); o.Code != codes.BudgetExceeded || o.Cut != "budget" || time.Since(began) > 5*time.Second {
		t.Errorf("after %v: %+v", time.Since(began), o)
	}
	client := r.client(proxy)
	res, err := client.Get("https://" + apiHost + "/")
	must(t, err)
	wantDenial(t, res, 429, codes.BudgetExceeded)
	r.apply(bounded("egress_bytes: 1MB/day"))
	res, err = client.Get("https://" + apiHost + "/")
	must(t, err)
	res.Body.Close()
	if res.StatusCode != 200 {
		t.Errorf("with a larger budget: %s", res.Status)
	}
}

// TestConnectionsOfAllSessions: the bound on what is open at a time is that of the
// agent, and what ends makes room.
func TestConnectionsOfAllSessions(t *testing.T) {
	r := newRig(t, bounded("connections: 2"), day)
	first := r.listen(netplan.Explicit)
	r.id.Slot, r.id.Session = 8, "s-2"
	second := r.listen(netplan.Explicit)
	one, two := r.dial(first), r.dial(second)
	for _, c := range []net.Conn{one, two} { // they are served
		fmt.Fprint(c, "GET http://no.example/ HTTP/1.1\r\nHost: no.example\r\n\r\n")
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		must(t, err)
		wantDenial(t, res, 403, codes.HostNotAllowed)
	}
	res, err := http.ReadResponse(bufio.NewReader(r.dial(second)), nil)
	must(t, err)
	wantDenial(t, res, 429, codes.ConcurrencyExceeded)
	if d, _ := r.journal.all(); d[len(d)-1].Verdict != verdict.Deny || d[len(d)-1].Stage != "budget" || d[len(d)-1].Revision != 1 {
		t.Errorf("%+v", d[len(d)-1])
	}
	one.Close()
	wait(t, "room", func() bool {
		c := r.dial(first)
		defer c.Close()
		fmt.Fprint(c, "GET http://no.example/ HTTP/1.1\r\nHost: no.example\r\n\r\n")
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		return err == nil && res.StatusCode == 403
	})
}

// TestAgentsAreToldWhichBudget, and nothing of where it stands in the policy.
func TestAgentsAreToldWhichBudget(t *testing.T) {
	r := newRig(t, bounded("requests: 1/min"), day)
	var got atomic.Int64
	r.upstream(apiHost, apiAddr, 443, swallow(&got))
	client := r.client(r.listen(netplan.Explicit))
	for i := range 2 {
		res, err := client.Get("https://" + apiHost + "/")
		must(t, err)
		body, err := io.ReadAll(res.Body)
		must(t, err)
		res.Body.Close()
		if i == 1 && (!bytes.Contains(body, []byte("requests 1/min is used up, and begins anew at 2026-11-30T12:01:00Z.")) || bytes.Contains(body, []byte("line"))) {
			t.Errorf("%s", body)
		}
	}
}
