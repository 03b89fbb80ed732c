// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"bawn/internal/addr"
	"bawn/internal/codes"
	"bawn/internal/egress"
	"bawn/internal/netplan"
)

// TestI6WaitingConnectionsAreVetted: what one request opened to an address that
// only its rules let in carries no other request of the same rule.
func TestI6WaitingConnectionsAreVetted(t *testing.T) {
	const yaml = `
version: 1
profiles:
  p:
    rules:
      - {id: all, host: api.example.com}
      - {id: inside, host: api.example.com, paths: ["/inside/**"], addresses: [10.20.0.0/16]}
agents:
  dev: {profile: p}
`
	for _, protocol := range []string{"http/1.1", "h2"} {
		t.Run(protocol, func(t *testing.T) {
			r := newRig(t, yaml)
			r.upstreamALPN(apiHost, "10.20.0.5", []string{protocol}, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				io.WriteString(w, q.URL.Path)
			}))
			c := r.clientH2(r.listen(netplan.Explicit))
			if _, body := get(t, c, "/inside/x"); body != "/inside/x" {
				t.Fatalf("got %q", body)
			}
			res, err := c.Get("https://" + apiHost + "/outside")
			must(t, err)
			wantDenial(t, res, 403, codes.AddressNotPublic)
			if _, body := get(t, c, "/inside/y"); body != "/inside/y" {
				t.Fatalf("then %q", body)
			}
		})
	}
}

// TestI10WhatIsCutIsNotSent: a request whose rule expires on its way to a
// connection that others share does not get there.
func TestI10WhatIsCutIsNotSent(t *testing.T) {
	const yaml = `
version: 1
profiles:
  p:
    rules:
      - {id: api, host: api.example.com, expires: 2100-01-01T00:00:00Z}
agents:
  dev: {profile: p}
`
	var hook atomic.Pointer[func()]
	var late atomic.Bool
	r := newRig(t, yaml, func(r *rig) {
		r.cfg.Vet = func() addr.Vet {
			if f := hook.Swap(nil); f != nil {
				(*f)()
			}
			return addr.Vet{}
		}
		r.cfg.Now = func() time.Time {
			if late.Load() {
				return time.Date(2101, 1, 1, 0, 0, 0, 0, time.UTC)
			}
			return time.Now()
		}
	})
	reached := make(chan string, 10)
	r.upstreamALPN(apiHost, apiAddr, []string{"h2"}, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		reached <- q.URL.Path
	}))
	proxy := r.listen(netplan.Explicit)
	get(t, r.clientH2(proxy), "/first") // its connection waits for another request
	if path := <-reached; path != "/first" {
		t.Fatal(path)
	}
	cut := make(chan bool)
	expire := func() { late.Store(true); <-cut }
	hook.Store(&expire)
	if _, err := r.clientH2(proxy).Get("https://" + apiHost + "/second"); err == nil {
		t.Fatal("the request was answered")
	}
	close(cut)
	if o := r.journal.lastOutcome(t, 2); o.Code != codes.RuleExpired {
		t.Errorf("outcome %+v", o)
	}
	late.Store(false)
	get(t, r.clientH2(proxy), "/third")
	if path := <-reached; path != "/third" {
		t.Errorf("%s has been sent after it was cut", path)
	}
}

// A frames is an agent that speaks HTTP/2 frame by frame.
type frames struct {
	*http2.Framer
	t   *testing.T
	buf strings.Builder
	enc *hpack.Encoder
}

func (r *rig) frames(t *testing.T, proxy, host string, settings ...http2.Setting) *frames {
	t.Helper()
	c := r.dial(proxy)
	fmt.Fprintf(c, "CONNECT %s:443 HTTP/1.1\r\nHost: %s:443\r\n\r\n", host, host)
	if head := readUpTo(t, c, "\r\n\r\n"); !strings.HasPrefix(head, "HTTP/1.1 200 ") {
		t.Fatalf("CONNECT: %s", head)
	}
	secure := tls.Client(c, &tls.Config{RootCAs: r.minterCA, ServerName: host, NextProtos: []string{"h2"}})
	must(t, secure.Handshake())
	_, err := io.WriteString(secure, http2.ClientPreface)
	must(t, err)
	f := &frames{Framer: http2.NewFramer(secure, secure), t: t}
	f.enc = hpack.NewEncoder(&f.buf)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	must(t, f.WriteSettings(settings...))
	must(t, f.WriteSettingsAck())
	return f
}

func readUpTo(t *testing.T, c net.Conn, end string) string {
	t.Helper()
	var b strings.Builder
	for one := make([]byte, 1); !strings.HasSuffix(b.String(), end); {
		_, err := io.ReadFull(c, one)
		must(t, err)
		b.Write(one)
	}
	return b.String()
}

func (f *frames) ask(id uint32, end bool, method, path string, more ...string) {
	f.t.Helper()
	f.buf.Reset()
	fields := append([]string{":method", method, ":scheme", "https", ":authority", apiHost, ":path", path}, more...)
	for i := 0; i < len(fields); i += 2 {
		must(f.t, f.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
	}
	must(f.t, f.WriteHeaders(http2.HeadersFrameParam{
		StreamID: id, EndStream: end, EndHeaders: true, BlockFragment: []byte(f.buf.String()),
	}))
}

// TestStreamsOverTheLimitHoldNothing: an agent that gives no window cannot keep
// more streams waiting for it than it may have served.
func TestStreamsOverTheLimitHoldNothing(t *testing.T) {
	r := newRig(t, open, func(r *rig) { r.cfg.Limits = egress.Limits{Streams: 4} })
	f := r.frames(t, r.listen(netplan.Explicit), apiHost, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	const all = 120
	for i := range all {
		f.ask(uint32(1+2*i), true, "GET", "/elsewhere")
	}
	for reset := 0; reset < all-4-32; {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatalf("%d streams have ended: %v", reset, err)
		}
		if _, ok := frame.(*http2.RSTStreamFrame); ok {
			reset++
		}
	}
}

const judged = `
version: 1
profiles:
  p:
    rules:
      - {id: api, host: api.example.com, websocket: true, guard: json}
agents:
  dev: {profile: p}
`

// TestBodiesForGuardsAreBounded: what an agent has kept for guards, over all of
// its requests, is bounded, and there is room again when one is through.
func TestBodiesForGuardsAreBounded(t *testing.T) {
	const size = 1 << 20
	r := newRig(t, judged, func(r *rig) { r.cfg.Limits = egress.Limits{GuardBody: size, Held: 5 * size / 2} })
	r.upstreamALPN(apiHost, apiAddr, []string{"h2"}, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		n, _ := io.Copy(io.Discard, q.Body)
		fmt.Fprint(w, n)
	}))
	proxy := r.listen(netplan.Explicit)
	for _, c := range []*http.Client{r.client(proxy), r.clientH2(proxy)} {
		for range 2 {
			refused := make(chan int, 3)
			var all sync.WaitGroup
			var ends [3]*io.PipeWriter
			for i := range ends {
				body, end := io.Pipe()
				ends[i] = end
				all.Go(func() {
					q, _ := http.NewRequest("POST", "https://"+apiHost+"/", body)
					q.Header.Set("Content-Type", "application/json")
					res, err := c.Do(q)
					must(t, err)
					if res.StatusCode == 429 {
						wantDenial(t, res, 429, codes.ConcurrencyExceeded)
						body.Close()
						refused <- i
						return
					}
					got, _ := io.ReadAll(res.Body)
					res.Body.Close()
					if string(got) != fmt.Sprint(size-1000+2) {
						t.Errorf("got %s %s", res.Status, got)
					}
				})
				go io.WriteString(end, `"`+strings.Repeat("x", size-1000))
			}
			over := <-refused
			for i, end := range ends {
				if i != over {
					io.WriteString(end, `"`)
					end.Close()
				}
			}
			all.Wait()
		}
	}
}

// TestI12PanicWhileAFaultIsAnswered: a fault on a stream is answered; one in
// the answer ends the stream, and nothing else.
func TestI12PanicWhileAFaultIsAnswered(t *testing.T) {
	var armed atomic.Bool
	r := newRig(t, open, func(r *rig) {
		r.cfg.Stages = func(stage string) {
			if armed.Load() && (stage == "judged" || stage == "journaled") {
				panic("at " + stage)
			}
		}
	})
	r.upstreamALPN(apiHost, apiAddr, []string{"h2"}, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		io.WriteString(w, "ok")
	}))
	c := r.clientH2(r.listen(netplan.Explicit))
	get(t, c, "/v1/before")
	armed.Store(true)
	if res, err := c.Get("https://" + apiHost + "/v1/now"); err == nil {
		t.Errorf("got %s", res.Status)
	}
	armed.Store(false)
	get(t, c, "/v1/after")
}

// TestI5NoOtherTargetInFields: what some servers take for another method, path
// or host than the request has does not go up, in any spelling or version.
func TestI5NoOtherTargetInFields(t *testing.T) {
	names := []string{
		"X-Original-URL", "X_Original_URL", "X-Original-URI", "X-Original-Path", "X-Original-Method", "X-Rewrite-URL", "x_rewrite-url",
		"X-Forwarded-Uri", "X-Forwarded-Path", "X-Forwarded-Method", "X-Forwarded-Server", "X-Forwarded-Host", "X-Host", "Forwarded",
		"X-HTTP-Method-Override", "X_HTTP_METHOD_OVERRIDE", "X-Method-Override", "Proxy-Authorization", "Proxy_X",
	}
	h := func(w http.ResponseWriter, q *http.Request) {
		for name := range q.Header {
			if name != "X-Harmless" && name != "User-Agent" && name != "Accept-Encoding" {
				fmt.Fprintln(w, name)
			}
		}
	}
	onEachPair(t, open, h, func(t *testing.T, _ *rig, c *http.Client) {
		q, _ := http.NewRequest("GET", "https://"+apiHost+"/v1/x", nil)
		for _, name := range names {
			q.Header[name] = []string{"/v1/elsewhere"}
		}
		q.Header.Set("X-Harmless", "x")
		res, err := c.Do(q)
		must(t, err)
		if got, _ := io.ReadAll(res.Body); res.StatusCode != 200 || len(got) > 0 {
			t.Errorf("%s, and the server gets %s", res.Status, got)
		}
	})
}
