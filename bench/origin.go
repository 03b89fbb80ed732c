// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync/atomic"

	"golang.org/x/net/dns/dnsmessage"
)

// bodySize is how many octets an answer carries.
const bodySize = 1024

// answer is what the upstream says to everything.
var answer = []byte("HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: " +
	strconv.Itoa(bodySize) + "\r\n\r\n" + string(bytes.Repeat([]byte("x"), bodySize)))

// originMain is the upstream, and the name server that knows it. It answers
// each line on its standard input with the number of requests so far.
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
	var requests atomic.Int64
	go serveDNS(dns)
	go serveOrigin(ln, &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}}, &requests)
	fmt.Println("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Println(requests.Load())
	}
	return nil
}

func serveOrigin(ln net.Listener, cfg *tls.Config, requests *atomic.Int64) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			answerAll(tls.Server(c, cfg), requests)
		}()
	}
}

var headEnd = []byte("\r\n\r\n")

// answerAll answers requests without a body.
func answerAll(c *tls.Conn, requests *atomic.Int64) {
	buf, have := make([]byte, 64<<10), 0
	for {
		n, err := c.Read(buf[have:])
		if err != nil {
			return
		}
		have += n
		for {
			i := bytes.Index(buf[:have], headEnd)
			if i < 0 {
				break
			}
			have = copy(buf, buf[i+len(headEnd):have])
			requests.Add(1)
			if _, err := c.Write(answer); err != nil {
				return
			}
		}
	}
}

// serveDNS answers queries for the upstream's IPv4 address, and that other
// types have no records.
func serveDNS(pc net.PacketConn) {
	address := [4]byte(net.ParseIP(originAddr).To4())
	buf := make([]byte, 512)
	for {
		n, from, err := pc.ReadFrom(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
			continue
		}
		q := m.Questions[0]
		m.Response, m.Authoritative, m.RecursionAvailable = true, true, true
		m.Additionals = nil
		if q.Type == dnsmessage.TypeA {
			m.Answers = []dnsmessage.Resource{{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 3600},
				Body:   &dnsmessage.AResource{A: address},
			}}
		}
		if out, err := m.Pack(); err == nil {
			pc.WriteTo(out, from)
		}
	}
}
