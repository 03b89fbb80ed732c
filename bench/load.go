// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// question is what the client asks, the same each time.
var question = []byte("GET /v1/items/42?page=3 HTTP/1.1\r\nHost: " + originHost +
	"\r\nUser-Agent: bench/1\r\nAccept: application/json\r\nAuthorization: Bearer 0123456789abcdef0123456789abcdef\r\n\r\n")

// loadMain asks over connections that stay open, one question at a time on
// each, until its standard input ends. It is raw so that the client costs
// little of the machine. Any answer but the whole of the upstream's ends it
// with an error.
func loadMain(args []string) error {
	fs := flag.NewFlagSet("load", flag.ContinueOnError)
	proxy := fs.String("proxy", "", "address of the proxy")
	roots := fs.String("roots", "", "PEM file of the roots to trust")
	conns := fs.Int("conns", 1, "connections")
	if err := fs.Parse(args); err != nil {
		return err
	}
	pem, err := os.ReadFile(*roots)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return fmt.Errorf("no certificate in %s", *roots)
	}
	var stop atomic.Bool
	failed := make(chan error, *conns)
	var wg sync.WaitGroup
	for range *conns {
		c, err := connect(*proxy, pool)
		if err != nil {
			return err
		}
		wg.Go(func() {
			if err := ask(c, &stop); err != nil {
				failed <- err
			}
		})
	}
	fmt.Println("ready")
	ended := make(chan struct{})
	go func() {
		io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	select {
	case err := <-failed:
		return err
	case <-ended:
	}
	stop.Store(true)
	wg.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// connect opens a tunnel and TLS in it.
func connect(proxy string, roots *x509.CertPool) (*tls.Conn, error) {
	c, err := net.DialTimeout("tcp", proxy, 5*time.Second)
	if err != nil {
		return nil, err
	}
	authority := net.JoinHostPort(originHost, originPort)
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", authority, authority)
	head, err := readHead(c)
	if err != nil {
		return nil, fmt.Errorf("CONNECT: %w", err)
	}
	if !bytes.HasPrefix(head, []byte("HTTP/1.1 200")) && !bytes.HasPrefix(head, []byte("HTTP/1.0 200")) {
		return nil, fmt.Errorf("CONNECT: %q", head)
	}
	t := tls.Client(c, &tls.Config{ServerName: originHost, RootCAs: roots, NextProtos: []string{"http/1.1"}})
	c.SetDeadline(time.Now().Add(10 * time.Second))
	if err := t.Handshake(); err != nil {
		return nil, err
	}
	return t, c.SetDeadline(time.Time{})
}

// readHead reads octet by octet, so that nothing behind the head is taken.
func readHead(c net.Conn) ([]byte, error) {
	var head []byte
	for !bytes.HasSuffix(head, headEnd) {
		var b [1]byte
		if _, err := io.ReadFull(c, b[:]); err != nil {
			return head, err
		}
		if head = append(head, b[0]); len(head) > 8<<10 {
			return head, errors.New("head too long")
		}
	}
	return head, nil
}

func ask(c net.Conn, stop *atomic.Bool) error {
	defer c.Close()
	buf := make([]byte, 64<<10)
	for !stop.Load() {
		if _, err := c.Write(question); err != nil {
			return err
		}
		have := 0
		for {
			n, err := c.Read(buf[have:])
			if err != nil {
				return fmt.Errorf("after %q: %w", buf[:have], err)
			}
			have += n
			whole, err := isWhole(buf[:have])
			if err != nil {
				return err
			}
			if whole {
				break
			}
		}
	}
	return nil
}

var (
	okLine    = []byte("HTTP/1.1 200 ")
	lengthIs  = []byte("\r\ncontent-length: " + strconv.Itoa(bodySize) + "\r\n")
	chunkedIs = []byte("\r\ntransfer-encoding: chunked\r\n")
	lastChunk = []byte("\r\n0\r\n\r\n")
)

// isWhole reports whether b holds a whole answer, and an error when it is not
// the upstream's.
func isWhole(b []byte) (bool, error) {
	i := bytes.Index(b, headEnd)
	if i < 0 {
		return false, nil
	}
	head, body := b[:i+2], b[i+len(headEnd):]
	if !bytes.HasPrefix(head, okLine) {
		return false, fmt.Errorf("answer: %q", b)
	}
	switch {
	case containsFold(head, lengthIs):
		return len(body) == bodySize, nil
	case containsFold(head, chunkedIs):
		return bytes.HasSuffix(body, lastChunk), nil
	}
	return false, fmt.Errorf("answer: %q", head)
}

// containsFold is bytes.Contains for text whose lower-case form is want.
func containsFold(b, want []byte) bool {
	for i := 0; i+len(want) <= len(b); i++ {
		if b[i] == want[0] && bytes.EqualFold(b[i:i+len(want)], want) {
			return true
		}
	}
	return false
}
