// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/net/http2"
)

// bodySize is how many octets a small answer or message carries.
const bodySize = 1024

// answer1KB is what the upstream says to a question for something small.
var answer1KB = []byte("HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: " +
	strconv.Itoa(bodySize) + "\r\n\r\n" + string(bytes.Repeat([]byte("x"), bodySize)))

// An origin is the upstream. It answers by the path's last element: down, up,
// ws and sse; everything else is small.
type origin struct {
	units sync.Map    // requests, messages and events so far: *atomic.Int64 by the row's word
	web   http.Server // of what is not small
	late  chan net.Conn
}

// of is the counter of a path.
func (o *origin) of(path []byte) *atomic.Int64 {
	word := wordOf(path)
	n, ok := o.units.Load(word)
	if !ok {
		n, _ = o.units.LoadOrStore(word, new(atomic.Int64))
	}
	return n.(*atomic.Int64)
}

// originMain is the upstream, and the name server that knows it. It answers
// each line on its standard input, a row's word, with the number of its units so
// far.
func originMain(args []string) error {
	cert, err := tls.LoadX509KeyPair(args[0], args[0])
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", net.JoinHostPort(originAddr, originPort))
	if err != nil {
		return err
	}
	dns, err := net.ListenPacket("udp", "127.0.0.1:53")
	if err != nil {
		return err
	}
	o := &origin{late: make(chan net.Conn)}
	o.web = http.Server{Handler: o, ErrorLog: log.New(io.Discard, "", 0)}
	go o.web.Serve(&handed{o.late, ln.Addr()}) //nolint:errcheck // ends with the process
	go serveDNS(dns)
	one := &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}}
	both := &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2", "http/1.1"}}
	one.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if hello.ServerName == originH2 {
			return both, nil
		}
		return nil, nil // this one
	}
	go o.serve(ln, one)
	fmt.Println("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Println(o.of([]byte(allowedPath + in.Text() + "/")).Load())
	}
	return nil
}

func (o *origin) serve(ln net.Listener, cfg *tls.Config) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			secure := tls.Server(c, cfg)
			if secure.Handshake() != nil {
				c.Close()
				return
			}
			if secure.ConnectionState().NegotiatedProtocol == "h2" {
				(&http2.Server{MaxConcurrentStreams: 1000}).ServeConn(secure, &http2.ServeConnOpts{Handler: o})
				return
			}
			o.answerAll(secure)
		}()
	}
}

// answerAll answers questions for small things. A connection on which one asks
// for something else goes on as net/http serves it.
func (o *origin) answerAll(c *tls.Conn) {
	buf, have := make([]byte, 8<<10), 0
	for {
		n, err := c.Read(buf[have:])
		if err != nil {
			c.Close()
			return
		}
		have += n
		for {
			i := bytes.Index(buf[:have], endOfHead)
			if i < 0 {
				break
			}
			if !isSmall(buf[:i]) {
				o.late <- &begun{c, bytes.NewReader(buf[:have])}
				return
			}
			o.of(buf[:bytes.IndexByte(buf[:i], '\r')]).Add(1)
			have = copy(buf, buf[i+len(headEnd):have])
			if _, err := c.Write(answer1KB); err != nil {
				c.Close()
				return
			}
		}
	}
}

// isSmall reports whether a head asks for something small: not the elements
// that ServeHTTP knows.
func isSmall(head []byte) bool {
	line, _, _ := bytes.Cut(head, []byte("\r\n"))
	target, _, _ := bytes.Cut(line, []byte("?"))
	for _, large := range []string{"/down", "/up", "/ws", "/sse"} {
		if bytes.Contains(target, []byte(large)) {
			return false
		}
	}
	return bytes.HasPrefix(line, []byte("GET "))
}

// A begun connection is one of which something has been read already.
type begun struct {
	net.Conn
	first *bytes.Reader
}

func (c *begun) Read(p []byte) (int, error) {
	if c.first.Len() > 0 {
		return c.first.Read(p)
	}
	return c.Conn.Read(p)
}

// handed is a listener of connections that were accepted elsewhere.
type handed struct {
	conns chan net.Conn
	addr  net.Addr
}

func (h *handed) Accept() (net.Conn, error) { return <-h.conns, nil }
func (h *handed) Close() error              { return nil }
func (h *handed) Addr() net.Addr            { return h.addr }

// ServeHTTP answers what the raw loop does not, and everything that comes over
// HTTP/2.
func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	count := o.of([]byte(r.URL.Path))
	switch last := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]; last {
	case "down":
		count.Add(1)
		w.Header().Set("Content-Length", strconv.Itoa(downSize))
		chunk := bytes.Repeat([]byte("d"), 64<<10)
		for n := 0; n < downSize; n += len(chunk) {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	case "up":
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		count.Add(1)
		fmt.Fprint(w, n)
	case "ws":
		o.echo(w, r, count)
	case "sse":
		o.events(w, r, count)
	default:
		count.Add(1)
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Length", strconv.Itoa(bodySize))
		w.Write(answer1KB[len(answer1KB)-bodySize:]) //nolint:errcheck // the client sees it
	}
}

// echo sends each message back.
func (o *origin) echo(w http.ResponseWriter, r *http.Request, count *atomic.Int64) {
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		CompressionMode: websocket.CompressionContextTakeover, CompressionThreshold: 1, InsecureSkipVerify: true,
	})
	if err != nil {
		return
	}
	defer ws.CloseNow()
	for {
		kind, message, err := ws.Read(r.Context())
		if err != nil {
			return
		}
		count.Add(1)
		if err := ws.Write(r.Context(), kind, message); err != nil {
			return
		}
	}
}

// eventEvery is the time between two events of one stream, which is some 200
// octets, as a token of a model's answer is.
const eventEvery = 50 * time.Millisecond

// events sends one at every tick, each with the time at which it was due, until
// the client goes away.
func (o *origin) events(w http.ResponseWriter, r *http.Request, count *atomic.Int64) {
	w.Header().Set("Content-Type", "text/event-stream")
	filler := strings.Repeat("e", 170)
	send := http.NewResponseController(w)
	// Streams that begin together do not tick together.
	next := time.Now().Truncate(eventEvery).Add(time.Duration(count.Load()*7919%50) * time.Millisecond)
	for {
		next = next.Add(eventEvery)
		select {
		case <-r.Context().Done():
			return
		case <-time.After(time.Until(next)):
		}
		count.Add(1)
		_, err := fmt.Fprintf(w, "data: %d %s\n\n", time.Now().UnixNano(), filler)
		if errors.Join(err, send.Flush()) != nil {
			return
		}
	}
}
