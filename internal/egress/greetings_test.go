// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"testing"

	"bawn/internal/codes"
	"bawn/internal/netplan"
	"bawn/internal/tlshello"
)

// greetsTwice starts a TLS server that has every client greet a second time:
// clients send no share of this group at first.
func (r *rig) greetsTwice() {
	r.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(r.t, err)
	r.t.Cleanup(func() { ln.Close() })
	r.net.add(apiHost, apiAddr)
	r.net.servers[netip.MustParseAddrPort(apiAddr+":443")] = ln.Addr().String()
	conf := &tls.Config{
		GetCertificate:   func(h *tls.ClientHelloInfo) (*tls.Certificate, error) { return r.serverCA.Certificate(apiHost) },
		CurvePreferences: []tls.CurveID{tls.CurveP521}, MinVersion: tls.VersionTLS13,
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				secure := tls.Server(c, conf)
				_, _ = io.Copy(secure, secure)
			}()
		}
	}()
}

// A greeter is a client's connection whose second ClientHello a test changes.
type greeter struct {
	net.Conn
	change func(second []byte) []byte
	writes int
}

func (g *greeter) Write(p []byte) (int, error) {
	if p[0] != 22 {
		return g.Conn.Write(p) // a record of middlebox compatibility
	}
	out := bytes.Clone(p)
	if g.writes++; g.writes == 2 {
		out = g.change(out)
	}
	if _, err := g.Conn.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

func clientOfTwo(r *rig, c net.Conn) *tls.Conn {
	return tls.Client(c, &tls.Config{
		RootCAs: r.cfg.Roots, ServerName: apiHost,
		CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP521},
	})
}

// TestSpliceJudgesASecondGreeting: with a HelloRetryRequest the client greets
// again, and the second name must be the first.
func TestSpliceJudgesASecondGreeting(t *testing.T) {
	same := func(b []byte) []byte { return b }
	for name, c := range map[string]struct {
		change func([]byte) []byte
		code   codes.Code
	}{
		"the same":     {same, ""},
		"another name": {func(b []byte) []byte { return bytes.Replace(b, []byte(apiHost), []byte("evi.example.com"), 1) }, codes.SNIMismatch},
		"cut in records of one byte": {func(b []byte) []byte {
			var out []byte
			for _, octet := range b[5:] {
				out = append(out, 22, 3, 3, 0, 1, octet)
			}
			return out
		}, ""},
		"no greeting": {func(b []byte) []byte { b[5] = 16; return b }, codes.ProtocolError},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, splices)
			r.greetsTwice()
			under := &greeter{Conn: r.connect(r.listen(netplan.Explicit), apiHost+":443"), change: c.change}
			secure := clientOfTwo(r, under)
			_, err := io.WriteString(secure, "hello")
			if err == nil {
				_, err = io.ReadFull(secure, make([]byte, 5))
			}
			if (err == nil) != (c.code == "") {
				t.Errorf("%v, want code %q", err, c.code)
			}
			if under.writes < 2 {
				t.Fatal("the client greeted once only")
			}
			under.Close()
			if o := r.journal.lastOutcome(t, 1); o.Code != c.code || (c.code != "" && o.Cut != "policy") {
				t.Errorf("outcome %+v, want code %q", o, c.code)
			}
		})
	}
}

// TestSpliceWaitsForNoAnswer: a client that does not wait for the server's
// answer gains nothing: its second greeting is judged all the same.
func TestSpliceWaitsForNoAnswer(t *testing.T) {
	r := newRig(t, splices)
	r.greetsTwice()
	first := greetingFor(t, apiHost)
	c := r.connect(r.listen(netplan.Explicit), apiHost+":443")
	_, err := c.Write(slices.Concat(first, greetingFor(t, "evil.example.com")))
	must(t, err)
	if _, err := io.ReadAll(c); err == nil {
		t.Error("an orderly end, want a reset")
	}
	if o := r.journal.lastOutcome(t, 1); o.Code != codes.SNIMismatch {
		t.Errorf("outcome %+v", o)
	}
	if sent := r.journal.lastOutcome(t, 1).BytesUp; sent != int64(len(first)) {
		t.Errorf("%d bytes went up, want the %d of the first greeting", sent, len(first))
	}
}

// greetingFor is the first flight of a real client.
func greetingFor(t *testing.T, name string) []byte {
	t.Helper()
	near, far := net.Pipe()
	defer near.Close()
	go func() { _ = tls.Client(far, &tls.Config{ServerName: name}).Handshake() }()
	hello, raw, err := tlshello.Read(near)
	if err != nil || hello.ServerName != name {
		t.Fatal(errors.Join(err, errors.New(hello.ServerName)))
	}
	return raw
}
