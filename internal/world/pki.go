// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package world

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
	"fmt"
	"math/big"
	"sync"
	"time"
)

// pki is the certificate authority of the world's internet.
type pki struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate

	mu     sync.Mutex
	leaves map[string]*tls.Certificate
}

// newPKI makes a fresh authority called name.
func newPKI(name string) (*pki, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making key of %s: %w", name, err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(48 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("signing %s: %w", name, err)
	}
	return loadPKI(der, key)
}

func loadPKI(der []byte, key *ecdsa.PrivateKey) (*pki, error) {
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading root: %w", err)
	}
	return &pki{key: key, cert: cert, leaves: map[string]*tls.Certificate{}}, nil
}

// marshal gives the authority to a child of this program.
func (p *pki) marshal() (cert, key []byte, err error) {
	key, err = x509.MarshalECPrivateKey(p.key)
	return p.cert.Raw, key, err
}

func unmarshalPKI(cert, key []byte) (*pki, error) {
	k, err := x509.ParseECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("reading root key: %w", err)
	}
	return loadPKI(cert, k)
}

// pem returns the certificate of the authority.
func (p *pki) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.cert.Raw})
}

// leaf returns a certificate for name, made once.
func (p *pki) leaf(name string) (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.leaves[name]; c != nil {
		return c, nil
	}
	c, err := p.issue(name, time.Now().Add(-24*time.Hour), time.Now().Add(24*time.Hour), p.cert, p.key)
	if err == nil {
		p.leaves[name] = c
	}
	return c, err
}

// expired returns a certificate for name that ended an hour ago.
func (p *pki) expired(name string) (*tls.Certificate, error) {
	return p.issue(name, time.Now().Add(-24*time.Hour), time.Now().Add(-time.Hour), p.cert, p.key)
}

// early returns a certificate for name that begins tomorrow.
func (p *pki) early(name string) (*tls.Certificate, error) {
	return p.issue(name, time.Now().Add(24*time.Hour), time.Now().Add(48*time.Hour), p.cert, p.key)
}

// confined returns a certificate for name by an issuer that may sign for other
// names only, and that issuer's.
func (p *pki) confined(name string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making key of an issuer: %w", err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "An issuer for example.org"},
		NotBefore: p.cert.NotBefore, NotAfter: p.cert.NotAfter, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		PermittedDNSDomainsCritical: true, PermittedDNSDomains: []string{"example.org"},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, p.cert, key.Public(), p.key)
	if err != nil {
		return nil, fmt.Errorf("signing an issuer: %w", err)
	}
	issuer, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading an issuer: %w", err)
	}
	leaf, err := p.issue(name, p.cert.NotBefore, p.cert.NotAfter, issuer, key)
	if err == nil {
		leaf.Certificate = append(leaf.Certificate, der)
	}
	return leaf, err
}

// short returns a certificate for name with a key that is too short.
func (p *pki) short(name string) (*tls.Certificate, error) {
	key, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		return nil, fmt.Errorf("making key for %s: %w", name, err)
	}
	return issueFor(key, name, p.cert.NotBefore, p.cert.NotAfter, p.cert, p.key)
}

// selfSigned returns a certificate for name that signs itself.
func (p *pki) selfSigned(name string) (*tls.Certificate, error) {
	return p.issue(name, time.Now().Add(-24*time.Hour), time.Now().Add(24*time.Hour), nil, nil)
}

// issue makes a key and a certificate; without a parent it signs itself.
func (p *pki) issue(name string, from, to time.Time, parent *x509.Certificate, by crypto.Signer) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making key for %s: %w", name, err)
	}
	return issueFor(key, name, from, to, parent, by)
}

func issueFor(key crypto.Signer, name string, from, to time.Time, parent *x509.Certificate, by crypto.Signer) (*tls.Certificate, error) {
	tmpl := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: from, NotAfter: to, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if parent == nil {
		parent, by = tmpl, key
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, key.Public(), by)
	if err != nil {
		return nil, fmt.Errorf("signing %s: %w", name, err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

func serial() *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err) // crypto/rand ends the process rather than fail
	}
	return n
}
