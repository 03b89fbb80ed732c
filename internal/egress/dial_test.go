// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"bawn/internal/codes"
	"bawn/internal/egress"
	"bawn/internal/ids"
	"bawn/internal/netplan"
)

func tlsClient(c net.Conn, host string) *tls.Conn {
	return tls.Client(c, &tls.Config{InsecureSkipVerify: true, ServerName: host})
}

func source(r *rig, a netplan.Arrival) egress.Source {
	return egress.Source{Identity: r.id, Arrival: a}
}

// TestI6OneRefusedAnswerRefusesTheName: nothing is dialled when any answer is
// not public.
func TestI6OneRefusedAnswerRefusesTheName(t *testing.T) {
	for _, a := range []string{
		"169.254.169.254", "127.0.0.1", "10.1.2.3", "::1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:a9fe:a9fe::1",
		"fe80::1", "ff02::1", "0.0.0.0", "100.64.0.1", "198.18.0.1", "168.63.129.16",
	} {
		r := newRig(t, basic)
		r.upstream(apiHost, apiAddr, 443, echo)
		r.net.add(apiHost, a)
		res, err := r.client(r.listen(netplan.Explicit)).Get("https://api.example.com/v1/a")
		must(t, err)
		wantDenial(t, res, 403, codes.AddressNotPublic)
		if r.net.dials() != 0 {
			t.Errorf("%s: dialled %v", a, r.net.dialled)
		}
		if o := r.journal.lastOutcome(t, 1); o.Code != codes.AddressNotPublic || !strings.Contains(o.Error, a) {
			t.Errorf("%s: outcome %+v", a, o)
		}
	}
}

// TestI6SocketIsCheckedAgain: an address that turns up at the socket only is
// not connected to.
func TestI6SocketIsCheckedAgain(t *testing.T) {
	r := newRig(t, basic)
	r.upstream(apiHost, apiAddr, 443, echo)
	r.net.lie = netip.MustParseAddrPort("169.254.169.254:443")
	res, err := r.client(r.listen(netplan.Explicit)).Get("https://api.example.com/v1/a")
	must(t, err)
	wantDenial(t, res, 502, codes.UpstreamUnreachable)
}

func TestI6NetDialerChecks(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer ln.Close()
	to := netip.MustParseAddrPort(ln.Addr().String())
	no := errors.New("no")
	if _, err := (egress.NetDialer{}).Dial(t.Context(), to, func(real netip.AddrPort) error {
		if real != to {
			t.Errorf("asked about %s", real)
		}
		return no
	}); !errors.Is(err, no) {
		t.Errorf("got %v", err)
	}
	c, err := (egress.NetDialer{}).Dial(t.Context(), to, func(netip.AddrPort) error { return nil })
	must(t, err)
	c.Close()
}

func TestFailover(t *testing.T) {
	r := newRig(t, basic)
	r.net.add(apiHost, "93.184.215.99") // nobody is there
	r.upstream(apiHost, apiAddr, 443, echo)
	res, err := r.client(r.listen(netplan.Explicit)).Get("https://api.example.com/v1/a")
	must(t, err)
	if res.StatusCode != 200 || r.net.dials() != 2 {
		t.Errorf("got %s after dialling %v", res.Status, r.net.dialled)
	}
}

func TestUpstreamFaults(t *testing.T) {
	for name, c := range map[string]struct {
		make func(*rig)
		code codes.Code
	}{
		"no such name": {func(*rig) {}, codes.AddressUnresolved},
		"nobody there": {func(r *rig) { r.net.add(apiHost, apiAddr) }, codes.UpstreamUnreachable},
		"another root": {func(r *rig) {
			r.serverCA, _ = newCA(r.t)
			r.upstream(apiHost, apiAddr, 443, echo)
		}, codes.UpstreamTLSUntrusted},
		"another name": {func(r *rig) {
			r.upstream("other.example.com", apiAddr, 443, echo)
			r.net.add(apiHost, apiAddr)
		}, codes.UpstreamTLSWrongHost},
		"no TLS": {func(r *rig) {
			r.upstream(apiHost, apiAddr, 80, echo)
			r.net.servers[netip.MustParseAddrPort(apiAddr+":443")] = r.net.servers[netip.MustParseAddrPort(apiAddr+":80")]
		}, codes.UpstreamTLSInvalid},
		"TLS 1.1": {func(r *rig) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			must(r.t, err)
			cert, err := r.serverCA.Certificate(apiHost)
			must(r.t, err)
			old := tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{*cert}, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11})
			srv := &http.Server{Handler: echo}
			go srv.Serve(old)
			r.t.Cleanup(func() { srv.Close() })
			r.net.add(apiHost, apiAddr)
			r.net.servers[netip.MustParseAddrPort(apiAddr+":443")] = ln.Addr().String()
		}, codes.UpstreamTLSWeak},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, basic)
			c.make(r)
			client := r.client(r.listen(netplan.Explicit))
			for range 2 { // the first failure changes nothing for the second
				res, err := client.Get("https://api.example.com/v1/a")
				must(t, err)
				wantDenial(t, res, 502, c.code)
			}
			if o := r.journal.lastOutcome(t, 2); o.Code != c.code || o.Error == "" {
				t.Errorf("outcome %+v", o)
			}
		})
	}
}

// TestPrivateTarget: a rule that names a private range reaches it, and nothing
// beside it.
func TestPrivateTarget(t *testing.T) {
	yaml := strings.Replace(basic, "        methods:", "        addresses: [10.20.0.0/16]\n        methods:", 1)
	for a, status := range map[string]int{"10.20.3.4": 200, "10.21.3.4": 403} {
		r := newRig(t, yaml)
		r.upstream(apiHost, a, 443, echo)
		client := r.client(r.listen(netplan.Explicit))
		res, err := client.Get("https://api.example.com/v1/a")
		must(t, err)
		io.Copy(io.Discard, res.Body)
		if res.StatusCode != status {
			t.Errorf("%s: got %s, want %d", a, res.Status, status)
		}
		if status != 200 {
			continue
		}
		r.apply(basic) // the connection that waits is under a range no longer allowed
		res, err = client.Get("https://api.example.com/v1/a")
		must(t, err)
		wantDenial(t, res, 403, codes.AddressNotPublic)
	}
}

// TestPoolIsNotShared: no two leases use one upstream connection, nor do two
// rules.
func TestPoolIsNotShared(t *testing.T) {
	r := newRig(t, strings.Replace(basic, "agents:", "      - {id: other, host: api.example.com, paths: [/other/**]}\nagents:", 1))
	r.upstream(apiHost, apiAddr, 443, echo)
	proxy := r.listen(netplan.Explicit)
	get := func(proxy, path string) {
		t.Helper()
		client := r.client(proxy)
		res, err := client.Get("https://api.example.com" + path)
		must(t, err)
		io.Copy(io.Discard, res.Body)
		res.Body.Close()
		client.CloseIdleConnections()
	}
	for i, c := range []struct {
		path  string
		dials int
	}{{"/v1/a", 1}, {"/v1/b", 1}, {"/other/a", 2}, {"/v1/c", 2}} {
		get(proxy, c.path)
		r.journal.lastOutcome(t, i+1)
		if r.net.dials() != c.dials {
			t.Fatalf("%s: dialled %d times, want %d", c.path, r.net.dials(), c.dials)
		}
	}
	r.id.Gen = ids.Generation{Epoch: 1, Count: 2}
	get(r.listen(netplan.Explicit), "/v1/a")
	if r.net.dials() != 3 {
		t.Errorf("another lease dialled %d times in all, want 3", r.net.dials())
	}
}

// TestDeadIdleConnection: a connection that the server closed, or spoke on,
// while it waited is not used.
func TestDeadIdleConnection(t *testing.T) {
	for name, after := range map[string]string{
		"closed": "",
		"spoke":  "HTTP/1.1 408 Timeout\r\nContent-Length: 0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, basic)
			var closed sync.WaitGroup
			closed.Add(1)
			var once sync.Once
			r.script(apiHost, apiAddr, 443, func(conn net.Conn, br *bufio.Reader) {
				readHead(br)
				io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				once.Do(func() {
					r.journal.lastOutcome(t, 1)
					io.WriteString(conn, after)
					if after == "" {
						conn.Close()
					}
					closed.Done()
				})
				br.ReadByte()
			})
			conn := r.tunnel(r.listen(netplan.Explicit), apiHost)
			br := bufio.NewReader(conn)
			for i := range 2 {
				fmt.Fprint(conn, "POST /v1/a HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 0\r\n\r\n")
				if head := readHead(br); !strings.HasPrefix(head, "HTTP/1.1 200") {
					t.Fatalf("request %d: got %q", i, head)
				}
				closed.Wait()
			}
			if r.net.dials() != 2 {
				t.Errorf("dialled %d times, want 2", r.net.dials())
			}
		})
	}
}
