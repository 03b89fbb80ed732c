// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"
)

// A Received is one HTTP request as a server of the world got it.
type Received struct {
	Server string // address and port that was connected to
	Client string // address and port that connected
	SNI    string // name in the TLS handshake; empty for plain HTTP
	Host   string // Host header
	Proto  string // HTTP/1.1 or HTTP/2.0
	Conn   int    // connections are numbered from 1
	Head   []byte // the exact bytes up to and including the blank line; those of H2 and H2Only are written anew
	Body   int64  // body bytes so far, without framing
	SHA256 string // of those bytes, hex
}

// A Stream is the exact bytes that came in on one connection, after TLS.
type Stream struct {
	Server string
	Client string
	SNI    string
	Conn   int
	Bytes  []byte // at most 1 MiB
}

const maxStream = 1 << 20

// recorder keeps what the servers of one namespace received.
type recorder struct {
	mu       sync.Mutex
	requests []*Received
	streams  []*Stream
	conns    int
	epoch    int // grows when everything is forgotten
}

func (r *recorder) open(server, client, sni string) *Stream {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conns++
	s := &Stream{Server: server, Client: client, SNI: sni, Conn: r.conns}
	r.streams = append(r.streams, s)
	return s
}

// splitter records a connection.
func (r *recorder) splitter(server, client, sni string) *splitter {
	return &splitter{rec: r, stream: r.open(server, client, sni), epoch: r.now()}
}

func (r *recorder) now() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.epoch
}

// list returns copies of what was received for host; an empty host means all.
func (r *recorder) list(host string, reset bool) ([]Received, []Stream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var requests []Received
	for _, q := range r.requests {
		if host == "" || q.Host == host || q.SNI == host {
			requests = append(requests, *q)
		}
	}
	var streams []Stream
	for _, s := range r.streams {
		if host == "" || s.SNI == host || s.Server == host {
			c := *s
			c.Bytes = append([]byte(nil), s.Bytes...)
			streams = append(streams, c)
		}
	}
	if reset {
		r.requests, r.streams = nil, nil
		r.epoch++
	}
	return requests, streams
}

// current returns the stream to go on with: after everything was forgotten, a
// new one of the same connection.
func (r *recorder) current(s *Stream, epoch int) (*Stream, int) {
	if epoch != r.epoch {
		s = &Stream{Server: s.Server, Client: s.Client, SNI: s.SNI, Conn: s.Conn}
		r.streams = append(r.streams, s)
	}
	return s, r.epoch
}

// teeConn hands what it reads to the recorder.
type teeConn struct {
	net.Conn
	split *splitter
}

func (c *teeConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.split.write(p[:n])
	return n, err
}

// CloseWrite lets the server end its half, as a TCP connection can.
func (c *teeConn) CloseWrite() error {
	if h, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return nil
}

// recordingListener ends TLS, if any, and records every connection.
type recordingListener struct {
	ready chan net.Conn
	done  chan struct{}
	once  sync.Once
	inner net.Listener
}

// record wraps inner. With a non-nil conf each connection begins with TLS;
// handshakes run beside each other, and a failed one is dropped.
func (r *recorder) record(inner net.Listener, conf *tls.Config) net.Listener {
	l := &recordingListener{ready: make(chan net.Conn), done: make(chan struct{}), inner: inner}
	go func() {
		for {
			c, err := inner.Accept()
			if err != nil {
				l.Close()
				return
			}
			go r.handshake(l, c, conf)
		}
	}()
	return l
}

func (r *recorder) handshake(l *recordingListener, c net.Conn, conf *tls.Config) {
	server, client, sni := c.LocalAddr().String(), c.RemoteAddr().String(), ""
	if conf != nil {
		t := tls.Server(c, conf)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := t.HandshakeContext(ctx); err != nil {
			c.Close()
			return
		}
		sni = t.ConnectionState().ServerName
		c = t
	}
	tee := &teeConn{c, r.splitter(server, client, sni)}
	select {
	case l.ready <- tee:
	case <-l.done:
		c.Close()
	}
}

func (l *recordingListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.ready:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *recordingListener) Close() error {
	l.once.Do(func() { close(l.done); l.inner.Close() })
	return nil
}

func (l *recordingListener) Addr() net.Addr { return l.inner.Addr() }

// serveHTTP answers on addr:port with h. With a certificate source it speaks
// TLS, and HTTP/1.1 only, so that what came in can be read back.
func (r *recorder) serveHTTP(addr, port string, h http.Handler, cert func(*tls.ClientHelloInfo) (*tls.Certificate, error)) error {
	ln, err := net.Listen("tcp", net.JoinHostPort(addr, port))
	if err != nil {
		return fmt.Errorf("opening server: %w", err)
	}
	r.serveOn(ln, h, cert)
	return nil
}

func (r *recorder) serveOn(ln net.Listener, h http.Handler, cert func(*tls.ClientHelloInfo) (*tls.Certificate, error)) {
	var conf *tls.Config
	if cert != nil {
		conf = &tls.Config{GetCertificate: cert, NextProtos: []string{"http/1.1"}}
	}
	srv := &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute}
	go func() {
		if err := srv.Serve(r.record(ln, conf)); err != nil && !errors.Is(err, net.ErrClosed) {
			log.Printf("serving %s: %v", ln.Addr(), err)
		}
	}()
}
