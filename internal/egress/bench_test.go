// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"testing"
	"time"

	"bawn/internal/audit"
	"bawn/internal/budget"
	"bawn/internal/metrics"
	"bawn/internal/netplan"
)

// BenchmarkKeepAlive1KB sends one request after the other through a tunnel
// with TLS on both legs, policy and a journal on the disk. The client and the
// server of the benchmark count as well; both are as small as can be.
func BenchmarkKeepAlive1KB(b *testing.B) {
	r := newRig(b, basic, func(r *rig) {
		j, err := audit.OpenJournal(b.TempDir(), audit.Options{Plane: "egress"})
		must(b, err)
		b.Cleanup(func() { j.Close() })
		r.cfg.Recorder = j
	})
	r.script(apiHost, apiAddr, 443, answer1KB)
	ask1KB(b, r.tunnel(r.listen(netplan.Explicit), apiHost))
}

// BenchmarkKeepAlive1KBBudgets is the same for an agent with budgets of everything
// that a request uses, kept on the disk, and with what metrics count.
func BenchmarkKeepAlive1KBBudgets(b *testing.B) {
	r := newRig(b, bounded("egress_bytes: 10TB/day, ingress_bytes: 10TB/day, requests: [100000000/min, 10000000000/day], names: 100/day, connections: 100"), func(r *rig) {
		j, err := audit.OpenJournal(b.TempDir(), audit.Options{Plane: "egress"})
		must(b, err)
		b.Cleanup(func() { j.Close() })
		m, err := budget.OpenMeter(b.TempDir(), nil)
		must(b, err)
		b.Cleanup(func() { m.Close() })
		must(b, m.Keep(map[string]string{"dev": "a-00000000000000de"}))
		counts := metrics.NewProxy()
		r.cfg.Recorder, r.cfg.Judged, r.cfg.Meter = counts.Recorder(metrics.Egress, j), counts.Judged, m
	})
	r.script(apiHost, apiAddr, 443, answer1KB)
	ask1KB(b, r.tunnel(r.listen(netplan.Explicit), apiHost))
}

// BenchmarkFloor1KB is the same with a relay between that only ends TLS on both
// sides: what no proxy can do without.
func BenchmarkFloor1KB(b *testing.B) {
	r := newRig(b, basic)
	r.script(apiHost, apiAddr, 443, answer1KB)
	cert, err := r.cfg.Minter.Certificate(apiHost)
	must(b, err)
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{*cert}, DynamicRecordSizingDisabled: true})
	must(b, err)
	defer ln.Close()
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		up, err := tls.Dial("tcp", r.net.servers[netip.MustParseAddrPort(apiAddr+":443")], &tls.Config{RootCAs: r.cfg.Roots, ServerName: apiHost, DynamicRecordSizingDisabled: true})
		if err != nil {
			return
		}
		buf := make([]byte, 4096)
		for { // one goroutine: a request, a response
			for _, leg := range [][2]net.Conn{{c, up}, {up, c}} {
				n, err := leg[0].Read(buf)
				if err != nil {
					return
				}
				leg[1].Write(buf[:n])
			}
		}
	}()
	conn := tls.Client(r.dial(ln.Addr().String()), &tls.Config{RootCAs: r.minterCA, ServerName: apiHost})
	must(b, conn.Handshake())
	ask1KB(b, conn)
}

func ask1KB(b *testing.B, conn net.Conn) {
	b.Helper()
	conn.SetDeadline(time.Time{})
	br := bufio.NewReader(conn)
	request := []byte("GET /v1/things/12345?limit=2 HTTP/1.1\r\nHost: api.example.com\r\nUser-Agent: bench/1.0\r\nAccept: */*\r\nAuthorization: Bearer abcdefghijklmnopqrstuvwxyz\r\n\r\n")
	b.ReportAllocs()
	before := cpuTime()
	defer func() {
		b.ReportMetric(float64((cpuTime()-before).Microseconds())/float64(b.N), "cpu-µs/op")
	}()
	for b.Loop() {
		if _, err := conn.Write(request); err != nil {
			b.Fatal(err)
		}
		if err := skipResponse(br); err != nil {
			b.Fatal(err)
		}
	}
}

// cpuTime is what the whole process has used, user and system.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func answer1KB(c net.Conn, br *bufio.Reader) {
	answer := append([]byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nDate: Mon, 30 Nov 2026 10:00:00 GMT\r\nContent-Length: 1024\r\n\r\n"), bytes.Repeat([]byte{'x'}, 1024)...)
	for {
		if err := skipLines(br, nil); err != nil {
			return
		}
		if _, err := c.Write(answer); err != nil {
			return
		}
	}
}

func skipLines(br *bufio.Reader, see func(line []byte)) error {
	for {
		line, err := br.ReadSlice('\n')
		if err != nil {
			return err
		}
		if len(line) == 2 {
			return nil
		}
		if see != nil {
			see(line)
		}
	}
}

func skipResponse(br *bufio.Reader) error {
	n := 0
	err := skipLines(br, func(line []byte) {
		if v, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			n, _ = strconv.Atoi(string(bytes.TrimSpace(v)))
		}
	})
	if err != nil {
		return err
	}
	if n != 1024 {
		return io.ErrUnexpectedEOF
	}
	_, err = br.Discard(n)
	return err
}
