// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package ca

import (
	"container/list"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"
)

// CacheSize is how many leaves a [Minter] keeps; the least used goes first.
const CacheSize = 1024

// A Minter mints leaves. All have one key: to mint is then one signature, and
// an agent that sees many of them learns nothing from it.
type Minter struct {
	key *ecdsa.PrivateKey
	now func() time.Time

	mu     sync.Mutex
	issuer *Intermediate
	byName map[string]*list.Element // of *leaf
	order  list.List                // latest use first
	minted uint64
}

// A leaf is a certificate, or one that is being minted.
type leaf struct {
	name  string
	done  chan struct{} // closed when cert and err are set
	cert  *tls.Certificate
	err   error
	renew time.Time
}

// NewMinter returns a minter under issuer. now is the clock; nil is time.Now.
func NewMinter(issuer *Intermediate, now func() time.Time) (*Minter, error) {
	if now == nil {
		now = time.Now
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making leaf key: %w", err)
	}
	return &Minter{key: key, now: now, issuer: issuer, byName: make(map[string]*list.Element)}, nil
}

// Use makes issuer sign from now on. Leaves of the one before are forgotten.
func (m *Minter) Use(issuer *Intermediate) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.issuer = issuer
	clear(m.byName)
	m.order.Init()
}

// Minted returns how many leaves were minted.
func (m *Minter) Minted() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.minted
}

// Certificate returns a leaf for name, a canonical host name or an address
// without a zone, that is valid now, with the intermediate behind it. Calls for
// one name at one time mint once. It fails once the intermediate has ended. The
// result is shared: it must not be changed.
func (m *Minter) Certificate(name string) (*tls.Certificate, error) {
	now := m.now()
	m.mu.Lock()
	if e := m.byName[name]; e != nil {
		if l := e.Value.(*leaf); l.good(now) {
			m.order.MoveToFront(e)
			m.mu.Unlock()
			<-l.done
			return l.cert, l.err
		}
		m.drop(e)
	}
	l := &leaf{name: name, done: make(chan struct{})}
	e := m.order.PushFront(l)
	m.byName[name] = e
	for m.order.Len() > CacheSize {
		m.drop(m.order.Back())
	}
	issuer := m.issuer
	m.minted++
	m.mu.Unlock()

	l.cert, l.err = m.mint(issuer, name, now)
	if l.err == nil {
		l.renew = twoThirds(now, l.cert.Leaf.NotAfter)
	}
	close(l.done)
	if l.err != nil {
		m.mu.Lock()
		if m.byName[name] == e {
			m.drop(e)
		}
		m.mu.Unlock()
	}
	return l.cert, l.err
}

// good reports whether the leaf may be handed out: it is being minted, or it is
// neither due nor, by a clock that was set back, not valid yet.
func (l *leaf) good(now time.Time) bool {
	select {
	case <-l.done:
		return l.err == nil && now.Before(l.renew) && !now.Before(l.cert.Leaf.NotBefore)
	default:
		return true
	}
}

// drop forgets a leaf. mu is held.
func (m *Minter) drop(e *list.Element) {
	l := m.order.Remove(e).(*leaf)
	if m.byName[l.name] == e {
		delete(m.byName, l.name)
	}
}

func (m *Minter) mint(issuer *Intermediate, name string, now time.Time) (*tls.Certificate, error) {
	if now.Before(issuer.cert.NotBefore) || !now.Before(issuer.cert.NotAfter) {
		return nil, fmt.Errorf("minting a leaf for %s: the intermediate ended on %s and was not renewed",
			name, issuer.cert.NotAfter.UTC().Format(time.RFC3339))
	}
	template := &x509.Certificate{
		SerialNumber:          serial(),
		NotBefore:             later(now.Add(-backdate), issuer.cert.NotBefore),
		NotAfter:              earlier(now.Add(leafLife), issuer.cert.NotAfter),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	if err := setName(template, name); err != nil {
		return nil, fmt.Errorf("minting a leaf: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer.cert, &m.key.PublicKey, issuer.key)
	if err != nil {
		return nil, fmt.Errorf("minting a leaf for %s: %w", name, err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("minting a leaf for %s: %w", name, err)
	}
	return &tls.Certificate{
		Certificate: [][]byte{der, issuer.cert.Raw},
		PrivateKey:  m.key,
		Leaf:        parsed,
	}, nil
}

// setName puts the name where clients look. There is no common name: it holds
// 64 bytes at most, and nobody reads it any more.
func setName(template *x509.Certificate, name string) error {
	if addr, err := netip.ParseAddr(name); err == nil {
		if addr.Zone() != "" {
			return errors.New("an address with a zone")
		}
		template.IPAddresses = append(template.IPAddresses, addr.Unmap().AsSlice())
		return nil
	}
	if name == "" || len(name) > 253 {
		return errors.New("a host name has 1 to 253 bytes")
	}
	template.DNSNames = []string{name}
	return nil
}
