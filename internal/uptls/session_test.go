// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package uptls_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"bawn/internal/codes"
	"bawn/internal/uptls"
)

// greeted reads the greeting, with which the ticket of a TLS 1.3 server comes.
func greeted(t testing.TB, s *uptls.Secured) {
	t.Helper()
	buf := make([]byte, len("hello"))
	if _, err := io.ReadFull(s, buf); err != nil || string(buf) != "hello" {
		t.Fatalf("read %q, %v", buf, err)
	}
}

func versions(t *testing.T, do func(t *testing.T, version uint16)) {
	for _, v := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(v), func(t *testing.T) { do(t, v) })
	}
}

// TestSessionsAreResumedWithinAScopeOnly connects again as the same lease with
// the same scope, and as another in each respect.
func TestSessionsAreResumedWithinAScopeOnly(t *testing.T) {
	versions(t, func(t *testing.T, version uint16) {
		root := newAuthority(t, "root", nil, nil)
		addr := serve(t, &tls.Config{
			Certificates: []tls.Certificate{root.leaf(nil, names(host, "b.example.com"))}, MaxVersion: version,
		})
		trust := uptls.New(root.pool(), nil)
		lease, other := trust.Client(), trust.Client()
		scope := uptls.Use{Scope: "rule-1 key-1 7"}
		first := func() {
			s, err := connect(t, lease, addr, scope)
			must(t, err)
			greeted(t, s)
		}
		for name, c := range map[string]struct {
			client *uptls.Client
			use    uptls.Use
			want   bool
		}{
			"the same":      {lease, scope, true},
			"another lease": {other, scope, false},
			"another scope": {lease, uptls.Use{Scope: "rule-1 key-2 7"}, false},
			"another host":  {lease, uptls.Use{Scope: scope.Scope, Host: "b.example.com"}, false},
		} {
			first()
			s, err := connect(t, c.client, addr, c.use)
			must(t, err)
			greeted(t, s)
			if s.Resumed != c.want {
				t.Errorf("%s: resumed %v, want %v", name, s.Resumed, c.want)
			}
			s.Close()
		}
	})
}

// TestAResumedSessionIsVerifiedAgain lets the certificate expire that a session
// began with. The server has another one by then.
func TestAResumedSessionIsVerifiedAgain(t *testing.T) {
	versions(t, func(t *testing.T, version uint16) {
		root := newAuthority(t, "root", nil, nil, valid(-time.Hour, 10*time.Hour))
		brief := root.leaf(nil, valid(-time.Hour, time.Hour))
		next := root.leaf(nil, valid(-time.Hour, 9*time.Hour))
		var renewed atomic.Bool
		addr := serve(t, &tls.Config{MaxVersion: version, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if renewed.Load() {
				return &next, nil
			}
			return &brief, nil
		}})
		var ahead atomic.Int64
		client := uptls.New(root.pool(), func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }).Client()
		try := func() (*uptls.Secured, error) {
			s, err := connect(t, client, addr, uptls.Use{})
			if err == nil {
				greeted(t, s)
			}
			return s, err
		}
		if _, err := try(); err != nil {
			t.Fatal(err)
		}
		if s, err := try(); err != nil || !s.Resumed {
			t.Fatalf("at once: %v", err)
		}
		ahead.Store(int64(2 * time.Hour))
		if e, ok := errors.AsType[*uptls.Error](second(try())); !ok || e.Code != codes.UpstreamTLSExpired {
			t.Errorf("with the old certificate: %v", e)
		}
		renewed.Store(true)
		if s, err := try(); err != nil || s.Resumed {
			t.Errorf("with the new certificate: %v", err)
		}
	})
}

func second(_ *uptls.Secured, err error) error { return err }

// TestTheNumberOfSessionsIsBounded connects for more scopes than are kept.
func TestTheNumberOfSessionsIsBounded(t *testing.T) {
	root := newAuthority(t, "root", nil, nil)
	addr := serve(t, &tls.Config{Certificates: []tls.Certificate{root.leaf(nil)}})
	client := uptls.New(root.pool(), nil).Client()
	resumed := func(scope string) bool {
		s, err := connect(t, client, addr, uptls.Use{Scope: scope})
		must(t, err)
		defer s.Close()
		greeted(t, s)
		return s.Resumed
	}
	resumed("first")
	for i := range 64 {
		resumed(fmt.Sprint(i))
	}
	if resumed("first") || !resumed("63") {
		t.Error("the oldest is still there, or the newest is not")
	}
}

// TestRenegotiationIsRefused has openssl ask for another handshake.
func TestRenegotiationIsRefused(t *testing.T) {
	root := newAuthority(t, "root", nil, nil)
	addr, in := opensslWithInput(t, root.leaf(nil), "-tls1_2")
	s, err := connect(t, uptls.New(root.pool(), nil).Client(), addr, uptls.Use{})
	must(t, err)
	io.WriteString(in, "r\n") // asks for a handshake anew (s_server(1))
	_, err = s.Read(make([]byte, 1))
	if err == nil || !strings.Contains(err.Error(), "no renegotiation") {
		t.Errorf("reading: %v", err)
	}
}

// asking is a server that asks for a certificate, and says in its first words
// whose it got.
func asking(t *testing.T, cfg *tls.Config) string {
	return serveWith(t, cfg, func(c *tls.Conn) {
		if c.Handshake() != nil {
			return
		}
		who := "nobody"
		if got := c.ConnectionState().PeerCertificates; len(got) > 0 {
			who = got[0].Subject.CommonName
		}
		c.Write([]byte(who))
		c.Read(make([]byte, 1)) //nolint:errcheck // until the client goes
	})
}

// TestI11ACertificateIsShownToTheVerifiedServerOnly: only to one that asks, only
// where the use has one, and never to a server that could not prove its name.
func TestI11ACertificateIsShownToTheVerifiedServerOnly(t *testing.T) {
	versions(t, func(t *testing.T, version uint16) {
		root, clients := newAuthority(t, "root", nil, nil), newAuthority(t, "clients", nil, nil)
		key := clients.leaf(nil, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} })
		cfg := func(ask tls.ClientAuthType, leaf tls.Certificate) *tls.Config {
			return &tls.Config{MaxVersion: version, Certificates: []tls.Certificate{leaf}, ClientAuth: ask, ClientCAs: clients.pool()}
		}
		trust := uptls.New(root.pool(), nil)
		good := root.leaf(nil)
		for name, c := range map[string]struct {
			server *tls.Config
			key    *tls.Certificate
			want   string
			shown  bool
		}{
			"asked, with a key":    {cfg(tls.VerifyClientCertIfGiven, good), &key, host, true},
			"asked, without a key": {cfg(tls.RequestClientCert, good), nil, "nobody", false},
			"not asked":            {cfg(tls.NoClientCert, good), &key, "nobody", false},
		} {
			s, err := connect(t, trust.Client(), asking(t, c.server), uptls.Use{Certificate: c.key})
			must(t, err)
			buf := make([]byte, 64)
			n, err := s.Read(buf)
			if err != nil || string(buf[:n]) != c.want || s.Presented != c.shown {
				t.Errorf("%s: the server saw %q (%v), presented %v", name, buf[:n], err, s.Presented)
			}
		}
		var seen atomic.Bool
		wrong := cfg(tls.RequireAnyClientCert, root.leaf(nil, names("www.example.com")))
		wrong.VerifyPeerCertificate = func([][]byte, [][]*x509.Certificate) error { seen.Store(true); return nil }
		_, err := connect(t, trust.Client(), asking(t, wrong), uptls.Use{Certificate: &key})
		if e, ok := errors.AsType[*uptls.Error](err); !ok || e.Code != codes.UpstreamTLSWrongHost || seen.Load() {
			t.Errorf("another host: %v; it saw the certificate: %v", err, seen.Load())
		}
	})
}

// TestAServerThatDoesNotTakeTheCertificate says so during the handshake, or
// with TLS 1.3 after it.
func TestAServerThatDoesNotTakeTheCertificate(t *testing.T) {
	versions(t, func(t *testing.T, version uint16) {
		root, clients, strange := newAuthority(t, "root", nil, nil), newAuthority(t, "clients", nil, nil), newAuthority(t, "strange", nil, nil)
		key := strange.leaf(nil, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} })
		addr := asking(t, &tls.Config{
			MaxVersion: version, Certificates: []tls.Certificate{root.leaf(nil)}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients.pool(),
		})
		refused := "the server refused the certificate that it was shown"
		if version == tls.VersionTLS13 {
			refused = "the server ended the connection"
		}
		for want, use := range map[string]uptls.Use{refused: {Certificate: &key}, "the server wants a certificate": {}} {
			s, err := connect(t, uptls.New(root.pool(), nil).Client(), addr, use)
			e, ok := errors.AsType[*uptls.Error](err)
			if err == nil {
				_, err = s.Read(make([]byte, 1))
				e, ok = uptls.Late(err)
			}
			if !ok || e.Code != codes.UpstreamTLSInvalid || !strings.Contains(e.Detail, want) {
				t.Errorf("want %q, got %v", want, err)
			}
		}
	})
}

// TestABrokenConnectionHasNoCode: nothing was learned of who is at its end.
func TestABrokenConnectionHasNoCode(t *testing.T) {
	root := newAuthority(t, "root", nil, nil)
	addr := serveWith(t, &tls.Config{}, func(c *tls.Conn) { c.NetConn().Close() })
	_, err := connect(t, uptls.New(root.pool(), nil).Client(), addr, uptls.Use{})
	if _, coded := errors.AsType[*uptls.Error](err); err == nil || coded {
		t.Errorf("error %v", err)
	}
}
