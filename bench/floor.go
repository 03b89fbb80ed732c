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
)

// floorMain is the least that a proxy in Go can do: it ends TLS on both sides
// and moves messages whose lengths it knows beforehand. It reads no HTTP, and
// judges and records nothing.
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
	pool, err := loadRoots(*roots)
	if err != nil {
		return err
	}
	down := &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}}
	up := &tls.Config{RootCAs: pool, ServerName: originHost, NextProtos: []string{"http/1.1"}}
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
			if err := relay(c, down, up); err != nil && !errors.Is(err, io.EOF) {
				fmt.Fprintln(os.Stderr, "floor:", err)
			}
		}()
	}
}

// closeAtEnd closes ln when standard input ends, which is how the bench ends a
// role.
func closeAtEnd(ln net.Listener) {
	go func() {
		io.Copy(io.Discard, os.Stdin)
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

func relay(c net.Conn, downConfig, upConfig *tls.Config) error {
	defer c.Close()
	if _, err := readHead(c); err != nil {
		return err
	}
	if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return err
	}
	down := tls.Server(c, downConfig)
	up, err := tls.Dial("tcp", net.JoinHostPort(originAddr, originPort), upConfig)
	if err != nil {
		return err
	}
	defer up.Close()
	buf := make([]byte, max(len(question), len(answer)))
	for {
		if err := move(up, down, buf[:len(question)]); err != nil {
			return err
		}
		if err := move(down, up, buf[:len(answer)]); err != nil {
			return err
		}
	}
}

func move(to io.Writer, from io.Reader, message []byte) error {
	if _, err := io.ReadFull(from, message); err != nil {
		return err
	}
	_, err := to.Write(message)
	return err
}
