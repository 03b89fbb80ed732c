// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package parent_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
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

	"bawn/internal/addr"
	"bawn/internal/ca"
	"bawn/internal/codes"
	"bawn/internal/names"
	"bawn/internal/parent"
	"bawn/internal/secret"
	"bawn/internal/uptls"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A testParent is a parent proxy in a few lines. Whatever host it is asked for,
// it goes to one place.
type testParent struct {
	addr   netip.AddrPort
	answer func(*http.Request) string // the head; empty: connect

	mu    sync.Mutex
	asked []*http.Request
}

// hangUp is an answer that is none.
const hangUp = "HTTP/1.1 2"

func newParent(t *testing.T, server string, cfg *tls.Config) *testParent {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	p := &testParent{addr: ln.Addr().(*net.TCPAddr).AddrPort()}
	if cfg != nil {
		ln = tls.NewListener(ln, cfg)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go p.serve(c, server)
		}
	}()
	return p
}

func (p *testParent) serve(c net.Conn, server string) {
	defer c.Close()
	r := bufio.NewReader(c)
	q, err := http.ReadRequest(r)
	if err != nil {
		return
	}
	p.mu.Lock()
	p.asked = append(p.asked, q)
	p.mu.Unlock()
	if p.answer != nil {
		if head := p.answer(q); head != "" {
			io.WriteString(c, head)
			if head == hangUp {
				return
			}
			c.Read(make([]byte, 1)) //nolint:errcheck // until the client goes
			return
		}
	}
	up, err := net.Dial("tcp", server)
	if err != nil {
		io.WriteString(c, "HTTP/1.1 503 Service Unavailable\r\n\r\n")
		return
	}
	defer up.Close()
	io.WriteString(c, "HTTP/1.1 200 Connection established\r\nProxy-Agent: test\r\n\r\n")
	go func() { io.Copy(up, r); up.Close() }()
	io.Copy(c, up) //nolint:errcheck // ends with the connection
}

func (p *testParent) requests() []*http.Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

// hosts is a pretend resolver, and dials the host's network.
type hosts map[string][]netip.Addr

func (h hosts) Lookup(_ context.Context, host names.Host) ([]netip.Addr, error) {
	if a := h[host.String()]; len(a) > 0 {
		return a, nil
	}
	return nil, errors.New("no such name")
}

func (hosts) Dial(ctx context.Context, to netip.AddrPort, check func(netip.AddrPort) error) (net.Conn, error) {
	if err := check(to); err != nil {
		return nil, err
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", to.String())
}

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// config is of a parent that is called parent.example.
func config(p *testParent) parent.Config {
	h := hosts{"parent.example": {p.addr.Addr()}}
	return parent.Config{
		Host: names.MustParse("parent.example"), Port: p.addr.Port(), Addresses: loopback,
		Resolver: h, Dialer: h, Vet: func() addr.Vet { return addr.Vet{} },
	}
}

// echo is a server that says hello first and then repeats what it gets.
func echo(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.WriteString(c, "hello ")
				io.Copy(c, c) //nolint:errcheck // ends with the connection
			}()
		}
	}()
	return ln.Addr().String()
}

var api = names.MustParse("api.example.com")

func connect(t *testing.T, cfg parent.Config) (net.Conn, netip.AddrPort, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c, via, err := parent.New(cfg).Connect(ctx, api, 443)
	if err == nil {
		t.Cleanup(func() { c.Close() })
		must(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	}
	return c, via, err
}

// wantEcho uses a tunnel.
func wantEcho(t *testing.T, c net.Conn) {
	t.Helper()
	io.WriteString(c, "there")
	buf := make([]byte, len("hello there"))
	if _, err := io.ReadFull(c, buf); err != nil || string(buf) != "hello there" {
		t.Errorf("read %q, %v", buf, err)
	}
}

func issuer(t *testing.T) (*ca.Minter, *x509.CertPool) {
	t.Helper()
	root, err := ca.OpenRoot(t.TempDir(), nil)
	must(t, err)
	req, err := ca.NewRequest("test")
	must(t, err)
	chain, err := root.SignIntermediate(req.CSR())
	must(t, err)
	inter, err := req.Complete(chain, time.Now())
	must(t, err)
	minter, err := ca.NewMinter(inter, nil)
	must(t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(root.Certificate())
	return minter, pool
}

// TestTheParentGetsTheName and the password, and carries what the server says
// first.
func TestTheParentGetsTheName(t *testing.T) {
	minter, pool := issuer(t)
	cert, err := minter.Certificate("parent.example")
	must(t, err)
	secure := &tls.Config{Certificates: []tls.Certificate{*cert}}
	for name, c := range map[string]struct {
		tls      *tls.Config
		password string
		want     string
	}{
		"plain":               {nil, "", ""},
		"plain, with a login": {nil, "s:ecret", "Basic dXNlcjpzOmVjcmV0"},
		"TLS":                 {secure, "", ""},
		"TLS, with a login":   {secure, "s:ecret", "Basic dXNlcjpzOmVjcmV0"},
	} {
		p := newParent(t, echo(t), c.tls)
		cfg := config(p)
		if c.tls != nil {
			cfg.TLS = uptls.New(pool, nil)
		}
		if c.password != "" {
			cfg.Username, cfg.Password = "user", secret.New(c.password)
		}
		conn, via, err := connect(t, cfg)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		wantEcho(t, conn)
		q := p.requests()[0]
		if q.Method != "CONNECT" || q.RequestURI != "api.example.com:443" || q.Host != "api.example.com:443" || q.Header.Get("Proxy-Authorization") != c.want || via != p.addr {
			t.Errorf("%s: %s %s, Host %s, %v, via %s", name, q.Method, q.RequestURI, q.Host, q.Header, via)
		}
	}
}

// TestWhatComesWithTheAnswerIsNotLost: answer and greeting in one segment.
func TestWhatComesWithTheAnswerIsNotLost(t *testing.T) {
	p := newParent(t, "", nil)
	p.answer = func(*http.Request) string {
		return "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nSSH-2.0"
	}
	c, _, err := connect(t, config(p))
	must(t, err)
	buf := make([]byte, 7)
	if _, err := io.ReadFull(c, buf); err != nil || string(buf) != "SSH-2.0" {
		t.Errorf("read %q, %v", buf, err)
	}
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Errorf("ending what is sent: %v", err)
	}
}

// TestTheParentFails in each way, and what its health says then.
func TestTheParentFails(t *testing.T) {
	answer := func(head string) func(*testing.T) parent.Config {
		return func(t *testing.T) parent.Config {
			p := newParent(t, "", nil)
			p.answer = func(*http.Request) string { return head }
			return config(p)
		}
	}
	login := func(t *testing.T) parent.Config {
		cfg := answer("HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n\r\n")(t)
		cfg.Username, cfg.Password = "user", secret.New("hunter2")
		return cfg
	}
	minter, pool := issuer(t)
	_, strangers := issuer(t)
	cert, err := minter.Certificate("other.example")
	must(t, err)
	secure := func(roots *x509.CertPool) func(t *testing.T) parent.Config {
		return func(t *testing.T) parent.Config {
			cfg := config(newParent(t, "", &tls.Config{Certificates: []tls.Certificate{*cert}}))
			cfg.TLS = uptls.New(roots, nil)
			return cfg
		}
	}
	for name, c := range map[string]struct {
		cfg    func(*testing.T) parent.Config
		code   codes.Code
		detail string
		ill    bool
	}{
		"407 without a login": {answer("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"), codes.ParentProxyRefused, "it wants a username and password", true},
		"407 with a login":    {login, codes.ParentProxyRefused, "it does not take the username and password", true},
		"403":                 {answer("HTTP/1.1 403 Forbidden\r\n\r\n"), codes.ParentProxyRefused, "the parent proxy answered 403 Forbidden", false},
		"302":                 {answer("HTTP/1.1 302 Found\r\nLocation: http://login/\r\n\r\n"), codes.ParentProxyRefused, "answered 302 Found", false},
		"101":                 {answer("HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"), codes.ParentProxyRefused, "answered 101", false},
		"503":                 {answer("HTTP/1.1 503 Service Unavailable\r\n\r\n"), codes.UpstreamUnreachable, "answered 503", false},
		"500":                 {answer("HTTP/1.1 500 Internal Server Error\r\n\r\n"), codes.UpstreamUnreachable, "answered 500", false},
		"no HTTP":             {answer("SSH-2.0-x\r\n\r\n"), codes.ParentProxyRefused, "malformed", false},
		"interims":            {answer(strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 9)), codes.ParentProxyRefused, "answered 100", false},
		"a long head":         {answer("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 40000) + "\r\n\r\n"), codes.ParentProxyRefused, "malformed", false},
		"it hangs up":         {answer(hangUp), codes.ParentProxyUnreachable, "closed the connection without an answer", true},
		"nobody there": {func(t *testing.T) parent.Config {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			must(t, err)
			ln.Close()
			return config(&testParent{addr: ln.Addr().(*net.TCPAddr).AddrPort()})
		}, codes.ParentProxyUnreachable, "cannot be reached", true},
		"no such name": {func(t *testing.T) parent.Config {
			cfg := config(newParent(t, "", nil))
			cfg.Host = names.MustParse("gone.example")
			return cfg
		}, codes.ParentProxyUnreachable, "gone.example has no address", true},
		"a private address": {func(t *testing.T) parent.Config {
			cfg := config(newParent(t, "", nil))
			cfg.Addresses = nil
			return cfg
		}, codes.ParentProxyUnreachable, "may not be dialled (see parent_proxy addresses): 127.0.0.1 is ", true},
		"another's certificate": {secure(pool), codes.ParentProxyUnreachable, "could not prove who it is: upstream_tls_wrong_host", true},
		"another root":          {secure(strangers), codes.ParentProxyUnreachable, "could not prove who it is: upstream_tls_", true},
		"no TLS": {func(t *testing.T) parent.Config {
			cfg := answer("HTTP/1.1 400 Bad Request\r\n\r\n")(t)
			cfg.TLS = uptls.New(pool, nil)
			return cfg
		}, codes.ParentProxyUnreachable, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			p := parent.New(c.cfg(t))
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, _, err := p.Connect(ctx, api, 443)
			e, ok := errors.AsType[*parent.Error](err)
			if !ok || e.Code != c.code || !strings.Contains(e.Detail, c.detail) || strings.Contains(fmt.Sprint(err), "hunter2") {
				t.Fatalf("error %v, want %s with %q", err, c.code, c.detail)
			}
			if h := p.Health(); h.At.IsZero() || (h.Err != "") != c.ill {
				t.Errorf("health %+v, want ill: %v", h, c.ill)
			}
		})
	}
}

// TestAParentThatSaysNothing is waited for as long as the caller wants.
func TestAParentThatSaysNothing(t *testing.T) {
	p := newParent(t, "", nil)
	asked := make(chan struct{}, 1)
	p.answer = func(*http.Request) string { asked <- struct{}{}; <-t.Context().Done(); return hangUp }
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	proxy := parent.New(config(p))
	_, _, err := proxy.Connect(ctx, api, 443)
	if e, ok := errors.AsType[*parent.Error](err); !ok || e.Code != codes.ParentProxyUnreachable {
		t.Errorf("error %v", err)
	}
	if h := proxy.Health(); h.Err != "" {
		t.Errorf("that the caller went away says: %s", h.Err)
	}
}

func TestCheckAsksForNothing(t *testing.T) {
	p := newParent(t, "", nil)
	proxy := parent.New(config(p))
	must(t, proxy.Check(t.Context()))
	if h := proxy.Health(); h.Err != "" || h.At.IsZero() || len(p.requests()) > 0 {
		t.Errorf("health %+v, asked %v", h, p.requests())
	}
}

func TestBypass(t *testing.T) {
	cfg := parent.Config{Bypass: []names.Pattern{names.MustPattern("*.corp.example"), names.MustPattern("git.example.com")}}
	p := parent.New(cfg)
	for host, want := range map[string]bool{
		"api.example.com": true, "git.example.com": false, "x.git.example.com": true, "a.corp.example": false, "a.b.corp.example": false, "corp.example": true,
	} {
		if got := p.Takes(names.MustParse(host)); got != want {
			t.Errorf("%s: through the parent %v, want %v", host, got, want)
		}
	}
}

// TestI6ALiteralParentIsMeant: an address that the configuration names is
// dialled, whatever it is; nothing else is.
func TestI6ALiteralParentIsMeant(t *testing.T) {
	p := newParent(t, echo(t), nil)
	cfg := config(p)
	cfg.Host, cfg.Addr, cfg.Addresses = names.Host{}, p.addr.Addr(), nil
	cfg.Vet = func() addr.Vet { return addr.Vet{Own: []netip.Addr{p.addr.Addr()}} }
	c, _, err := connect(t, cfg)
	must(t, err)
	wantEcho(t, c)
	cfg.Vet = func() addr.Vet { return addr.Vet{Never: loopback} }
	if _, _, err := connect(t, cfg); err == nil {
		t.Error("a range of Bawn's own is dialled")
	}
}
