// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
)

// floorMain is the least that a proxy in Go can do: it ends TLS on both sides
// and copies octets. It reads no HTTP, shares no connection, and judges and
// records nothing. What goes to the host that is not to be looked into it
// copies without ending TLS.
func floorMain(args []string) error {
	fs := flag.NewFlagSet("floor", flag.ContinueOnError)
	listen := fs.String("listen", "", "address to listen on")
	pair := fs.String("pair", "", "leaf for the upstream's name")
	roots := fs.String("roots", "", "roots of the upstream")
	if err := fs.Parse(args); err != nil {
		return err
	}
	cert, err := tls.LoadX509KeyPair(*pair, *pair)
	if err != nil {
		return err
	}
	f := floor{down: &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2", "http/1.1"}}}
	if f.roots, err = loadRoots(*roots); err != nil {
		return err
	}
	ln, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	closeAtEnd(ln)
	fmt.Println("ready")
	for {
		c, err := ln.Accept()
		if err != nil {
			return nil
		}
		go func() {
			if err := f.relay(c); err != nil {
				fmt.Fprintln(os.Stderr, "floor:", err)
			}
		}()
	}
}

// closeAtEnd closes ln when standard input ends, which is how the bench ends a
// role.
func closeAtEnd(ln net.Listener) {
	go func() {
		io.Copy(io.Discard, os.Stdin) //nolint:errcheck // the end is all that counts
		ln.Close()
	}()
}

func loadRoots(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("no certificate in %s", path)
	}
	return pool, nil
}

type floor struct {
	down  *tls.Config
	roots *x509.CertPool
}

func (f *floor) relay(c net.Conn) error {
	defer c.Close()
	head, err := readHead(c)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return err
	}
	up, err := net.Dial("tcp", net.JoinHostPort(originAddr, originPort))
	if err != nil {
		return err
	}
	defer up.Close()
	if strings.HasPrefix(string(head), "CONNECT "+spliceHost+":") {
		both(c, up)
		return nil
	}
	down := tls.Server(c, f.down)
	if err := down.Handshake(); err != nil {
		return errors.Join(errors.New("the client's TLS"), err)
	}
	secure := tls.Client(up, &tls.Config{
		RootCAs: f.roots, ServerName: down.ConnectionState().ServerName, NextProtos: []string{down.ConnectionState().NegotiatedProtocol},
	})
	if err := secure.Handshake(); err != nil {
		return errors.Join(errors.New("the upstream's TLS"), err)
	}
	both(down, secure)
	return nil
}

// both copies both ways until one has ended.
func both(a, b net.Conn) {
	var wg sync.WaitGroup
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		wg.Go(func() {
			io.Copy(way[0], way[1]) //nolint:errcheck // the ends see it
			way[0].Close()
			way[1].Close()
		})
	}
	wg.Wait()
}
