// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

//lint:file-ignore SA1019 the peer of x/net gives hold of frames and connections that net/http hides

package h2conn_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"bawn/internal/h2conn"
	"bawn/internal/httpwire"
)

// testTLS is a certificate that nobody verifies.
var testTLS = sync.OnceValue(func() *tls.Config {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"h"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		NextProtos:   []string{"h2"},
	}
})

// listen accepts TLS connections on the loopback until the test ends.
func listen(t testing.TB, serve func(net.Conn)) (addr string) {
	t.Helper()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", testTLS())
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { ln.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				if nc.(*tls.Conn).HandshakeContext(t.Context()) == nil {
					serve(nc)
				}
			})
		}
	})
	return ln.Addr().String()
}

// serveH2 runs a server of this package.
func serveH2(t testing.TB, lim h2conn.Limits, handle func(*h2conn.ServerStream)) (addr string) {
	return listen(t, func(nc net.Conn) {
		h2conn.NewServer(nc, lim, handle).Serve() //nolint:errcheck // tests of it call it themselves
	})
}

// transport is the client of another house.
func transport(t testing.TB, addr string) *http2.Transport {
	return &http2.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		DialTLS: func(network, _ string, cfg *tls.Config) (net.Conn, error) {
			nc, err := tls.Dial(network, addr, cfg)
			if err == nil {
				t.Cleanup(func() { nc.Close() })
			}
			return nc, err
		},
	}
}

// dialH2 opens a client of this package.
func dialH2(t testing.TB, addr string, lim h2conn.Limits) *h2conn.Client {
	t.Helper()
	nc, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	k, err := h2conn.NewClient(nc, lim)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.Close(); <-k.Done() })
	return k
}

func status(n int, fields ...string) *httpwire.Response {
	p := &httpwire.Response{Status: n}
	for i := 0; i < len(fields); i += 2 {
		p.Fields = append(p.Fields, httpwire.Field{Name: fields[i], Value: fields[i+1]})
	}
	return p
}

func request(method string, fields ...string) *httpwire.Request {
	return &httpwire.Request{Method: method, Fields: append(httpwire.Fields{{Name: "Host", Value: "h"}}, status(200, fields...).Fields...)}
}

// echo answers with what it was sent, as it comes, and with its trailers.
func echo(s *h2conn.ServerStream) {
	q, err := s.Head()
	if err != nil {
		e, _ := errors.AsType[*httpwire.Error](err)
		s.WriteHead(status(e.Status, "bawn-code", string(e.Code)), true)
		return
	}
	head := status(200, "x-method", q.Method, "x-target", q.Target, "x-host", q.Host)
	s.WriteHead(head, false)
	b := s.Body()
	buf := make([]byte, 32<<10)
	for {
		if !b.Ready() {
			s.Flush()
		}
		n, err := b.Read(buf)
		if n > 0 {
			if _, err := s.Write(buf[:n]); err != nil {
				return
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			s.Reset(http2.ErrCodeCancel)
			return
		}
	}
	s.End(b.Trailers())
}

func TestServerAndTransport(t *testing.T) {
	addr := serveH2(t, h2conn.Limits{}, echo)
	tr := transport(t, addr)
	for _, size := range []int{0, 1, 1000, 100_000, 10 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			body := make([]byte, size)
			rand.Read(body)
			req, _ := http.NewRequestWithContext(t.Context(), "POST", "https://h/a?b", bytes.NewReader(body))
			if size > 0 { // else the Transport would forget them
				req.Trailer = http.Header{"X-Last": {"word"}}
			}
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			got, err := io.ReadAll(resp.Body)
			if err != nil || !bytes.Equal(got, body) {
				t.Fatalf("%d octets came back, %v", len(got), err)
			}
			if resp.Header.Get("X-Target") != "/a?b" || resp.Header.Get("X-Host") != "h" {
				t.Errorf("the head came as %v", resp.Header)
			}
			if size > 0 && resp.Trailer.Get("X-Last") != "word" {
				t.Errorf("the trailers came as %v", resp.Trailer)
			}
		})
	}
}

func TestClientAndServerOfAnotherHouse(t *testing.T) {
	addr := listen(t, func(nc net.Conn) {
		(&http2.Server{}).ServeConn(nc, &http2.ServeConnOpts{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "X-Last")
			w.Header().Set("X-Target", r.RequestURI)
			w.WriteHeader(200)
			w.(http.Flusher).Flush()
			io.Copy(w, r.Body)
			w.Header().Set("X-Last", "word "+r.Trailer.Get("X-First"))
		})})
		nc.Close()
	})
	k := dialH2(t, addr, h2conn.Limits{StreamWindow: 40_000})
	for _, size := range []int{0, 1, 1000, 100_000, 10 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			s, err := k.Open(request("POST", "trailer", "x-first"), "https", "/a?b", false)
			if err != nil {
				t.Fatal(err)
			}
			body := make([]byte, size)
			rand.Read(body)
			go func() {
				s.Write(body)
				s.End(httpwire.Fields{{Name: "X-First", Value: "w"}})
			}()
			var p httpwire.Response
			if err := s.ReadHead(&p); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(s.Body())
			if err != nil || !bytes.Equal(got, body) {
				t.Fatalf("%d octets came back, %v", len(got), err)
			}
			if v, _ := s.Body().Trailers().Get("x-last"); v != "word w" {
				t.Errorf("the trailers came as %v", s.Body().Trailers())
			}
		})
	}
	if n := k.Streams(); n != 0 {
		t.Errorf("%d streams are left", n)
	}
}

func TestInterimResponses(t *testing.T) {
	addr := serveH2(t, h2conn.Limits{}, func(s *h2conn.ServerStream) {
		s.WriteHead(status(103, "link", "x"), false)
		s.WriteHead(status(100), false)
		io.Copy(io.Discard, s.Body())
		s.WriteHead(status(204), true)
	})
	t.Run("to another house", func(t *testing.T) {
		var got []int
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(code int, _ textproto.MIMEHeader) error { got = append(got, code); return nil },
		})
		req, _ := http.NewRequestWithContext(ctx, "POST", "https://h/", strings.NewReader("x"))
		resp, err := transport(t, addr).RoundTrip(req)
		if err != nil || resp.StatusCode != 204 {
			t.Fatal(resp, err)
		}
		if fmt.Sprint(got) != "[103 100]" {
			t.Errorf("%v came before the answer", got)
		}
	})
	t.Run("to the own client", func(t *testing.T) {
		s, err := dialH2(t, addr, h2conn.Limits{}).Open(request("POST"), "https", "/", false)
		if err != nil {
			t.Fatal(err)
		}
		s.Write([]byte("x"))
		s.End(nil)
		var got []int
		for {
			var p httpwire.Response
			if err := s.ReadHead(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			got = append(got, p.Status)
		}
		if fmt.Sprint(got) != "[103 100 204]" {
			t.Errorf("the heads were %v", got)
		}
	})
}
