// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

//lint:file-ignore SA1019 the peer of x/net gives hold of frames and connections that net/http hides

package egress_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/net/http2"
)

// A soakKind sends something and returns how many units it was: requests,
// messages, connections that were refused or cut.
type soakKind struct {
	name string
	send func(w *soakWorker) (int, error)
}

var soakKinds = []soakKind{
	{"keep-alive", (*soakWorker).keepAlive},
	{"absolute form", (*soakWorker).absolute},
	{"HTTP/2", (*soakWorker).h2},
	{"denials", (*soakWorker).denials},
	{"uploads", (*soakWorker).uploads},
	{"WebSocket", (*soakWorker).webSocket},
	{"event stream", (*soakWorker).eventStream},
	{"left downloads", (*soakWorker).leftDownload},
	{"left uploads", (*soakWorker).leftUpload},
	{"cut by the upstream", (*soakWorker).cutByUpstream},
	{"spliced TLS", (*soakWorker).splicedTLS},
	{"spliced TCP", (*soakWorker).splicedTCP},
	{"no TLS", (*soakWorker).noTLS},
}

// upstreams are what the soak asks.
func (s *soak) upstreams() {
	h := http.HandlerFunc(soakUpstream)
	s.serveTLS(apiHost, apiAddr, h)
	s.serveTLS(spliceHost, spliceAddr, h)
	s.r.upstream(apiHost, apiAddr, 80, h)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(s.t, err)
	s.t.Cleanup(func() { ln.Close() })
	s.r.net.add(dbHost, dbAddr)
	s.r.net.servers[netip.MustParseAddrPort(dbAddr+":5432")] = ln.Addr().String()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.WriteString(c, "ready\n") //nolint:errcheck // the client sees it
				io.Copy(c, c)                //nolint:errcheck // the client sees it
			}()
		}
	}()
}

// serveTLS serves both versions of HTTP.
func (s *soak) serveTLS(host, addr string, h http.Handler) {
	cert, err := s.r.serverCA.Certificate(host)
	must(s.t, err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(s.t, err)
	s.r.net.add(host, addr)
	s.r.net.servers[netip.MustParseAddrPort(addr+":443")] = ln.Addr().String()
	srv := &http.Server{
		Handler: h, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{*cert}, NextProtos: []string{"h2", "http/1.1"}},
	}
	s.t.Cleanup(func() { srv.Close() })
	go srv.ServeTLS(ln, "", "") //nolint:errcheck // ends with the test
}

const soakLarge = 512 << 10

func soakUpstream(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/v1/large", "/v1/cut":
		w.Header().Set("Content-Length", fmt.Sprint(soakLarge))
		chunk := make([]byte, 32<<10)
		for n := 0; n < soakLarge; n += len(chunk) {
			if _, err := w.Write(chunk); err != nil || r.URL.Path == "/v1/cut" && n > soakLarge/2 {
				panic(http.ErrAbortHandler)
			}
		}
	case "/v1/events":
		w.Header().Set("Content-Type", "text/event-stream")
		for r.Context().Err() == nil {
			fmt.Fprint(w, "data: x\n\n")
			w.(http.Flusher).Flush()
			select {
			case <-time.After(2 * time.Millisecond):
			case <-r.Context().Done():
			}
		}
	case "/v1/ws":
		ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionContextTakeover})
		if err != nil {
			return
		}
		defer ws.CloseNow()
		for {
			kind, message, err := ws.Read(r.Context())
			if err != nil || ws.Write(r.Context(), kind, message) != nil {
				return
			}
		}
	default:
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "got %d", n)
	}
}

// exchange sends a request on c and reads the answer.
func soakExchange(c net.Conn, br *bufio.Reader, request string, status int) error {
	if _, err := io.WriteString(c, request); err != nil {
		return err
	}
	res, err := http.ReadResponse(br, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	if res.StatusCode != status {
		return fmt.Errorf("%.60q: %s, want %d", request, res.Status, status)
	}
	return nil
}

func soakGet(path string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: " + apiHost + "\r\nUser-Agent: soak\r\nAccept: */*\r\n\r\n"
}

func (w *soakWorker) keepAlive() (n int, err error) {
	c, err := w.secure("http/1.1")
	if err != nil {
		return 0, err
	}
	defer w.leave(c)
	br := bufio.NewReader(c)
	for n = range w.burst(80) {
		if err := soakExchange(c, br, soakGet("/v1/a?b=c"), 200); err != nil {
			return n, err
		}
	}
	return n + 1, nil
}

func (w *soakWorker) absolute() (n int, err error) {
	c, err := net.Dial("tcp", w.proxy)
	if err != nil {
		return 0, err
	}
	defer w.leave(c)
	br := bufio.NewReader(c)
	for n = range w.burst(40) {
		if err := soakExchange(c, br, soakGet("http://"+apiHost+"/v1/plain"), 200); err != nil {
			return n, err
		}
	}
	return n + 1, nil
}

// h2 has streams beside each other, of which some are left.
func (w *soakWorker) h2() (int, error) {
	c, err := w.secure("h2")
	if err != nil {
		return 0, err
	}
	defer w.leave(c)
	// Its transport remembers a connection for this long after its end.
	cc, err := (&http2.Transport{IdleConnTimeout: 300 * time.Millisecond}).NewClientConn(c)
	if err != nil {
		return 0, err
	}
	defer cc.Close()
	n := w.burst(40)
	errs := make([]error, 4)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			for k := i; k < n && errs[i] == nil; k += len(errs) {
				errs[i] = soakStream(cc, k)
			}
		})
	}
	wg.Wait()
	return n, errors.Join(errs...)
}

func soakStream(cc *http2.ClientConn, n int) error {
	ctx, cancel := context.WithTimeout(context.Background(), soakPatience)
	defer cancel()
	method, path, want, body := "GET", "/v1/a", 200, io.Reader(nil)
	switch n % 5 {
	case 1:
		method, body = "POST", strings.NewReader(strings.Repeat("b", 40_000))
	case 2:
		path, want = "/other", 403
	case 3:
		path = "/v1/large"
	}
	q, err := http.NewRequestWithContext(ctx, method, "https://"+apiHost+path, body)
	if err != nil {
		return err
	}
	res, err := cc.RoundTrip(q)
	if err != nil {
		return err
	}
	defer res.Body.Close() // of what is left: the stream is reset
	if res.StatusCode != want {
		return fmt.Errorf("%s %s: %s", method, path, res.Status)
	}
	if path == "/v1/large" {
		_, err = res.Body.Read(make([]byte, 100))
	} else {
		_, err = io.Copy(io.Discard, res.Body)
	}
	return err
}

// denials are of each stage: the name, the path, the head.
func (w *soakWorker) denials() (n int, err error) {
	c, err := net.Dial("tcp", w.proxy)
	if err != nil {
		return 0, err
	}
	defer w.leave(c)
	br := bufio.NewReader(c)
	for n = range 1 + w.rng.IntN(20) {
		host := fmt.Sprintf("h%d.evil.example:443", w.rng.IntN(1000))
		request := "CONNECT " + host + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n"
		if n%2 == 1 {
			request = soakGet("http://" + apiHost + "/private")
		}
		if err := soakExchange(c, br, request, 403); err != nil {
			return n, err
		}
	}
	_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n")
	return n + 2, err
}

func (w *soakWorker) uploads() (n int, err error) {
	c, err := w.secure("http/1.1")
	if err != nil {
		return 0, err
	}
	defer w.leave(c)
	br := bufio.NewReader(c)
	for n = range 1 + w.rng.IntN(8) {
		body := strings.Repeat("u", w.rng.IntN(100_000))
		head := "POST /v1/up HTTP/1.1\r\nHost: " + apiHost + "\r\n"
		request := fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", head, len(body), body)
		if w.chance(2) {
			request = fmt.Sprintf("%sTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", head, len(body)+1, body+"u")
		}
		if err := soakExchange(c, br, request, 200); err != nil {
			return n, fmt.Errorf("upload %d of %d octets, %.80q: %w", n, len(body), request[len(head):], err)
		}
	}
	return n + 1, nil
}

func (w *soakWorker) webSocket() (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), soakPatience)
	defer cancel()
	mode := websocket.CompressionDisabled
	if w.chance(2) {
		mode = websocket.CompressionContextTakeover
	}
	var under net.Conn
	ws, _, err := websocket.Dial(ctx, "wss://"+apiHost+"/v1/ws", &websocket.DialOptions{
		CompressionMode: mode,
		HTTPClient: &http.Client{Transport: &http.Transport{DialTLSContext: func(context.Context, string, string) (net.Conn, error) {
			c, err := w.secure("http/1.1")
			under = c
			return c, err
		}}},
	})
	if err != nil {
		if under != nil {
			under.Close()
		}
		return 0, err
	}
	message := bytes.Repeat([]byte("message "), 1+w.rng.IntN(500))
	n := w.burst(30)
	for i := range n {
		if err := ws.Write(ctx, websocket.MessageText, message); err != nil {
			return i, err
		}
		if _, got, err := ws.Read(ctx); err != nil || !bytes.Equal(got, message) {
			return i, fmt.Errorf("%d octets came back: %w", len(got), err)
		}
	}
	if w.chance(2) {
		return n, ws.Close(websocket.StatusNormalClosure, "")
	}
	w.leave(under)
	ws.CloseNow()
	return n, nil
}

// eventStream leaves after a few events.
func (w *soakWorker) eventStream() (int, error) {
	c, err := w.secure("http/1.1")
	if err != nil {
		return 0, err
	}
	defer w.leave(c)
	io.WriteString(c, soakGet("/v1/events")) //nolint:errcheck // shows in the reads
	events := 0
	for br := bufio.NewReader(c); events < 5; {
		line, err := br.ReadString('\n')
		if err != nil {
			return events, err
		}
		if strings.HasPrefix(line, "data: ") {
			events++
		}
	}
	return 1, nil
}

// leftDownload leaves in the midst of a response.
func (w *soakWorker) leftDownload() (int, error) {
	c, err := w.secure("http/1.1")
	if err != nil {
		return 0, err
	}
	defer w.leave(c)
	io.WriteString(c, soakGet("/v1/large")) //nolint:errcheck // shows in the read
	_, err = io.ReadFull(c, make([]byte, 1+w.rng.IntN(100_000)))
	return 1, err
}

// leftUpload leaves in the midst of a request.
func (w *soakWorker) leftUpload() (int, error) {
	c, err := w.secure("http/1.1")
	if err != nil {
		return 0, err
	}
	defer w.leave(c)
	fmt.Fprintf(c, "POST /v1/up HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n", apiHost, soakLarge)
	_, err = c.Write(make([]byte, 1+w.rng.IntN(100_000)))
	return 1, err
}

// cutByUpstream wants a response that the server does not finish.
func (w *soakWorker) cutByUpstream() (int, error) {
	c, err := w.secure("http/1.1")
	if err != nil {
		return 0, err
	}
	defer w.leave(c)
	if err := soakExchange(c, bufio.NewReader(c), soakGet("/v1/cut"), 200); err == nil {
		return 0, errors.New("the response was whole")
	}
	return 1, nil
}

func (w *soakWorker) splicedTLS() (n int, err error) {
	c, err := w.connect(spliceHost, 443)
	if err != nil {
		return 0, err
	}
	t := tls.Client(c, &tls.Config{InsecureSkipVerify: true, ServerName: spliceHost}) // whose certificate it is does not matter here
	defer w.leave(t)
	br := bufio.NewReader(t)
	for n = range 1 + w.rng.IntN(10) {
		if err := soakExchange(t, br, "GET /v1/a HTTP/1.1\r\nHost: "+spliceHost+"\r\n\r\n", 200); err != nil {
			return n, err
		}
	}
	return n + 1, nil
}

// splicedTCP talks to a server that speaks first, and ends its half before the
// server ends the other, or leaves.
func (w *soakWorker) splicedTCP() (int, error) {
	c, err := w.connect(dbHost, 5432)
	if err != nil {
		return 0, err
	}
	defer w.leave(c)
	br := bufio.NewReader(c)
	if line, err := br.ReadString('\n'); err != nil || line != "ready\n" {
		return 0, fmt.Errorf("greeting: %q, %w", line, err)
	}
	fmt.Fprintln(c, "select 1")
	if line, err := br.ReadString('\n'); err != nil || line != "select 1\n" {
		return 0, fmt.Errorf("echo: %q, %w", line, err)
	}
	if w.chance(2) {
		return 1, nil
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return 0, err
	}
	_, err = br.ReadByte()
	if !errors.Is(err, io.EOF) {
		return 0, fmt.Errorf("after the end of our half: %w", err)
	}
	return 1, nil
}

// noTLS begins with what is no TLS, says another name than the tunnel's, or
// leaves in the midst of the handshake.
func (w *soakWorker) noTLS() (int, error) {
	c, err := w.connect(apiHost, 443)
	if err != nil {
		return 0, err
	}
	defer w.leave(c)
	switch w.rng.IntN(3) {
	case 0:
		io.WriteString(c, "SSH-2.0-OpenSSH_9.2\r\n") //nolint:errcheck // it is refused
	case 1:
		err := tls.Client(c, &tls.Config{ServerName: "other.example.com", RootCAs: w.r.minterCA}).Handshake()
		if err == nil {
			return 0, errors.New("another name than the tunnel's was taken")
		}
	case 2:
		c.Write([]byte{22, 3, 1, 2, 0, 1}) //nolint:errcheck // nothing comes back
	}
	return 1, nil
}
