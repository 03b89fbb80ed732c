// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

// pki is the files of certificates that the parts of the bench share.
type pki struct {
	originRoot string // that peers verify the upstream by
	originPair string // certificate and key of the upstream
	peerCA     string // certificate and key that peers mint with
	peerRoot   string // its certificate, that clients trust
	peerPair   string // a leaf for the upstream's name under it, and its key
}

// makePKI makes them in a directory of the place.
func makePKI(at *place, dir string) (pki, error) {
	p := pki{
		originRoot: filepath.Join(dir, "origin-root.pem"), originPair: filepath.Join(dir, "origin.pem"),
		peerCA: filepath.Join(dir, "peer-ca.pem"), peerRoot: filepath.Join(dir, "peer-root.pem"),
		peerPair: filepath.Join(dir, "peer-leaf.pem"),
	}
	origin, err := newAuthority("Bench upstream root")
	if err != nil {
		return p, err
	}
	peer, err := newAuthority("Bench peer root")
	if err != nil {
		return p, err
	}
	originPair, err := origin.leaf()
	if err != nil {
		return p, err
	}
	peerPair, err := peer.leaf()
	if err != nil {
		return p, err
	}
	for path, content := range map[string][]byte{
		p.originRoot: origin.cert, p.originPair: originPair,
		p.peerCA: append(peer.cert, peer.key...), p.peerRoot: peer.cert, p.peerPair: peerPair,
	} {
		if err := os.WriteFile(at.outside(path), content, 0o644); err != nil { // keys of this run only
			return p, err
		}
	}
	return p, nil
}

// authority is a root that signs.
type authority struct {
	parsed    *x509.Certificate
	signer    *ecdsa.PrivateKey
	cert, key []byte // PEM
}

func newAuthority(name string) (authority, error) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, BasicConstraintsValid: true, IsCA: true,
	}
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return authority{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &signer.PublicKey, signer)
	if err != nil {
		return authority{}, err
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return authority{}, err
	}
	key, err := keyPEM(signer)
	return authority{parsed, signer, certPEM(der), key}, err
}

// leaf returns the chain for the upstream's name and its key, in PEM.
func (a authority) leaf() ([]byte, error) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: []string{originHost, originH2, spliceHost},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.parsed, &key.PublicKey, a.signer)
	if err != nil {
		return nil, err
	}
	private, err := keyPEM(key)
	return append(append(certPEM(der), a.cert...), private...), err
}

func certPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func keyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), err
}
