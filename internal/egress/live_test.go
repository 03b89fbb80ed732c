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
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"bawn/internal/audit"
	"bawn/internal/codes"
	"bawn/internal/netplan"
	"bawn/internal/verdict"
)

const nothing = `
version: 1
profiles:
  p: {rules: [{host: other.example.com}]}
agents:
  dev: {profile: p}
`

// TestI10LiveFlowsAreCut: what is open and no longer allowed ends, whatever it
// is doing, and says why on record.
func TestI10LiveFlowsAreCut(t *testing.T) {
	start := func(t *testing.T, r *rig, what string) net.Conn {
		proxy := r.listen(netplan.Explicit)
		switch what {
		case "idle":
			return r.tunnel(proxy, apiHost)
		case "greeting":
			return r.connect(proxy, "api.example.com:443")
		case "splice":
			c := r.connect(proxy, "db.example.com:5432")
			fmt.Fprint(c, "x")
			io.ReadFull(c, make([]byte, 1))
			return c
		}
		c := r.tunnel(proxy, apiHost)
		fmt.Fprint(c, "GET /v1/"+what+" HTTP/1.1\r\nHost: api.example.com\r\n\r\n")
		if what == "stream" {
			if head := readHead(bufio.NewReader(c)); !strings.HasPrefix(head, "HTTP/1.1 200") {
				t.Fatalf("got %q", head)
			}
		} else {
			wait(t, "the request to be up", func() bool { return r.net.dials() == 1 })
		}
		return c
	}
	change := map[string]struct {
		do   func(*rig)
		code codes.Code
		cut  string
	}{
		"a policy without the host": {func(r *rig) { r.apply(nothing) }, codes.HostNotAllowed, "policy"},
		"a lease that lapsed": {func(r *rig) {
			r.policies.set(nil, verdict.Refuse("lease", codes.LeaseLapsed, "gone"))
		}, codes.LeaseLapsed, "lease"},
	}
	for _, what := range []string{"idle", "greeting", "wait", "stream", "splice"} {
		for name, c := range change {
			t.Run(what+", "+name, func(t *testing.T) {
				r := newRig(t, strings.Replace(basic, "agents:", "      - {id: db, host: db.example.com, ports: [5432/tcp], inspect: none}\nagents:", 1))
				r.script(apiHost, apiAddr, 443, func(conn net.Conn, br *bufio.Reader) {
					if strings.Contains(readHead(br), "stream") {
						io.WriteString(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
					}
					br.ReadByte()
				})
				ln, err := net.Listen("tcp", "127.0.0.1:0")
				must(t, err)
				defer ln.Close()
				go func() {
					if c, err := ln.Accept(); err == nil {
						io.Copy(c, c)
					}
				}()
				r.net.add("db.example.com", "93.184.215.20")
				r.net.servers[netip.MustParseAddrPort("93.184.215.20:5432")] = ln.Addr().String()
				conn := start(t, r, what)
				c.do(r)
				// Between requests nothing is cut short, and a good end is one.
				if _, err := io.ReadAll(conn); err == nil && what != "idle" {
					t.Error("the connection ended as if all were well")
				}
				switch what {
				case "idle":
				case "greeting":
					if d := r.journal.lastDecision(t, 1); d.Verdict != verdict.Deny {
						t.Errorf("decision %+v", d)
					}
				default:
					if o := r.journal.lastOutcome(t, 1); o.Code != c.code || o.Cut != c.cut {
						t.Errorf("outcome %+v, want %s", o, c.code)
					}
				}
			})
		}
	}
}

// TestI10AllowedFlowsGoOn: a change that does not concern a flow leaves it.
func TestI10AllowedFlowsGoOn(t *testing.T) {
	r := newRig(t, basic)
	r.upstream(apiHost, apiAddr, 443, echo)
	conn := r.tunnel(r.listen(netplan.Explicit), apiHost)
	br := bufio.NewReader(conn)
	for i := range 3 {
		fmt.Fprint(conn, "GET /v1/a HTTP/1.1\r\nHost: api.example.com\r\n\r\n")
		res, err := http.ReadResponse(br, nil)
		must(t, err)
		io.Copy(io.Discard, res.Body)
		r.apply(basic)
		if d := r.journal.lastDecision(t, i+1); d.Revision != uint64(i+1) {
			t.Errorf("judged by revision %d, want %d", d.Revision, i+1)
		}
	}
}

// TestI10SpliceMustBeInspected: a flow that passes unread ends when a rule has
// come to look into it.
func TestI10SpliceMustBeInspected(t *testing.T) {
	r := newRig(t, splices)
	r.script(apiHost, apiAddr, 443, func(_ net.Conn, br *bufio.Reader) { io.Copy(io.Discard, br) })
	c := r.connect(r.listen(netplan.Explicit), "api.example.com:443")
	go func() { // any greeting will do
		tlsClient(c, apiHost).Handshake()
	}()
	wait(t, "the splice", func() bool { return r.net.dials() == 1 })
	r.apply(basic)
	if o := r.journal.lastOutcome(t, 1); o.Code != codes.PolicyDenied || o.Cut != "policy" {
		t.Errorf("outcome %+v", o)
	}
}

// TestI7JournalFirst: what cannot be put on record is not done.
func TestI7JournalFirst(t *testing.T) {
	r := newRig(t, basic)
	r.upstream(apiHost, apiAddr, 443, echo)
	client := r.client(r.listen(netplan.Explicit))
	for code, fault := range map[codes.Code]error{
		codes.JournalUnavailable: errors.New("no space left"),
		codes.AuditQuota:         fmt.Errorf("writing: %w", audit.ErrQuota),
	} {
		r.journal.fail = fault
		res, err := client.Get("https://api.example.com/v1/a")
		must(t, err)
		wantDenial(t, res, codes.StatusOf(code), code)
	}
	if r.net.lookups()+r.net.dials() != 0 {
		t.Error("asked or dialled")
	}
}

// TestI7LeaseIsCheckedAgain: a lease that lapses, or a policy that changes,
// while the decision is written counts.
func TestI7LeaseIsCheckedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*rig)
		status int
		code   codes.Code
	}{
		"lapsed":        {func(r *rig) { r.policies.set(nil, verdict.Refuse("lease", codes.LeaseLapsed, "")) }, 503, codes.LeaseLapsed},
		"denied now":    {func(r *rig) { r.apply(nothing) }, 403, codes.HostNotAllowed},
		"still allowed": {func(r *rig) { r.apply(basic) }, 200, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var once sync.Once
			r := newRig(t, basic, func(r *rig) {
				r.cfg.Stages = func(stage string) {
					if stage == "journaled" {
						// Before any flow can be judged by it again.
						once.Do(func() { c.change(r) })
					}
				}
			})
			r.upstream(apiHost, apiAddr, 443, echo)
			conn := r.tunnel(r.listen(netplan.Explicit), apiHost)
			fmt.Fprint(conn, "GET /v1/a HTTP/1.1\r\nHost: api.example.com\r\n\r\n")
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil && c.code != "" {
				// The sweep was faster than the answer.
				if o := r.journal.lastOutcome(t, 1); o.Code != c.code {
					t.Errorf("outcome %+v", o)
				}
				return
			}
			must(t, err)
			if res.StatusCode != c.status || res.Header.Get("Bawn-Code") != string(c.code) && c.code != "" {
				t.Errorf("got %s, %v", res.Status, res.Header)
			}
			if c.code != "" && r.net.lookups() > 0 {
				t.Error("asked")
			}
			if o := r.journal.lastOutcome(t, 1); o.Code != c.code {
				t.Errorf("outcome %+v", o)
			}
			if d, _ := r.journal.all(); c.code == "" && d[len(d)-1].Revision != 2 {
				t.Errorf("the last decision is by revision %d", d[len(d)-1].Revision)
			}
		})
	}
}

// TestI2NoPolicyNoTraffic: without a policy in force nothing passes.
func TestI2NoPolicyNoTraffic(t *testing.T) {
	r := newRig(t, basic)
	r.policies.set(nil, verdict.Refuse("lease", codes.PolicyUnavailable, "none"))
	conn := r.dial(r.listen(netplan.Explicit))
	fmt.Fprint(conn, "CONNECT api.example.com:443 HTTP/1.1\r\nHost: api.example.com:443\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: "GET"})
	must(t, err)
	wantDenial(t, res, 503, codes.PolicyUnavailable)
}

// TestI12PanicEndsOneRequest: a fault denies the request at hand, and only it.
func TestI12PanicEndsOneRequest(t *testing.T) {
	for _, at := range []string{"accepted", "judged", "journaled", "resolved", "dialled", "first_byte", "outcome"} {
		t.Run(at, func(t *testing.T) {
			var mu sync.Mutex
			armed := false
			r := newRig(t, basic, func(r *rig) {
				r.cfg.Stages = func(stage string) {
					mu.Lock()
					defer mu.Unlock()
					if armed && stage == at {
						armed = false
						panic("at " + at)
					}
				}
			})
			r.upstream(apiHost, apiAddr, 80, echo)
			proxy := r.listen(netplan.Explicit)
			mu.Lock()
			armed = true
			mu.Unlock()
			res, err := r.client(proxy).Get("http://api.example.com/v1/a")
			if at != "accepted" && at != "outcome" {
				must(t, err)
				wantDenial(t, res, 500, codes.InternalError)
			}
			wait(t, "the record of the fault", func() bool {
				d, o := r.journal.all()
				return len(d) > 0 && d[0].Code == codes.InternalError || len(o) > 0 && (o[0].Code == codes.InternalError || at == "outcome")
			})
			res, err = r.client(proxy).Get("http://api.example.com/v1/a")
			must(t, err)
			if res.StatusCode != 200 {
				t.Errorf("the next request: %s", res.Status)
			}
			res.Body.Close()
		})
	}
}

func TestServeStops(t *testing.T) {
	r := newRig(t, basic)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	stop := r.serve(ln, source(r, netplan.Explicit))
	conn := r.tunnel(ln.Addr().String(), apiHost)
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	select {
	case <-stopped:
	case <-time.After(10 * time.Second):
		t.Fatal("Serve waits for an idle connection")
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is still there")
	}
}
