// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package resolver_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/iotest"
	"time"

	"bawn/internal/codes"
	"bawn/internal/resolver"
	"bawn/internal/verdict"
)

// start serves one network on a port of 127.0.0.1 and checks that the server
// ends without an error when it is told to.
func start(t *testing.T, d *desk, network string, lim resolver.Limits) string {
	t.Helper()
	s := d.server(lim)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	src := resolver.Source{Identity: who}
	var addr string
	if network == "udp" {
		pc, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr = pc.LocalAddr().String()
		go func() { ended <- s.ServeUDP(ctx, pc, src) }()
	} else {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr = ln.Addr().String()
		go func() { ended <- s.ServeTCP(ctx, ln, src) }()
	}
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("serving %s: %v", network, err)
		}
	})
	return addr
}

func dial(t *testing.T, network, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	return conn
}

func framed(msgs ...[]byte) []byte {
	var b []byte
	for _, m := range msgs {
		b = binary.BigEndian.AppendUint16(b, uint16(len(m)))
		b = append(b, m...)
	}
	return b
}

func readFramed(t *testing.T, r io.Reader) reply {
	t.Helper()
	var size [2]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(r, b); err != nil {
		t.Fatal(err)
	}
	return read(t, b)
}

func TestServeUDP(t *testing.T) {
	d := newDesk(t)
	conn := dial(t, "udp", start(t, d, "udp", resolver.Limits{}))
	buf := make([]byte, 2000)
	for _, c := range []struct {
		msg  []byte
		want reply
	}{
		{query("oK.example.", typeA, 1), reply{noError, "198.18.1.1", "", "oK.example."}},
		{query("evil.example.", typeA, 1), reply{refused, "", string(codes.DNSNameNotAllowed), "evil.example."}},
		{query("ok.example.", typeHTTPS, 1), reply{noError, "", "", "ok.example."}},
	} {
		// What is no query has no reply and does not end the server.
		for _, noise := range [][]byte{{}, []byte("x"), bytes.Repeat([]byte{0xff}, 5000)} {
			if _, err := conn.Write(noise); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := conn.Write(c.msg); err != nil {
			t.Fatal(err)
		}
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		if got := read(t, buf[:n]); got != c.want {
			t.Errorf("%+v, want %+v", got, c.want)
		}
	}
	malformed := 0
	for _, r := range d.recorded() {
		if r.Code == codes.DNSMalformed {
			malformed++
		}
	}
	if malformed != 9 {
		t.Errorf("%d malformed messages on record, want 9", malformed)
	}
}

// TestEveryQueryOfASegmentIsJudged: an allowed query does not carry others past
// the judge, in one write or byte by byte.
func TestEveryQueryOfASegmentIsJudged(t *testing.T) {
	d := newDesk(t)
	addr := start(t, d, "tcp", resolver.Limits{})
	msg := framed(query("ok.example.", typeA, 1), query("evil.example.", typeA, 1), query("ok.example.", typeTXT, 1), query("a.wild.example.", typeA, 1))
	for name, r := range map[string]io.Reader{"one write": bytes.NewReader(msg), "byte by byte": iotest.OneByteReader(bytes.NewReader(msg))} {
		conn := dial(t, "tcp", addr)
		if _, err := io.Copy(writerOnly{conn}, r); err != nil {
			t.Fatal(err)
		}
		for _, want := range []reply{
			{noError, "198.18.1.1", "", "ok.example."},
			{refused, "", string(codes.DNSNameNotAllowed), "evil.example."},
			{refused, "", string(codes.DNSTypeDenied), "ok.example."},
			{noError, "198.18.1.1", "", "a.wild.example."},
		} {
			if got := readFramed(t, conn); got != want {
				t.Errorf("%s: %+v, want %+v", name, got, want)
			}
		}
	}
	if r := d.recorded(); len(r) != 8 {
		t.Errorf("%d records, want 8", len(r))
	}
}

// writerOnly keeps io.Copy from taking bytes together.
type writerOnly struct{ io.Writer }

func wantClosed(t *testing.T, conn net.Conn) {
	t.Helper()
	if n, err := io.Copy(io.Discard, conn); err == nil && n == 0 {
		return
	} else if n != 0 {
		t.Errorf("%d bytes instead of the end", n)
	} // a reset is an end as well
}

func TestTCPEndsOnWhatIsNoQuery(t *testing.T) {
	for name, msg := range map[string][]byte{
		"no query":    framed([]byte("x")),
		"empty":       framed(nil),
		"an answer":   framed(append([]byte{0, 77, 0x81, 0x80}, query("ok.example.", typeA, 1)[4:]...)),
		"65535 bytes": framed(make([]byte, 65535)),
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			conn := dial(t, "tcp", start(t, d, "tcp", resolver.Limits{}))
			_, _ = conn.Write(msg)
			wantClosed(t, conn)
			if r := d.recorded(); len(r) != 1 || r[0].Code != codes.DNSMalformed {
				t.Errorf("%+v", r)
			}
		})
	}
}

func TestTCPIsBounded(t *testing.T) {
	d := newDesk(t)
	addr := start(t, d, "tcp", resolver.Limits{Connections: 2})
	ask := framed(query("ok.example.", typeA, 1))
	var held []net.Conn
	for range 2 {
		conn := dial(t, "tcp", addr)
		_, _ = conn.Write(ask)
		readFramed(t, conn)
		held = append(held, conn)
	}
	over := dial(t, "tcp", addr)
	wantClosed(t, over)
	if r := d.recorded(); len(r) != 3 || r[2].Code != codes.ConcurrencyExceeded || r[2].Identity != who {
		t.Errorf("%+v", r)
	}
	held[0].Close()
	// A place that was given back is given again.
	for {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write(ask)
		var size [2]byte
		_, err = io.ReadFull(conn, size[:])
		conn.Close()
		if err == nil {
			break
		}
	}
}

func TestTCPSilenceEnds(t *testing.T) {
	d := newDesk(t)
	addr := start(t, d, "tcp", resolver.Limits{Idle: 50 * time.Millisecond})
	silent := dial(t, "tcp", addr)
	wantClosed(t, silent)
	half := dial(t, "tcp", addr)
	_, _ = half.Write([]byte{0})
	wantClosed(t, half)
}

// TestTCPLifeEnds: asking on and on keeps no connection open for ever.
func TestTCPLifeEnds(t *testing.T) {
	d := newDesk(t)
	conn := dial(t, "tcp", start(t, d, "tcp", resolver.Limits{Life: 200 * time.Millisecond, PerSecond: 1 << 30}))
	ask := framed(query("ok.example.", typeA, 1))
	go func() {
		for {
			if _, err := conn.Write(ask); err != nil {
				return
			}
		}
	}()
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("still open")
	}
}

// TestTCPHalfClose: who has asked all there is to ask and says so is still
// answered, and then the connection ends.
func TestTCPHalfClose(t *testing.T) {
	d := newDesk(t)
	conn := dial(t, "tcp", start(t, d, "tcp", resolver.Limits{}))
	var asked [][]byte
	for range 20 {
		asked = append(asked, query("ok.example.", typeA, 1), query("evil.example.", typeA, 1))
	}
	if _, err := conn.Write(framed(asked...)); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	for i := range asked {
		if got := readFramed(t, conn); (got.rcode == noError) != (i%2 == 0) {
			t.Errorf("answer %d: %+v", i, got)
		}
	}
	wantClosed(t, conn)
}

// TestQueriesAreRateLimited: beyond the rate queries are refused, with a record.
func TestQueriesAreRateLimited(t *testing.T) {
	d := newDesk(t)
	conn := dial(t, "tcp", start(t, d, "tcp", resolver.Limits{PerSecond: 3})) // the test's clock stands still
	for i := range 5 {
		_, _ = conn.Write(framed(query("ok.example.", typeA, 1)))
		got := readFramed(t, conn)
		if within := i < 3; (got.answer != "") != within || (!within && got.ede != string(codes.RateLimited)) {
			t.Errorf("query %d: %+v", i, got)
		}
	}
	records := d.recorded()
	if len(records) != 5 || records[4].Verdict != verdict.Deny || records[4].Code != codes.RateLimited {
		t.Errorf("%+v", records)
	}
}

// TestServeEndsWithItsListener: a listener that is closed under the server is
// the end of a lease, not a fault.
func TestServeEndsWithItsListener(t *testing.T) {
	d := newDesk(t)
	s := d.server(resolver.Limits{})
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 2)
	go func() { ended <- s.ServeUDP(t.Context(), pc, resolver.Source{}) }()
	go func() { ended <- s.ServeTCP(t.Context(), ln, resolver.Source{}) }()
	pc.Close()
	ln.Close()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestARealStubUnderstands: Go's own stub resolver, which asks for A and AAAA
// together, takes the answers as they are meant.
func TestARealStubUnderstands(t *testing.T) {
	d := newDesk(t)
	for _, network := range []string{"udp", "tcp"} {
		addr := start(t, d, network, resolver.Limits{})
		stub := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, network, addr)
		}}
		got, err := stub.LookupNetIP(t.Context(), "ip", "ok.example.")
		if err != nil || len(got) != 1 || got[0].Unmap().String() != "198.18.1.1" {
			t.Errorf("%s: %v, %v", network, got, err)
		}
		if got, err := stub.LookupNetIP(t.Context(), "ip", "evil.example."); err == nil {
			t.Errorf("%s: a refused name has %v", network, got)
		}
	}
}
