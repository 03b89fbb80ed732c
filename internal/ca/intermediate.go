// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package ca

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"time"
)

// A Request is the wish of a proxy for an intermediate. Its key stays in memory.
type Request struct {
	key *ecdsa.PrivateKey
	der []byte
}

// NewRequest makes a key and a request under the common name given, such as
// "Bawn egress intermediate".
func NewRequest(name string) (*Request, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making CA request: %w", err)
	}
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: name}}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		return nil, fmt.Errorf("making CA request: %w", err)
	}
	return &Request{key: key, der: der}, nil
}

// CSR returns the request in DER, for [Root.SignIntermediate].
func (r *Request) CSR() []byte { return bytes.Clone(r.der) }

// An Intermediate signs leaves for a few days.
type Intermediate struct {
	cert *x509.Certificate
	root *x509.Certificate
	key  *ecdsa.PrivateKey
	from time.Time // when the proxy got it
}

// Complete takes the chain that the root signed for r. now is when it came.
func (r *Request) Complete(chainPEM []byte, now time.Time) (*Intermediate, error) {
	certs, err := parseChain(chainPEM)
	if err != nil {
		return nil, fmt.Errorf("taking CA intermediate: %w", err)
	}
	cert, root := certs[0], certs[1]
	switch {
	case !r.key.PublicKey.Equal(cert.PublicKey):
		return nil, errors.New("taking CA intermediate: it is for another key")
	case !cert.IsCA || !cert.MaxPathLenZero || cert.MaxPathLen != 0:
		return nil, errors.New("taking CA intermediate: it may not sign leaves, or more than leaves")
	case now.Before(cert.NotBefore) || !now.Before(cert.NotAfter):
		return nil, fmt.Errorf("taking CA intermediate: not valid now: %s to %s", cert.NotBefore, cert.NotAfter)
	}
	if err := cert.CheckSignatureFrom(root); err != nil {
		return nil, fmt.Errorf("taking CA intermediate: %w", err)
	}
	return &Intermediate{cert: cert, root: root, key: r.key, from: now}, nil
}

func parseChain(chain []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for {
		var block *pem.Block
		if block, chain = pem.Decode(chain); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("a PEM block of type %q", block.Type)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		certs = append(certs, cert)
	}
	if len(certs) != 2 {
		return nil, fmt.Errorf("%d certificates, want the intermediate and the root", len(certs))
	}
	return certs, nil
}

// RenewAt returns when to ask for the next one: after two thirds of its time.
func (i *Intermediate) RenewAt() time.Time { return twoThirds(i.from, i.cert.NotAfter) }

// NotAfter returns when it ends; no leaf outlives it.
func (i *Intermediate) NotAfter() time.Time { return i.cert.NotAfter }

func twoThirds(from, to time.Time) time.Time { return from.Add(to.Sub(from) / 3 * 2) }
