// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"bawn/internal/audit"
	"bawn/internal/h2conn"
	"bawn/internal/httpwire"
	"bawn/internal/netplan"
)

// BenchmarkKeepAliveH2 sends one request after the other on one HTTP/2
// connection, with policy and a journal on the disk, to a server that speaks
// HTTP/2 as well.
func BenchmarkKeepAliveH2(b *testing.B) {
	r := newRig(b, basic, func(r *rig) {
		j, err := audit.OpenJournal(b.TempDir(), audit.Options{Plane: "egress"})
		must(b, err)
		b.Cleanup(func() { j.Close() })
		r.cfg.Recorder = j
	})
	r.answerH2()
	conn := tls.Client(r.connect(r.listen(netplan.Explicit), apiHost+":443"), &tls.Config{RootCAs: r.minterCA, ServerName: apiHost, NextProtos: []string{"h2"}})
	askH2(b, conn)
}

// BenchmarkFloorH2 is the same with a relay between that only ends TLS.
func BenchmarkFloorH2(b *testing.B) {
	r := newRig(b, basic)
	r.answerH2()
	cert, err := r.cfg.Minter.Certificate(apiHost)
	must(b, err)
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{*cert}, NextProtos: []string{"h2"}})
	must(b, err)
	defer ln.Close()
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		up, err := tls.Dial("tcp", r.net.servers[netip.MustParseAddrPort(apiAddr+":443")], &tls.Config{RootCAs: r.cfg.Roots, ServerName: apiHost, NextProtos: []string{"h2"}})
		if err != nil {
			return
		}
		go io.Copy(c, up)
		io.Copy(up, c)
	}()
	askH2(b, tls.Client(r.dial(ln.Addr().String()), &tls.Config{RootCAs: r.minterCA, ServerName: apiHost, NextProtos: []string{"h2"}}))
}

func (r *rig) answerH2() {
	body := bytes.Repeat([]byte{'x'}, 1024)
	cert, err := r.serverCA.Certificate(apiHost)
	must(r.t, err)
	r.listenAt(apiHost, apiAddr, 80, func(ln net.Listener) {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			secure := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{*cert}, NextProtos: []string{"h2"}})
			go h2conn.NewServer(secure, h2conn.Limits{}, func(s *h2conn.ServerStream) {
				p := httpwire.Response{Status: 200, Fields: httpwire.Fields{{Name: "content-type", Value: "application/json"}, {Name: "content-length", Value: "1024"}}}
				p.Framing = httpwire.Framing{Kind: httpwire.Length, Length: 1024}
				s.WriteHead(&p, false)
				s.Write(body)
				s.End(nil)
			}).Serve()
		}
	})
	r.net.move(apiAddr, 80, 443)
}

func askH2(b *testing.B, conn *tls.Conn) {
	b.Helper()
	must(b, conn.Handshake())
	conn.SetDeadline(time.Time{})
	c, err := h2conn.NewClient(conn, h2conn.Limits{})
	must(b, err)
	defer c.Close()
	b.ReportAllocs()
	before := cpuTime()
	defer func() {
		b.ReportMetric(float64((cpuTime()-before).Microseconds())/float64(b.N), "cpu-µs/op")
	}()
	for b.Loop() {
		q := httpwire.Request{Method: "GET", Fields: httpwire.Fields{
			{Name: "host", Value: apiHost}, {Name: "user-agent", Value: "bench/1.0"}, {Name: "accept", Value: "*/*"},
			{Name: "authorization", Value: "Bearer abcdefghijklmnopqrstuvwxyz"},
		}, Host: apiHost, HasHost: true}
		s, err := c.Open(&q, "https", "/v1/things/12345?limit=2", true)
		must(b, err)
		must(b, s.Flush())
		var p httpwire.Response
		must(b, s.ReadHead(&p))
		n, err := io.Copy(io.Discard, s.Body())
		if n != 1024 || err != nil {
			b.Fatal(n, err)
		}
	}
}
