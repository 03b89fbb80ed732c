// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package uptls_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"bawn/internal/codes"
	"bawn/internal/roottest"
	"bawn/internal/uptls"
)

// serve runs a TLS server of Go until the test ends. Each connection is greeted
// with "hello" and read to its end.
func serve(t testing.TB, cfg *tls.Config) string {
	return serveWith(t, cfg, func(c *tls.Conn) {
		if _, err := c.Write([]byte("hello")); err == nil {
			io.Copy(io.Discard, c) //nolint:errcheck // until the client goes
		}
	})
}

func serveWith(t testing.TB, cfg *tls.Config, do func(*tls.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				do(tls.Server(c, cfg))
			}()
		}
	}()
	return ln.Addr().String()
}

// openssl runs a server of another TLS library.
func openssl(t testing.TB, c tls.Certificate, args ...string) string {
	addr, _ := opensslWithInput(t, c, args...)
	return addr
}

func opensslWithInput(t testing.TB, c tls.Certificate, args ...string) (addr string, in io.Writer) {
	t.Helper()
	cert, chain, key := files(t, c)
	path, err := exec.LookPath("openssl")
	if err != nil {
		roottest.Skip(t, "needs openssl")
	}
	args = append([]string{"s_server", "-accept", "127.0.0.1:0", "-cert", cert, "-key", key}, args...)
	if chain != "" {
		args = append(args, "-cert_chain", chain)
	}
	cmd := exec.Command(path, args...)
	cmd.Stderr = t.Output()
	stdin, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { stdin.Close(); cmd.Process.Kill(); cmd.Wait() })
	for s := bufio.NewScanner(out); s.Scan(); {
		if addr, ok := strings.CutPrefix(s.Text(), "ACCEPT "); ok {
			return addr, stdin
		}
	}
	t.Fatal("openssl does not listen")
	return "", nil
}

// unknownName is a server that knows another name only.
func unknownName(t *testing.T) string {
	return serve(t, &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, nil }})
}

// noTLS is a server that speaks something else.
func noTLS(t *testing.T) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { ln.Close() })
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		c.Write([]byte("220 mail.example.com ESMTP\r\n"))
		c.Read(make([]byte, 4096))
	}()
	return ln.Addr().String()
}

// connect makes one connection as the proxy does.
func connect(t testing.TB, c *uptls.Client, addr string, u uptls.Use) (*uptls.Secured, error) {
	t.Helper()
	raw, err := net.Dial("tcp", addr)
	must(t, err)
	t.Cleanup(func() { raw.Close() })
	must(t, raw.SetDeadline(time.Now().Add(20*time.Second)))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if u.Host == "" {
		u.Host = host
	}
	return c.Handshake(ctx, raw, u)
}

// TestACodeForEachKindOfBadServer connects to a real server of each kind.
func TestACodeForEachKindOfBadServer(t *testing.T) {
	root := newAuthority(t, "root", nil, nil)
	middle := newAuthority(t, "middle", root, nil)
	stranger := newAuthority(t, "stranger", nil, nil)
	old := newAuthority(t, "old", root, nil, valid(-2*time.Hour, -time.Hour))
	young := newAuthority(t, "young", root, nil, valid(time.Hour, 2*time.Hour))
	elsewhere := newAuthority(t, "elsewhere", root, nil, func(c *x509.Certificate) {
		c.PermittedDNSDomainsCritical, c.PermittedDNSDomains = true, []string{"example.org"}
	})
	notHere := newAuthority(t, "not here", root, nil, func(c *x509.Certificate) { c.ExcludedDNSDomains = []string{"example.com"} })
	short := newAuthority(t, "short", root, newRSA(t, 1024))
	careless := newAuthority(t, "careless", root, nil, sha1)
	plain := newAuthority(t, "plain", root, nil, func(c *x509.Certificate) { c.IsCA, c.KeyUsage = false, x509.KeyUsageDigitalSignature })
	shortRoot := newAuthority(t, "short root", nil, newRSA(t, 1024))
	curve, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	must(t, err)
	pinned := selfSigned(t)
	pinnedPool := x509.NewCertPool()
	pinnedPool.AddCert(pinned.Leaf)
	good := middle.leaf(nil)
	goodRSA := middle.leaf(newRSA(t, 2048))

	bad := func(c tls.Certificate) func(*testing.T) string {
		return func(t *testing.T) string { return serve(t, &tls.Config{Certificates: []tls.Certificate{c}}) }
	}
	ssl := func(c tls.Certificate, args ...string) func(*testing.T) string {
		return func(t *testing.T) string { return openssl(t, c, args...) }
	}
	noChain := middle.leaf(nil)
	noChain.Certificate = noChain.Certificate[:1]
	withRoot := stranger.leaf(nil)
	withRoot.Certificate = append(withRoot.Certificate, stranger.cert.Raw)

	for name, row := range map[string]struct {
		server func(*testing.T) string
		roots  *x509.CertPool // nil: root's
		want   codes.Code
	}{
		"expired":                       {bad(middle.leaf(nil, valid(-2*time.Hour, -time.Hour))), nil, codes.UpstreamTLSExpired},
		"expired issuer":                {bad(old.leaf(nil)), nil, codes.UpstreamTLSExpired},
		"not yet valid":                 {bad(middle.leaf(nil, valid(time.Hour, 2*time.Hour))), nil, codes.UpstreamTLSNotYetValid},
		"not yet valid issuer":          {bad(young.leaf(nil)), nil, codes.UpstreamTLSNotYetValid},
		"self-signed":                   {bad(selfSigned(t)), nil, codes.UpstreamTLSSelfSigned},
		"another name":                  {bad(middle.leaf(nil, names("www.example.com"))), nil, codes.UpstreamTLSWrongHost},
		"a wildcard one label too high": {bad(middle.leaf(nil, names("*.com"))), nil, codes.UpstreamTLSWrongHost},
		"a name in the subject only":    {bad(middle.leaf(nil, names())), nil, codes.UpstreamTLSWrongHost},
		"a server without the name":     {unknownName, nil, codes.UpstreamTLSWrongHost},
		"another root":                  {bad(stranger.leaf(nil)), nil, codes.UpstreamTLSUntrusted},
		"another root, sent along":      {bad(withRoot), nil, codes.UpstreamTLSUntrusted},
		"the chain is not sent":         {bad(noChain), nil, codes.UpstreamTLSUntrusted},
		"issuer for other names only":   {bad(elsewhere.leaf(nil)), nil, codes.UpstreamTLSNameConstrained},
		"issuer not for the name":       {bad(notHere.leaf(nil)), nil, codes.UpstreamTLSNameConstrained},
		"RSA of 1024 bits":              {bad(middle.leaf(newRSA(t, 1024))), nil, codes.UpstreamTLSWeak},
		"issuer with RSA of 1024 bits":  {bad(short.leaf(nil)), nil, codes.UpstreamTLSWeak},
		"root with RSA of 1024 bits":    {bad(shortRoot.leaf(nil)), shortRoot.pool(), codes.UpstreamTLSWeak},
		"a curve of 224 bits":           {ssl(middle.leaf(curve)), nil, codes.UpstreamTLSWeak},
		"signed with SHA-1":             {bad(middle.leaf(nil, sha1)), nil, codes.UpstreamTLSWeak},
		"issuer signed with SHA-1":      {bad(careless.leaf(nil)), nil, codes.UpstreamTLSWeak},
		"TLS 1.1 at most": {func(t *testing.T) string {
			return serve(t, &tls.Config{Certificates: []tls.Certificate{good}, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11})
		}, nil, codes.UpstreamTLSWeak},
		"TLS 1.1 at most, of openssl":     {ssl(good, "-tls1_1", "-cipher", "ALL@SECLEVEL=0"), nil, codes.UpstreamTLSWeak},
		"no AEAD":                         {ssl(goodRSA, "-tls1_2", "-cipher", "ECDHE-RSA-AES128-SHA"), nil, codes.UpstreamTLSWeak},
		"no forward secrecy":              {ssl(goodRSA, "-tls1_2", "-cipher", "AES128-GCM-SHA256"), nil, codes.UpstreamTLSWeak},
		"DHE only":                        {ssl(goodRSA, "-tls1_2", "-cipher", "DHE-RSA-AES128-GCM-SHA256"), nil, codes.UpstreamTLSWeak},
		"not for servers":                 {bad(middle.leaf(nil, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} })), nil, codes.UpstreamTLSInvalid},
		"signed by what is no authority":  {bad(plain.leaf(nil)), nil, codes.UpstreamTLSUntrusted},
		"no TLS at all":                   {noTLS, nil, codes.UpstreamTLSInvalid},
		"another protocol":                {ssl(good, "-alpn", "spdy/1"), nil, codes.UpstreamTLSInvalid},
		"wants a certificate, of TLS 1.2": {ssl(good, "-tls1_2", "-Verify", "1"), nil, codes.UpstreamTLSInvalid},
		"good":                            {bad(good), nil, ""},
		"good, without intermediate":      {bad(root.leaf(nil)), nil, ""},
		"good, RSA":                       {bad(goodRSA), nil, ""},
		"good, of openssl":                {ssl(good), nil, ""},
		"good, of openssl with TLS 1.2":   {ssl(goodRSA, "-tls1_2"), nil, ""},
		"good, self-signed and a root":    {bad(pinned), pinnedPool, ""},
	} {
		t.Run(name, func(t *testing.T) {
			roots := row.roots
			if roots == nil {
				roots = root.pool()
			}
			_, err := connect(t, uptls.New(roots, nil).Client(), row.server(t), uptls.Use{ALPN: []string{"http/1.1"}})
			var got codes.Code
			if e, ok := errors.AsType[*uptls.Error](err); ok {
				got = e.Code
			} else if err != nil {
				t.Fatalf("no code: %v", err)
			}
			if got != row.want {
				t.Errorf("code %q, want %q: %v", got, row.want, err)
			}
			t.Logf("%s: %v", got, err)
		})
	}
}
