// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"bawn/internal/audit"
	"bawn/internal/ca"
	"bawn/internal/codes"
	"bawn/internal/egress"
	"bawn/internal/ids"
	"bawn/internal/names"
	"bawn/internal/netplan"
	"bawn/internal/policy"
	"bawn/internal/verdict"
)

// A rig is an egress server between a client and a pretend internet: names
// resolve to public addresses, and dialling one ends at a listener of the test.
type rig struct {
	t        testing.TB
	cfg      egress.Config
	server   *egress.Server
	policies *policies
	journal  *journal
	net      *internet
	minterCA *x509.CertPool // that the agent trusts
	serverCA *ca.Minter     // that upstreams get their certificates from
	id       ids.Identity
	known    policy.Known // that policies are compiled against
}

type option func(*rig)

func newRig(t testing.TB, yaml string, opts ...option) *rig {
	t.Helper()
	r := &rig{t: t, policies: &policies{changed: make(chan struct{})}, journal: &journal{}, known: policy.Known{AnyAgent: true}}
	r.id = ids.Identity{Slot: 7, Gen: ids.Generation{Epoch: 1, Count: 1}, Session: "s-1", Agent: "dev", User: "alice"}
	r.net = &internet{hosts: map[string][]netip.Addr{}, servers: map[netip.AddrPort]string{}}
	r.apply(yaml)
	minter, pool := newCA(t)
	r.minterCA = pool
	serverCA, roots := newCA(t)
	r.serverCA = serverCA
	r.cfg = egress.Config{
		Policies: r.policies, Recorder: r.journal, Resolver: r.net, Minter: minter,
		Names: r.net, Dialer: r.net, Roots: roots, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	for _, o := range opts {
		o(r)
	}
	r.server = egress.New(r.cfg)
	return r
}

func newCA(t testing.TB) (*ca.Minter, *x509.CertPool) {
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

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// apply puts another policy in force.
func (r *rig) apply(yaml string) {
	r.t.Helper()
	p, err := policy.Load([]byte(yaml), r.known)
	must(r.t, err)
	r.policies.set(p, verdict.Verdict{Effect: verdict.Allow})
}

// listen serves one listener until the test ends, and returns its address.
func (r *rig) listen(arrival netplan.Arrival) string {
	r.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(r.t, err)
	r.serve(ln, egress.Source{Identity: r.id, Arrival: arrival})
	return ln.Addr().String()
}

func (r *rig) serve(ln net.Listener, src egress.Source) (stop func()) {
	return r.serveUntil(ln, src, nil)
}

// serveUntil is serve with the cause of its end.
func (r *rig) serveUntil(ln net.Listener, src egress.Source, cause error) (stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.server.Serve(ctx, ln, src) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel(cause)
			if err := <-done; err != nil {
				r.t.Errorf("Serve: %v", err)
			}
		})
	}
	r.t.Cleanup(stop)
	return stop
}

// client is an HTTP client that talks to the explicit listener at proxy.
func (r *rig) client(proxy string) *http.Client {
	tr := &http.Transport{
		Proxy:              http.ProxyURL(&url.URL{Scheme: "http", Host: proxy}),
		TLSClientConfig:    &tls.Config{RootCAs: r.minterCA},
		DisableCompression: true,
	}
	r.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// dial opens a TCP connection that ends with the test.
func (r *rig) dial(to string) net.Conn {
	r.t.Helper()
	c, err := net.Dial("tcp", to)
	must(r.t, err)
	r.t.Cleanup(func() { c.Close() })
	must(r.t, c.SetDeadline(time.Now().Add(20*time.Second)))
	return c
}

// tunnel opens a tunnel with TLS in it.
func (r *rig) tunnel(proxy, host string) *tls.Conn {
	r.t.Helper()
	c := r.dial(proxy)
	fmt.Fprintf(c, "CONNECT %s:443 HTTP/1.1\r\nHost: %s:443\r\n\r\n", host, host)
	res, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: "CONNECT"})
	must(r.t, err)
	if res.StatusCode != 200 {
		r.t.Fatalf("CONNECT %s: %s", host, res.Status)
	}
	secure := tls.Client(c, &tls.Config{RootCAs: r.minterCA, ServerName: host})
	must(r.t, secure.Handshake())
	return secure
}

// policies is a policy that tests change.
type policies struct {
	mu       sync.Mutex
	p        *policy.Policy
	revision uint64
	v        verdict.Verdict
	changed  chan struct{}
	asked    func(n int) // called before each answer
	n        int
}

func (p *policies) set(pol *policy.Policy, v verdict.Verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.p, p.v = pol, v
	p.revision++
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *policies) Current() (*policy.Policy, uint64, verdict.Verdict) {
	p.mu.Lock()
	p.n++
	n, asked := p.n, p.asked
	p.mu.Unlock()
	if asked != nil {
		asked(n)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.p, p.revision, p.v
}

func (p *policies) Changed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed
}

// journal keeps records in memory.
type journal struct {
	mu        sync.Mutex
	decisions []audit.Decision
	outcomes  []audit.Outcome
	dials     []audit.Dial
	synced    int // decisions that are on the disk
	fail      error
	failSync  error
}

func (j *journal) Decide(d *audit.Decision) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.fail != nil {
		return j.fail
	}
	j.decisions = append(j.decisions, *d)
	return nil
}

func (j *journal) Outcome(o *audit.Outcome) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.outcomes = append(j.outcomes, *o)
	return nil
}

func (j *journal) Dial(d *audit.Dial) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.dials = append(j.dials, *d)
	return nil
}

func (j *journal) SyncNow() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.synced = len(j.decisions)
	return j.failSync
}

func (j *journal) all() ([]audit.Decision, []audit.Outcome) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]audit.Decision(nil), j.decisions...), append([]audit.Outcome(nil), j.outcomes...)
}

// wait polls until have returns true.
func wait(t testing.TB, what string, have func() bool) {
	t.Helper()
	for range 2000 {
		if have() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("waited in vain for %s", what)
}

// lastOutcome waits for n outcomes and returns the last.
func (j *journal) lastOutcome(t testing.TB, n int) audit.Outcome {
	t.Helper()
	wait(t, fmt.Sprintf("%d outcomes", n), func() bool { _, o := j.all(); return len(o) >= n })
	_, o := j.all()
	if len(o) != n {
		t.Fatalf("got %d outcomes, want %d: %+v", len(o), n, o)
	}
	return o[n-1]
}

// lastDecision waits for n decisions and returns the last.
func (j *journal) lastDecision(t testing.TB, n int) audit.Decision {
	t.Helper()
	wait(t, fmt.Sprintf("%d decisions", n), func() bool { d, _ := j.all(); return len(d) >= n })
	d, _ := j.all()
	if len(d) != n {
		t.Fatalf("got %d decisions, want %d: %+v", len(d), n, d)
	}
	return d[n-1]
}

// internet is the pretend resolver, dialer and table of synthetic addresses.
type internet struct {
	mu      sync.Mutex
	hosts   map[string][]netip.Addr
	servers map[netip.AddrPort]string // where a dialled address really ends
	looked  []string
	dialled []netip.AddrPort
	lie     netip.AddrPort // what the socket is about to connect to instead
}

func (n *internet) add(host, addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[host] = append(n.hosts[host], netip.MustParseAddr(addr))
}

// move gives the server at a port another one: listenAt serves without TLS on 80
// alone.
func (n *internet) move(addr string, from, to uint16) {
	n.mu.Lock()
	defer n.mu.Unlock()
	a := netip.MustParseAddr(addr)
	n.servers[netip.AddrPortFrom(a, to)] = n.servers[netip.AddrPortFrom(a, from)]
	delete(n.servers, netip.AddrPortFrom(a, from))
}

func (n *internet) Lookup(_ context.Context, host names.Host) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.looked = append(n.looked, host.String())
	a := n.hosts[host.String()]
	if len(a) == 0 {
		return nil, errors.New("no such name")
	}
	return a, nil
}

func (n *internet) Dial(ctx context.Context, to netip.AddrPort, check func(netip.AddrPort) error) (net.Conn, error) {
	n.mu.Lock()
	n.dialled = append(n.dialled, to)
	real, where := to, n.servers[to]
	if n.lie.IsValid() {
		real = n.lie
	}
	n.mu.Unlock()
	if err := check(real); err != nil {
		return nil, err
	}
	if where == "" {
		return nil, errors.New("connection refused")
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", where)
}

func (n *internet) Name(_ string, a netip.Addr) (names.Host, bool) {
	if a == netip.MustParseAddr("198.18.1.1") {
		return names.MustParse("api.example.com"), true
	}
	return names.Host{}, false
}

func (n *internet) dials() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.dialled)
}

func (n *internet) lookups() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.looked)
}

const (
	apiHost = "api.example.com"
	apiAddr = "93.184.215.14"
)

// upstream serves TLS for host at addr with h, in the pretend internet.
func (r *rig) upstream(host, addr string, port uint16, h http.Handler) *http.Server {
	r.t.Helper()
	srv := &http.Server{Handler: h, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	r.listenAt(host, addr, port, func(ln net.Listener) { srv.Serve(ln) })
	r.t.Cleanup(func() { srv.Close() })
	return srv
}

// listenAt makes a TLS listener (plain on port 80) for host at addr.
func (r *rig) listenAt(host, addr string, port uint16, serve func(net.Listener)) {
	r.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(r.t, err)
	r.t.Cleanup(func() { ln.Close() })
	r.net.add(host, addr)
	r.net.servers[netip.AddrPortFrom(netip.MustParseAddr(addr), port)] = ln.Addr().String()
	if port != 80 {
		cert, err := r.serverCA.Certificate(host)
		must(r.t, err)
		ln = tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{*cert}, NextProtos: []string{"http/1.1"}})
	}
	go serve(ln)
}

// script is an upstream that reads one request head and its body by the length
// given, and answers each connection with raw bytes.
func (r *rig) script(host, addr string, port uint16, answer func(c net.Conn, br *bufio.Reader)) {
	r.listenAt(host, addr, port, func(ln net.Listener) {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				answer(c, bufio.NewReader(c))
			}()
		}
	})
}

// readHead reads up to the empty line and returns it all.
func readHead(r *bufio.Reader) string {
	var b strings.Builder
	for {
		line, err := r.ReadString('\n')
		b.WriteString(line)
		if err != nil || line == "\r\n" {
			return b.String()
		}
	}
}

// wantDenial reads a denial off res.
func wantDenial(t testing.TB, res *http.Response, status int, code codes.Code) {
	t.Helper()
	body, err := io.ReadAll(res.Body)
	must(t, err)
	res.Body.Close()
	if res.StatusCode != status || res.Header.Get("Bawn-Code") != string(code) {
		t.Errorf("got status %d, code %q, body %s, want %d and %s", res.StatusCode, res.Header.Get("Bawn-Code"), body, status, code)
		return
	}
	var d map[string]string
	if err := json.Unmarshal(body, &d); err != nil {
		t.Fatalf("denial %q: %v", body, err)
	}
	if d["code"] != string(code) || d["why"] == "" || d["ask_operator"] == "" || !strings.HasPrefix(d["request_id"], "r-") {
		t.Errorf("denial lacks something: %s", body)
	}
}
