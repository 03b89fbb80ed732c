// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"bawn/internal/addr"
	"bawn/internal/codes"
	"bawn/internal/names"
	"bawn/internal/netplan"
	"bawn/internal/parent"
	"bawn/internal/secret"
	"bawn/internal/uptls"
)

const (
	parentHost = "proxy.example.net"
	parentAddr = "93.184.220.1"
)

// A testParent is a proxy that asks for a login and connects to the servers of
// the rig by their names.
type testParent struct {
	r      *rig
	refuse string // answer with this instead

	mu    sync.Mutex
	asked []string
	login []string
}

// through puts a parent between the rig and its internet. It is reached with
// TLS or without, for all hosts but bypass.
func through(t *testing.T, yaml string, secured bool, bypass ...string) (*rig, *testParent) {
	t.Helper()
	r := newRig(t, yaml, func(r *rig) {
		cfg := parent.Config{
			Host: names.MustParse(parentHost), Port: 3128, Username: "bawn", Password: secret.New("hunter2"),
			Resolver: r.net, Dialer: r.net, Vet: func() addr.Vet { return addr.Vet{} },
		}
		if secured {
			cfg.TLS = uptls.New(r.cfg.Roots, nil)
		}
		for _, b := range bypass {
			cfg.Bypass = append(cfg.Bypass, names.MustPattern(b))
		}
		r.cfg.Parent = parent.New(cfg)
	})
	p := &testParent{r: r}
	port := uint16(80) // listenAt serves it without TLS
	if secured {
		port = 3128
	}
	r.listenAt(parentHost, parentAddr, port, func(ln net.Listener) {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	})
	at := netip.MustParseAddr(parentAddr)
	r.net.servers[netip.AddrPortFrom(at, 3128)] = r.net.servers[netip.AddrPortFrom(at, port)]
	return r, p
}

func (p *testParent) serve(c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	q, err := http.ReadRequest(r)
	if err != nil {
		return
	}
	p.mu.Lock()
	p.asked, p.login = append(p.asked, q.Method+" "+q.RequestURI), append(p.login, q.Header.Get("Proxy-Authorization"))
	p.mu.Unlock()
	if p.refuse != "" {
		io.WriteString(c, p.refuse)
		return
	}
	host, port, _ := net.SplitHostPort(q.RequestURI)
	var where string
	p.r.net.mu.Lock()
	for _, a := range p.r.net.hosts[host] {
		where = p.r.net.servers[netip.MustParseAddrPort(net.JoinHostPort(a.String(), port))]
	}
	p.r.net.mu.Unlock()
	up, err := net.Dial("tcp", where)
	if err != nil {
		io.WriteString(c, "HTTP/1.1 503 Service Unavailable\r\n\r\n")
		return
	}
	defer up.Close()
	io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n")
	go func() { io.Copy(up, r); up.Close() }()
	io.Copy(c, up) //nolint:errcheck // ends with the connection
}

func (p *testParent) seen() (asked, login []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked, p.login
}

// login is that of the rig's parent in its form on the wire.
const login = "Basic YmF3bjpodW50ZXIy"

func bothForms(t *testing.T, do func(t *testing.T, secured bool)) {
	t.Run("plain parent", func(t *testing.T) { do(t, false) })
	t.Run("parent with TLS", func(t *testing.T) { do(t, true) })
}

// TestRequestsGoThroughTheParent: it gets names and its own login, and hears of
// nothing else; nobody else hears of the login; records say who vetted.
func TestRequestsGoThroughTheParent(t *testing.T) {
	bothForms(t, func(t *testing.T, secured bool) {
		r, p := through(t, basic, secured)
		var fields sync.Map
		h := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			for name := range q.Header {
				fields.Store(name, true)
			}
			echo(w, q)
		})
		r.upstream(apiHost, apiAddr, 443, h)
		client := r.client(r.listen(netplan.Explicit))
		client.Transport.(*http.Transport).ProxyConnectHeader = http.Header{"Proxy-Authorization": {"Basic agent"}}
		for i := range 3 {
			q, err := http.NewRequest("GET", "https://api.example.com/v1/a", nil)
			must(t, err)
			q.Header.Set("Proxy-Authorization", "Basic agent")
			res, err := client.Do(q)
			must(t, err)
			io.Copy(io.Discard, res.Body)
			res.Body.Close()
			d, o := r.journal.lastDecision(t, i+1), r.journal.lastOutcome(t, i+1)
			if res.StatusCode != 200 || d.Vetted != "parent" || o.Upstream != parentAddr+":3128" || o.Reused != (i > 0) || o.DNS != 0 {
				t.Errorf("%s, decision %+v, outcome %+v", res.Status, d, o)
			}
			if strings.Contains(fmt.Sprint(res.Header), "Proxy-") {
				t.Errorf("the agent hears %v", res.Header)
			}
		}
		asked, logins := p.seen()
		if fmt.Sprint(asked, logins) != "[CONNECT api.example.com:443] ["+login+"]" {
			t.Errorf("asked %v with %v", asked, logins)
		}
		if _, leaked := fields.Load("Proxy-Authorization"); leaked {
			t.Error("the server got a Proxy-Authorization")
		}
		if fmt.Sprint(r.net.looked) != "["+parentHost+"]" {
			t.Errorf("looked up %v", r.net.looked)
		}
	})
}

// TestEveryWayGoesThroughTheParent: requests without TLS, connections whose
// server speaks first, and TLS that is passed on.
func TestEveryWayGoesThroughTheParent(t *testing.T) {
	bothForms(t, func(t *testing.T, secured bool) {
		r, p := through(t, `version: 1
agents:
  dev:
    rules:
      - {host: plain.example.com, ports: [80]}
      - {host: ssh.example.com, ports: [22], inspect: none}
      - {host: sni.example.com, inspect: sni}
`, secured)
		proxy := r.listen(netplan.Explicit)
		r.upstream("plain.example.com", "93.184.215.20", 80, echo)
		r.upstream("sni.example.com", "93.184.215.22", 443, echo)
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		defer ln.Close()
		r.net.add("ssh.example.com", "93.184.215.21")
		r.net.servers[netip.MustParseAddrPort("93.184.215.21:22")] = ln.Addr().String()
		go func() {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, "SSH-2.0-test\r\n")
			io.Copy(c, c) //nolint:errcheck // ends with the connection
			c.Close()
		}()
		for i := range 2 {
			res, err := r.client(proxy).Get("http://plain.example.com/")
			must(t, err)
			io.Copy(io.Discard, res.Body)
			res.Body.Close()
			if res.StatusCode != 200 {
				t.Errorf("plain: %s", res.Status)
			}
			r.journal.lastOutcome(t, i+1) // by then the connection waits for the next
		}
		c := r.dial(proxy)
		io.WriteString(c, "CONNECT ssh.example.com:22 HTTP/1.1\r\nHost: ssh.example.com:22\r\n\r\n")
		first := bufio.NewReader(c)
		readHead(first)
		if line, err := first.ReadString('\n'); line != "SSH-2.0-test\r\n" {
			t.Errorf("ssh: %q, %v", line, err)
		}
		c.Close()
		secure := tls.Client(r.connect(proxy, "sni.example.com:443"), &tls.Config{RootCAs: r.cfg.Roots, ServerName: "sni.example.com"})
		must(t, secure.Handshake())
		secure.Close()
		wait(t, "four outcomes", func() bool { _, o := r.journal.all(); return len(o) == 4 })
		_, outcomes := r.journal.all()
		for _, o := range outcomes {
			if o.Upstream != parentAddr+":3128" || o.Code != "" {
				t.Errorf("outcome %+v", o)
			}
		}
		if asked, _ := p.seen(); fmt.Sprint(asked) != "[CONNECT plain.example.com:80 CONNECT ssh.example.com:22 CONNECT sni.example.com:443]" {
			t.Errorf("asked %v", asked)
		}
	})
}

// TestI6BehindAParent: what has to be at an address of its own goes past the
// parent or nowhere.
func TestI6BehindAParent(t *testing.T) {
	const yaml = `version: 1
agents:
  dev:
    rules:
      - {host: lan.example.com, addresses: [10.0.0.0/8]}
      - {host: past.example.com, addresses: [10.0.0.0/8]}
      - {host: public.example.com}
`
	r, p := through(t, yaml, false, "past.example.com", "public.example.com")
	client := r.client(r.listen(netplan.Explicit))
	r.upstream("lan.example.com", "10.0.0.5", 443, echo)
	r.upstream("past.example.com", "10.0.0.6", 443, echo)
	r.upstream("public.example.com", "10.0.0.7", 443, echo)
	res, err := client.Get("https://lan.example.com/")
	must(t, err)
	wantDenial(t, res, 403, codes.AddressNotPublic)
	if o := r.journal.lastOutcome(t, 1); !strings.Contains(o.Error, "put the host under bypass of parent_proxy") {
		t.Errorf("outcome %+v", o)
	}
	res, err = client.Get("https://past.example.com/")
	must(t, err)
	d := r.journal.lastDecision(t, 2)
	if o := r.journal.lastOutcome(t, 2); res.StatusCode != 200 || d.Vetted != "" || o.Upstream != "10.0.0.6:443" {
		t.Errorf("%s, decision %+v, outcome %+v", res.Status, d, o)
	}
	res, err = client.Get("https://public.example.com/")
	must(t, err)
	wantDenial(t, res, 403, codes.AddressNotPublic)
	if asked, _ := p.seen(); len(asked) > 0 {
		t.Errorf("asked %v", asked)
	}
}

func TestTheParentRefuses(t *testing.T) {
	for answer, code := range map[string]codes.Code{
		"407 Proxy Authentication Required": codes.ParentProxyRefused,
		"403 Forbidden":                     codes.ParentProxyRefused,
		"503 Service Unavailable":           codes.UpstreamUnreachable,
	} {
		r, p := through(t, basic, false)
		p.refuse = "HTTP/1.1 " + answer + "\r\nProxy-Authenticate: Basic realm=\"parent\"\r\n\r\n<html>"
		res, err := r.client(r.listen(netplan.Explicit)).Get("https://api.example.com/v1/a")
		must(t, err)
		wantDenial(t, res, 502, code)
		if h := res.Header.Get("Proxy-Authenticate"); h != "" {
			t.Errorf("%s: the agent is asked for a login: %s", answer, h)
		}
		if o := r.journal.lastOutcome(t, 1); o.Code != code || !strings.Contains(o.Error, answer) || o.Upstream != parentAddr+":3128" {
			t.Errorf("%s: outcome %+v", answer, o)
		}
	}
	r, _ := through(t, basic, false)
	r.net.mu.Lock()
	delete(r.net.servers, netip.MustParseAddrPort(parentAddr+":3128"))
	r.net.mu.Unlock()
	res, err := r.client(r.listen(netplan.Explicit)).Get("https://api.example.com/v1/a")
	must(t, err)
	wantDenial(t, res, 502, codes.ParentProxyUnreachable)
}

// TestUpstreamTLSIsVerifiedThroughTheParent, whose own certificate counts for
// nothing.
func TestUpstreamTLSIsVerifiedThroughTheParent(t *testing.T) {
	r, _ := through(t, basic, true)
	good := r.serverCA
	r.serverCA, _ = newCA(t)
	r.upstream(apiHost, apiAddr, 443, echo)
	r.serverCA = good
	res, err := r.client(r.listen(netplan.Explicit)).Get("https://api.example.com/v1/a")
	must(t, err)
	wantDenial(t, res, 502, codes.UpstreamTLSUntrusted)
}
