// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"bawn/internal/codes"
	"bawn/internal/egress"
	"bawn/internal/netplan"
)

const open = `
version: 1
profiles:
  p:
    rules:
      - {id: api, host: api.example.com, paths: ["/v1/**"], methods: [GET, HEAD, POST]}
agents:
  dev: {profile: p}
`

// upstreamALPN serves TLS for host with the protocols given.
func (r *rig) upstreamALPN(host, addr string, protocols []string, h http.Handler, change ...func(*http.Server)) *http.Server {
	r.t.Helper()
	srv := &http.Server{Handler: h, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	for _, f := range change {
		f(srv)
	}
	cert, err := r.serverCA.Certificate(host)
	must(r.t, err)
	r.listenAt(host, addr, 80, func(ln net.Listener) { // raw: the TLS is below
		srv.Serve(tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{*cert}, NextProtos: protocols}))
	})
	r.net.move(addr, 80, 443)
	r.t.Cleanup(func() { srv.Close() })
	return srv
}

// clientH2 is an HTTP client of the explicit listener that speaks HTTP/2 where
// it can.
func (r *rig) clientH2(proxy string) *http.Client {
	c := r.client(proxy)
	c.Transport.(*http.Transport).ForceAttemptHTTP2 = true
	return c
}

var pairs = []struct {
	name          string
	agent, server string
}{
	{"h1 to h1", "HTTP/1.1", "HTTP/1.1"},
	{"h1 to h2", "HTTP/1.1", "HTTP/2.0"},
	{"h2 to h1", "HTTP/2.0", "HTTP/1.1"},
	{"h2 to h2", "HTTP/2.0", "HTTP/2.0"},
}

// onEachPair runs a test for each pair of versions, each leg with its own.
func onEachPair(t *testing.T, yaml string, h http.HandlerFunc, test func(t *testing.T, r *rig, c *http.Client)) {
	for _, p := range pairs {
		t.Run(p.name, func(t *testing.T) {
			r := newRig(t, yaml)
			protocols := []string{"http/1.1"}
			if p.server == "HTTP/2.0" {
				protocols = []string{"h2"}
			}
			r.upstreamALPN(apiHost, apiAddr, protocols, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				if q.Proto != p.server {
					t.Errorf("the server is spoken to in %s, want %s", q.Proto, p.server)
				}
				h(w, q)
			}))
			c := r.client(r.listen(netplan.Explicit))
			if p.agent == "HTTP/2.0" {
				c.Transport.(*http.Transport).ForceAttemptHTTP2 = true
			}
			test(t, r, c)
		})
	}
}

func get(t *testing.T, c *http.Client, path string) (*http.Response, string) {
	t.Helper()
	res, err := c.Get("https://" + apiHost + path)
	must(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	must(t, err)
	return res, string(body)
}

func TestEachLegNegotiatesItsOwnVersion(t *testing.T) {
	h := func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Alt-Svc", `h3=":443"`)
		w.Header().Set("Trailer", "X-Sum")
		fmt.Fprintf(w, "%s %s %s %d", q.Method, q.Host, q.URL.RequestURI(), len(body))
		w.Header().Set("X-Sum", "42")
	}
	onEachPair(t, open, h, func(t *testing.T, r *rig, c *http.Client) {
		for i := range 3 {
			res, body := get(t, c, "/v1/x?a=b")
			if res.StatusCode != 200 || body != "GET api.example.com /v1/x?a=b 0" {
				t.Fatalf("got %s %q", res.Status, body)
			}
			if res.Header.Get("Alt-Svc") != "" {
				t.Error("Alt-Svc offers a road around the proxy")
			}
			if res.Trailer.Get("X-Sum") != "42" {
				t.Errorf("trailers %v", res.Trailer)
			}
			if o := r.journal.lastOutcome(t, i+1); o.Status != 200 || o.Reused != (i > 0) || o.BytesDown < int64(len(body)) {
				t.Errorf("outcome %+v", o)
			}
		}
		for _, size := range []int{1, 3000, 5 << 20} {
			res, err := c.Post("https://"+apiHost+"/v1/up", "text/plain", bytes.NewReader(make([]byte, size)))
			must(t, err)
			body, err := io.ReadAll(res.Body)
			must(t, err)
			if want := fmt.Sprintf("POST api.example.com /v1/up %d", size); string(body) != want {
				t.Errorf("got %q, want %q", body, want)
			}
		}
		res, err := c.Post("https://"+apiHost+"/v1/up", "text/plain", io.MultiReader(strings.NewReader("of unknown "), strings.NewReader("length")))
		must(t, err)
		if body, _ := io.ReadAll(res.Body); string(body) != "POST api.example.com /v1/up 17" {
			t.Errorf("got %q", body)
		}
		if r.net.dials() > 3 { // one, but for an upload that took longer than its answer
			t.Errorf("%d connections to the server", r.net.dials())
		}
	})
}

func TestEachStreamIsJudgedAlone(t *testing.T) {
	h := func(w http.ResponseWriter, q *http.Request) { io.WriteString(w, "ok") }
	onEachPair(t, open, h, func(t *testing.T, r *rig, c *http.Client) {
		get(t, c, "/v1/a")
		res, err := c.Get("https://" + apiHost + "/v2/a")
		must(t, err)
		wantDenial(t, res, 403, codes.PathNotAllowed)
		q, _ := http.NewRequest("DELETE", "https://"+apiHost+"/v1/a", nil)
		res, err = c.Do(q)
		must(t, err)
		wantDenial(t, res, 403, codes.MethodNotAllowed)
		if _, body := get(t, c, "/v1/b"); body != "ok" {
			t.Errorf("after refusals: %q", body)
		}
		if d, _ := r.journal.all(); len(d) != 4 {
			t.Errorf("%d decisions, want 4", len(d))
		}
	})
}

// TestManyStreamsShareAConnection: requests of one agent's connection that come
// at once go up on one connection, where the server speaks HTTP/2.
func TestManyStreamsShareAConnection(t *testing.T) {
	r := newRig(t, open)
	var together sync.WaitGroup
	together.Add(20)
	r.upstreamALPN(apiHost, apiAddr, []string{"h2"}, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		together.Done()
		together.Wait()
		io.WriteString(w, q.URL.Path)
	}))
	c := r.clientH2(r.listen(netplan.Explicit))
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			path := fmt.Sprintf("/v1/%d", i)
			if _, body := get(t, c, path); body != path {
				t.Errorf("got %q for %s", body, path)
			}
		})
	}
	all.Wait()
	if n := r.net.dials(); n > 2 {
		t.Errorf("%d connections to the server", n)
	}
}

// TestStreamsFlow: the first octets of a response come at once, in every version.
func TestStreamsFlow(t *testing.T) {
	more := make(chan bool)
	h := func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: 1\n\n")
		w.(http.Flusher).Flush()
		<-more
		io.WriteString(w, "data: 2\n\n")
	}
	onEachPair(t, open, h, func(t *testing.T, r *rig, c *http.Client) {
		res, err := c.Get("https://" + apiHost + "/v1/events")
		must(t, err)
		defer res.Body.Close()
		first := make([]byte, 9)
		if _, err := io.ReadFull(res.Body, first); err != nil || string(first) != "data: 1\n\n" {
			t.Fatalf("got %q, %v", first, err)
		}
		more <- true
		rest, err := io.ReadAll(res.Body)
		if err != nil || string(rest) != "data: 2\n\n" {
			t.Errorf("then %q, %v", rest, err)
		}
	})
}

// TestInterimResponsesAreRelayed: 103 and 100 reach the agent, whatever the two
// legs speak.
func TestInterimResponsesAreRelayed(t *testing.T) {
	h := func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Link", "</style.css>")
		w.WriteHeader(103)
		io.Copy(io.Discard, q.Body)
		io.WriteString(w, "done")
	}
	onEachPair(t, open, h, func(t *testing.T, r *rig, c *http.Client) {
		var got []int
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(code int, _ textproto.MIMEHeader) error { got = append(got, code); return nil },
			Got100Continue: func() { got = append(got, 100) },
		})
		q, _ := http.NewRequestWithContext(ctx, "POST", "https://"+apiHost+"/v1/x", strings.NewReader("body"))
		q.Header.Set("Expect", "100-continue")
		c.Transport.(*http.Transport).ExpectContinueTimeout = 5 * time.Second
		res, err := c.Do(q)
		must(t, err)
		body, _ := io.ReadAll(res.Body)
		if string(body) != "done" || len(got) == 0 || got[0] != 103 {
			t.Errorf("got %q after %v", body, got)
		}
	})
}

// TestAbortsPropagate: a side that gives up ends the other side.
func TestAbortsPropagate(t *testing.T) {
	gone := make(chan bool, 1)
	h := func(w http.ResponseWriter, q *http.Request) {
		io.WriteString(w, "begin")
		w.(http.Flusher).Flush()
		if strings.HasSuffix(q.URL.Path, "server") {
			panic(http.ErrAbortHandler)
		}
		<-q.Context().Done()
		gone <- true
	}
	onEachPair(t, open, h, func(t *testing.T, r *rig, c *http.Client) {
		ctx, cancel := context.WithCancel(t.Context())
		q, _ := http.NewRequestWithContext(ctx, "GET", "https://"+apiHost+"/v1/agent", nil)
		res, err := c.Do(q)
		must(t, err)
		io.ReadFull(res.Body, make([]byte, 5))
		cancel()
		select {
		case <-gone:
		case <-time.After(20 * time.Second):
			t.Fatal("the server does not notice that the agent has gone")
		}
		res, err = c.Get("https://" + apiHost + "/v1/server")
		must(t, err)
		if body, err := io.ReadAll(res.Body); err == nil && res.StatusCode == 200 { // 502: cut short before its head was read
			t.Errorf("a response cut short by the server looks whole to the agent: %s, %q", res.Status, body)
		}
	})
}

// TestEarlyFinalAnswers: a server that answers before it has read the request is
// heard, and the agent's next request is served.
func TestEarlyFinalAnswers(t *testing.T) {
	h := func(w http.ResponseWriter, q *http.Request) {
		if q.Method == "POST" {
			w.Header().Set("Connection", "close") // lest net/http waits for the body
			w.WriteHeader(413)
		}
		io.WriteString(w, "said")
	}
	onEachPair(t, open, h, func(t *testing.T, r *rig, c *http.Client) {
		never, end := io.Pipe()
		defer end.Close()
		go end.Write([]byte("a beginning"))
		q, _ := http.NewRequest("POST", "https://"+apiHost+"/v1/up", never)
		res, err := c.Do(q)
		must(t, err)
		body, err := io.ReadAll(res.Body)
		if res.StatusCode != 413 || string(body) != "said" || err != nil {
			t.Errorf("got %s %q %v", res.Status, body, err)
		}
		if _, body := get(t, c, "/v1/next"); body != "said" {
			t.Errorf("the next request gets %q", body)
		}
	})
}

// TestAgentsReadWhatCameEarly: whoever is still sending is not told that nobody
// wants it before there was time to read the response, be it the server's or a
// refusal. Clients exist that read none of it then.
func TestAgentsReadWhatCameEarly(t *testing.T) {
	for path, status := range map[string]string{"/v1/up": "413", "/elsewhere": "403"} {
		t.Run(status, func(t *testing.T) {
			r := newRig(t, open, func(r *rig) { r.cfg.Limits = egress.Limits{Linger: time.Hour} })
			r.upstreamALPN(apiHost, apiAddr, []string{"h2"}, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				w.WriteHeader(413)
			}))
			f := r.frames(t, r.listen(netplan.Explicit), apiHost)
			f.ask(1, false, "POST", path)
			must(t, f.WriteData(1, false, make([]byte, 1000)))
			var seen []string
			for ended := false; !ended; {
				frame, err := f.ReadFrame()
				must(t, err)
				if h, ok := frame.(*http2.MetaHeadersFrame); ok {
					seen = append(seen, h.PseudoValue("status"))
				}
				head := frame.Header()
				ended = head.StreamID == 1 && head.Flags.Has(http2.FlagDataEndStream) && (head.Type == http2.FrameData || head.Type == http2.FrameHeaders)
			}
			must(t, f.WriteData(1, true, make([]byte, 1000))) // its end, in good order
			f.ask(3, true, "GET", "/elsewhere")
			for {
				frame, err := f.ReadFrame()
				must(t, err)
				if head := frame.Header(); head.Type == http2.FrameRSTStream {
					t.Fatalf("%v", frame)
				} else if head.StreamID == 3 {
					break
				}
			}
			if len(seen) != 1 || seen[0] != status {
				t.Errorf("heads with status %v, want %s", seen, status)
			}
		})
	}
}

// TestNobodyReadsForEver: a response that came early is waited with for so long
// and no longer.
func TestNobodyReadsForEver(t *testing.T) {
	r := newRig(t, open, func(r *rig) { r.cfg.Limits = egress.Limits{Linger: time.Millisecond} })
	f := r.frames(t, r.listen(netplan.Explicit), apiHost)
	f.ask(1, false, "POST", "/elsewhere")
	for {
		frame, err := f.ReadFrame()
		must(t, err)
		if rst, ok := frame.(*http2.RSTStreamFrame); ok {
			if rst.StreamID != 1 || rst.ErrCode != http2.ErrCodeNo {
				t.Errorf("%v", rst)
			}
			return
		}
	}
}

// TestI10StreamsAreCut: each stream of HTTP/2 is judged again when the policy
// changes, by the rule that let it through.
func TestI10StreamsAreCut(t *testing.T) {
	h := func(w http.ResponseWriter, q *http.Request) {
		io.WriteString(w, "begin")
		w.(http.Flusher).Flush()
		<-q.Context().Done()
	}
	onEachPair(t, open, h, func(t *testing.T, r *rig, c *http.Client) {
		read := func(path string) *http.Response {
			res, err := c.Get("https://" + apiHost + path)
			must(t, err)
			_, err = io.ReadFull(res.Body, make([]byte, 5))
			must(t, err)
			return res
		}
		stays, goes := read("/v1/stays"), read("/v1/goes/on")
		r.apply(strings.Replace(open, `paths: ["/v1/**"]`, `paths: ["/v1/stays"]`, 1))
		if _, err := io.ReadAll(goes.Body); err == nil {
			t.Error("the stream that is not allowed any more has come to a good end")
		}
		o := r.journal.lastOutcome(t, 1)
		if o.Cut != "policy" || o.Code != codes.PathNotAllowed {
			t.Errorf("outcome %+v", o)
		}
		over := make(chan error, 1)
		go func() { _, err := stays.Body.Read(make([]byte, 1)); over <- err }()
		select {
		case err := <-over:
			t.Errorf("the stream that is allowed has ended: %v", err)
		case <-time.After(600 * time.Millisecond):
		}
		r.apply(nothing)
		if err := <-over; err == nil || errors.Is(err, io.EOF) {
			t.Errorf("then it ends with %v", err)
		}
	})
}

// TestGRPCNeedsHTTP2: gRPC to a server that does not speak HTTP/2 fails with a
// code, and reaches nobody.
func TestGRPCNeedsHTTP2(t *testing.T) {
	r := newRig(t, open)
	r.upstreamALPN(apiHost, apiAddr, []string{"http/1.1"}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("the request has reached the server")
	}))
	c := r.clientH2(r.listen(netplan.Explicit))
	for _, kind := range []string{"application/grpc", "application/grpc+proto"} {
		wantCallRefused(t, call(t, c, "/v1/Call", kind, "trailers"), "7", codes.ALPNDenied)
	}
	if d := r.journal.lastDecision(t, 2); d.Host != apiHost {
		t.Errorf("on record: %+v", d)
	}
}

// TestGRPCIsRefusedInItsOwnWords: a call of gRPC is refused with a status of
// gRPC; what only has its content type, whose client may not look at that, gets
// the refusal of HTTP.
func TestGRPCIsRefusedInItsOwnWords(t *testing.T) {
	r := newRig(t, open)
	proxy := r.listen(netplan.Explicit)
	h2, h1 := r.clientH2(proxy), r.client(proxy)
	wantCallRefused(t, call(t, h2, "/pkg.Service/Call%25", "application/grpc", "trailers"), "7", codes.PathNotAllowed)
	d := r.journal.lastDecision(t, 1)
	if d.Code != codes.PathNotAllowed {
		t.Errorf("on record: %+v", d)
	}
	// No server: the call is allowed, and fails.
	r.net.add(apiHost, apiAddr)
	wantCallRefused(t, call(t, h2, "/v1/Call", "application/grpc", "trailers"), "14", codes.UpstreamUnreachable)
	if o := r.journal.lastOutcome(t, 1); o.Status != 502 || o.Code != codes.UpstreamUnreachable {
		t.Errorf("on record: %+v", o)
	}
	for name, q := range map[string]struct {
		c        *http.Client
		kind, te string
	}{
		"no te":              {h2, "application/grpc", ""},
		"grpc-web":           {h2, "application/grpc-web", "trailers"},
		"JSON":               {h2, "application/json", "trailers"},
		"HTTP/1.1":           {h1, "application/grpc", "trailers"},
		"HTTP/1.1 and no te": {h1, "application/grpc", ""},
	} {
		t.Run(name, func(t *testing.T) {
			wantDenial(t, call(t, q.c, "/pkg.Service/Call", q.kind, q.te), 403, codes.PathNotAllowed)
		})
	}
}

// call sends an empty message of gRPC.
func call(t *testing.T, c *http.Client, path, kind, te string) *http.Response {
	t.Helper()
	q, err := http.NewRequest("POST", "https://"+apiHost+path, strings.NewReader("\x00\x00\x00\x00\x00"))
	must(t, err)
	q.Header.Set("Content-Type", kind)
	if te != "" {
		q.Header.Set("Te", te)
	}
	res, err := c.Do(q)
	must(t, err)
	t.Cleanup(func() { res.Body.Close() })
	return res
}

func wantCallRefused(t *testing.T, res *http.Response, status string, code codes.Code) {
	t.Helper()
	h := res.Header
	body, err := io.ReadAll(res.Body)
	must(t, err)
	if res.StatusCode != 200 || len(body) > 0 || h.Get("Content-Type") != "application/grpc" || h.Get("Grpc-Status") != status || h.Get("Bawn-Code") != string(code) {
		t.Errorf("got %s %v %q, want grpc-status %s and %s", res.Status, h, body, status, code)
	}
	said, err := url.PathUnescape(h.Get("Grpc-Message"))
	must(t, err)
	entry, _ := codes.Lookup(code)
	if !strings.HasPrefix(said, string(code)+": "+entry.Meaning+" "+entry.Agent) {
		t.Errorf("grpc-message %q", said)
	}
}
