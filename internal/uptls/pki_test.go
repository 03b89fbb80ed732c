// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package uptls_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// host is who the tests' servers should be.
const host = "api.example.com"

// An authority signs certificates, and is signed by its issuer.
type authority struct {
	t      testing.TB
	issuer *authority // nil: it signs itself
	cert   *x509.Certificate
	key    crypto.Signer
}

// A change makes a certificate something else than a good one.
type change func(*x509.Certificate)

func newAuthority(t testing.TB, name string, issuer *authority, key crypto.Signer, changes ...change) *authority {
	t.Helper()
	a := &authority{t: t, issuer: issuer, key: key}
	if key == nil {
		a.key = newKey(t)
	}
	tmpl := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.cert = issue(t, tmpl, a.key, issuer, changes)
	return a
}

func newKey(t testing.TB) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	return key
}

func newRSA(t testing.TB, bits int) crypto.Signer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, bits)
	must(t, err)
	return key
}

var serials int64

func issue(t testing.TB, tmpl *x509.Certificate, key crypto.Signer, issuer *authority, changes []change) *x509.Certificate {
	t.Helper()
	serials++
	tmpl.SerialNumber = big.NewInt(serials)
	tmpl.NotBefore, tmpl.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	for _, do := range changes {
		do(tmpl)
	}
	parent, signer := tmpl, key
	if issuer != nil {
		parent, signer = issuer.cert, issuer.key
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, key.Public(), signer)
	must(t, err)
	cert, err := x509.ParseCertificate(der)
	must(t, err)
	return cert
}

// leaf signs a certificate for host, and puts the chain up to the root, without
// it, behind it.
func (a *authority) leaf(key crypto.Signer, changes ...change) tls.Certificate {
	a.t.Helper()
	if key == nil {
		key = newKey(a.t)
	}
	tmpl := &x509.Certificate{
		Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	cert := issue(a.t, tmpl, key, a, changes)
	c := tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
	for i := a; i.issuer != nil; i = i.issuer {
		c.Certificate = append(c.Certificate, i.cert.Raw)
	}
	return c
}

// selfSigned is a certificate for host that nobody else signed.
func selfSigned(t testing.TB, changes ...change) tls.Certificate {
	t.Helper()
	key := newKey(t)
	tmpl := &x509.Certificate{Subject: pkix.Name{CommonName: host}, DNSNames: []string{host}}
	cert := issue(t, tmpl, key, nil, changes)
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// files writes certificate, chain and key for programs that read files.
func files(t testing.TB, c tls.Certificate) (cert, chain, key string) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, kind string, ders ...[]byte) string {
		var text []byte
		for _, der := range ders {
			text = append(text, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})...)
		}
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, text, 0o600))
		return path
	}
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	must(t, err)
	if len(c.Certificate) > 1 {
		chain = write("chain.pem", "CERTIFICATE", c.Certificate[1:]...)
	}
	return write("cert.pem", "CERTIFICATE", c.Certificate[0]), chain, write("key.pem", "PRIVATE KEY", der)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func names(list ...string) change {
	return func(c *x509.Certificate) { c.DNSNames = list }
}

// valid moves the time in which a certificate is valid.
func valid(from, to time.Duration) change {
	return func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(from), time.Now().Add(to)
	}
}

func sha1(c *x509.Certificate) { c.SignatureAlgorithm = x509.ECDSAWithSHA1 }
