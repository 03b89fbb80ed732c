// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

// serveH2 answers on addr:443 in HTTP/2, and in HTTP/1.1 too unless only is
// set. What comes in is recorded as net/http reads it, for the bytes of HTTP/2
// say nothing by themselves.
func (r *recorder) serveH2(addr string, only bool, h http.Handler, cert func(*tls.ClientHelloInfo) (*tls.Certificate, error)) error {
	ln, err := net.Listen("tcp", net.JoinHostPort(addr, "443"))
	if err != nil {
		return fmt.Errorf("opening server: %w", err)
	}
	srv := &http.Server{
		Handler: r.read(h), TLSConfig: &tls.Config{GetCertificate: cert}, Protocols: new(http.Protocols),
		ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute,
	}
	srv.Protocols.SetHTTP2(true)
	srv.Protocols.SetHTTP1(!only)
	go func() {
		if err := srv.ServeTLS(ln, "", ""); err != nil && !errors.Is(err, net.ErrClosed) {
			log.Printf("serving %s: %v", ln.Addr(), err)
		}
	}()
	return nil
}

// read records each request as net/http has read it.
func (r *recorder) read(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		server, _ := q.Context().Value(http.LocalAddrContextKey).(net.Addr)
		got := &Received{Server: server.String(), Client: q.RemoteAddr, SNI: q.TLS.ServerName, Proto: q.Proto}
		got.Host = strings.TrimSuffix(q.Host, ":443")
		got.Head = headOf(q)
		body := &recordedBody{ReadCloser: q.Body, rec: r, got: got, sum: sha256.New()}
		got.SHA256 = hex.EncodeToString(body.sum.Sum(nil))
		r.mu.Lock()
		r.requests = append(r.requests, got)
		r.mu.Unlock()
		q.Body = body
		h.ServeHTTP(w, q)
	})
}

// headOf writes a head as HTTP/1.1 would, fields in order of their names.
func headOf(q *http.Request) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s\r\nHost: %s\r\n", q.Method, q.RequestURI, q.Proto, q.Host)
	var lines []string
	for name, values := range q.Header {
		for _, v := range values {
			lines = append(lines, name+": "+v+"\r\n")
		}
	}
	slices.Sort(lines)
	return []byte(b.String() + strings.Join(lines, "") + "\r\n")
}

// A recordedBody counts what its server reads of a body.
type recordedBody struct {
	io.ReadCloser
	rec *recorder
	got *Received
	sum hash.Hash
}

func (b *recordedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.rec.mu.Lock()
	defer b.rec.mu.Unlock()
	b.sum.Write(p[:n])
	b.got.Body += int64(n)
	b.got.SHA256 = hex.EncodeToString(b.sum.Sum(nil))
	return n, err
}
