// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package ca

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // a name for a key, as RFC 5280 section 4.2.1.2 has it, not a signature
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

// Lifetimes. Each certificate is dated back, for clients whose clock lags, and
// lies inside the window of the one that signed it: some clients refuse a chain
// otherwise.
const (
	rootLife         = 10 * 365 * 24 * time.Hour
	intermediateLife = 7 * 24 * time.Hour // forward from the signing
	leafLife         = 6 * 24 * time.Hour // forward from the minting; with the backdating, 7 days in all
	backdate         = 24 * time.Hour
	rootBackdate     = 2 * backdate
)

// A Root signs intermediates and nothing else. Its key stays with admin.
type Root struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
	now  func() time.Time
}

// Names of the root's files in its directory; RootCertFile is the certificate.
const (
	rootKeyFile  = "ca.key"
	RootCertFile = "ca.crt"
)

// OpenRoot loads the root kept in dir and makes it on the first call. Both files
// are made exclusively, mode 0600, and are on the disk before OpenRoot returns.
// A key without its certificate gets a new one, which says the same: a crash on
// the first call may leave that. A certificate without its key is an error,
// never a reason to make a new root, since agents trust the old one. now is the
// clock; nil is time.Now.
func OpenRoot(dir string, now func() time.Time) (*Root, error) {
	if now == nil {
		now = time.Now
	}
	keyPath, certPath := filepath.Join(dir, rootKeyFile), filepath.Join(dir, RootCertFile)
	noKey, err := missing(keyPath)
	if err != nil {
		return nil, fmt.Errorf("opening CA root: %w", err)
	}
	noCert, err := missing(certPath)
	if err != nil {
		return nil, fmt.Errorf("opening CA root: %w", err)
	}
	if noKey && !noCert {
		return nil, fmt.Errorf("opening CA root: %s is there but its key %s is missing: restore the key, or remove the certificate for a new root", certPath, keyPath)
	}
	if noKey {
		if err := makeKey(keyPath); err != nil {
			return nil, fmt.Errorf("making CA root: %w", err)
		}
	}
	key, err := loadKey(keyPath)
	if err != nil {
		return nil, fmt.Errorf("opening CA root: %w", err)
	}
	if noCert {
		if err := makeCert(certPath, key, now()); err != nil {
			return nil, fmt.Errorf("making CA root: %w", err)
		}
	}
	return loadRoot(keyPath, certPath, key, now)
}

func missing(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return false, err
}

func loadKey(path string) (*ecdsa.PrivateKey, error) {
	der, err := readPEM(path, "PRIVATE KEY", true)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("%s: not a key on P-256", path)
	}
	return key, nil
}

func loadRoot(keyPath, certPath string, key *ecdsa.PrivateKey, now func() time.Time) (*Root, error) {
	der, err := readPEM(certPath, "CERTIFICATE", false)
	if err != nil {
		return nil, fmt.Errorf("opening CA root: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("opening CA root %s: %w", certPath, err)
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, fmt.Errorf("opening CA root: %s is not the key of %s", keyPath, certPath)
	}
	if !cert.IsCA || cert.MaxPathLen != 1 {
		return nil, fmt.Errorf("opening CA root %s: not a root that may sign one intermediate below it", certPath)
	}
	if t := now(); t.After(cert.NotAfter) {
		return nil, fmt.Errorf("opening CA root %s: expired on %s: remove it and %s for a new root",
			certPath, cert.NotAfter.UTC().Format(time.DateOnly), keyPath)
	}
	return &Root{cert: cert, key: key, pem: pemOf(der), now: now}, nil
}

// readPEM reads a file that holds exactly one block of the kind given. A secret
// one must not be readable by others.
func readPEM(path, kind string, secret bool) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if secret && info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s: mode %04o lets others read it: set 0600", path, info.Mode().Perm())
	}
	const maxFile = 64 << 10
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%s: larger than %d bytes", path, maxFile)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, rest := pem.Decode(raw)
	if block == nil || block.Type != kind || len(bytes.TrimSpace(rest)) > 0 {
		return nil, fmt.Errorf("%s: not one PEM block of type %s", path, kind)
	}
	return block.Bytes, nil
}

func makeKey(path string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return createExclusive(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

func makeCert(path string, key *ecdsa.PrivateKey, now time.Time) error {
	template := &x509.Certificate{
		SerialNumber: serial(),
		// The name differs from root to root, so that a client that has an
		// older one as well does not try the wrong key.
		Subject:               pkix.Name{CommonName: "Bawn egress root " + keyID(&key.PublicKey)[:8], Organization: []string{"Bawn"}},
		NotBefore:             now.Add(-rootBackdate).UTC().Truncate(time.Second),
		NotAfter:              now.Add(rootLife).UTC().Truncate(time.Second),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLen:            1,
		SubjectKeyId:          keyIDBytes(&key.PublicKey),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	return createExclusive(path, pemOf(der))
}

// Certificate returns the root's certificate in PEM, for trust stores.
func (r *Root) Certificate() []byte { return bytes.Clone(r.pem) }

// SignIntermediate signs the request of a proxy (DER, from [NewRequest]) and
// returns the chain in PEM: the intermediate and the root. Nothing of the
// request is taken over but the key and the common name.
func (r *Root) SignIntermediate(csr []byte) ([]byte, error) {
	req, err := x509.ParseCertificateRequest(csr)
	if err != nil {
		return nil, fmt.Errorf("signing intermediate: %w", err)
	}
	if err := req.CheckSignature(); err != nil {
		return nil, fmt.Errorf("signing intermediate: the request's own signature: %w", err)
	}
	key, ok := req.PublicKey.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, errors.New("signing intermediate: the key is not on P-256")
	}
	name := req.Subject.CommonName
	if name == "" || len(name) > 64 {
		return nil, errors.New("signing intermediate: the common name must have 1 to 64 bytes")
	}
	now := r.now()
	template := &x509.Certificate{
		SerialNumber:          serial(),
		Subject:               pkix.Name{CommonName: name, Organization: []string{"Bawn"}},
		NotBefore:             later(now.Add(-backdate), r.cert.NotBefore),
		NotAfter:              earlier(now.Add(intermediateLife), r.cert.NotAfter),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
		SubjectKeyId:          keyIDBytes(key),
	}
	if !template.NotBefore.Before(template.NotAfter) {
		return nil, errors.New("signing intermediate: the root is not valid now: check the clock")
	}
	der, err := x509.CreateCertificate(rand.Reader, template, r.cert, key, r.key)
	if err != nil {
		return nil, fmt.Errorf("signing intermediate: %w", err)
	}
	return append(pemOf(der), r.pem...), nil
}

func pemOf(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// serial returns 127 random bits: more than the 64 that RFC 5280's readers ask
// for, and positive in at most 20 octets.
func serial() *big.Int {
	b := make([]byte, 16)
	rand.Read(b)
	b[0] = b[0]&0x7f | 0x40 // never zero, always the same length
	return new(big.Int).SetBytes(b)
}

// keyIDBytes is the key identifier of RFC 5280 section 4.2.1.2, method 1.
func keyIDBytes(key *ecdsa.PublicKey) []byte {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		panic("ca: marshalling a P-256 key: " + err.Error()) // cannot be for keys that we made or parsed
	}
	var info struct {
		Algorithm pkix.AlgorithmIdentifier
		Key       asn1.BitString
	}
	if _, err := asn1.Unmarshal(der, &info); err != nil {
		panic("ca: reading back a P-256 key: " + err.Error())
	}
	sum := sha1.Sum(info.Key.Bytes) //nolint:gosec // see the import
	return sum[:]
}

func keyID(key *ecdsa.PublicKey) string { return fmt.Sprintf("%x", keyIDBytes(key)) }

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		a = b
	}
	return a.UTC().Truncate(time.Second)
}

func earlier(a, b time.Time) time.Time {
	if a.After(b) {
		a = b
	}
	return a.UTC().Truncate(time.Second)
}

// Validity returns the times between which the root is valid.
func (r *Root) Validity() (from, to time.Time) { return r.cert.NotBefore, r.cert.NotAfter }
