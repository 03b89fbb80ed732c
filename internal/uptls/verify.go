// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package uptls

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"bawn/internal/codes"
)

// Verify decides whether the chain that a server sent, its own certificate
// first, shows that it is host, and until when. The error is an [*Error].
func (t *Trust) Verify(sent []*x509.Certificate, host string) (until time.Time, err error) {
	if len(sent) == 0 {
		return time.Time{}, &Error{Code: codes.UpstreamTLSInvalid, Detail: "the server sent no certificate"}
	}
	now := t.now()
	opts := x509.VerifyOptions{
		DNSName: host, Roots: t.roots, Intermediates: x509.NewCertPool(), CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, cert := range sent[1:] {
		opts.Intermediates.AddCert(cert)
	}
	chains, err := sent[0].Verify(opts)
	if err != nil {
		return time.Time{}, refused(sent, err, now)
	}
	weak := ""
	for _, chain := range chains {
		if w := weakness(chain); w != "" {
			weak = w
		} else if end := endOf(chain); end.After(until) {
			until = end
		}
	}
	if until.IsZero() {
		return time.Time{}, &Error{Code: codes.UpstreamTLSWeak, Detail: weak}
	}
	return until, nil
}

// endOf is the first moment at which some certificate of the chain has expired.
func endOf(chain []*x509.Certificate) time.Time {
	end := chain[0].NotAfter
	for _, cert := range chain[1:] {
		if cert.NotAfter.Before(end) {
			end = cert.NotAfter
		}
	}
	return end.Add(time.Nanosecond) // NotAfter itself is still within
}

// The least sizes of keys, in bits.
const (
	minRSA   = 2048
	minCurve = 256
)

// weakness says what of a chain, its root last, is too weak to be believed; or
// nothing. Nobody relies on the signature of a root.
func weakness(chain []*x509.Certificate) string {
	for i, cert := range chain {
		if why := weakKey(cert); why != "" {
			return fmt.Sprintf("the certificate of %s has %s", cert.Subject, why)
		}
		if i < len(chain)-1 && weakSignature(cert) {
			return fmt.Sprintf("the certificate of %s is signed by %s", cert.Subject, cert.SignatureAlgorithm)
		}
	}
	return ""
}

func weakKey(cert *x509.Certificate) string {
	switch key := cert.PublicKey.(type) {
	case *rsa.PublicKey:
		if n := key.N.BitLen(); n < minRSA {
			return fmt.Sprintf("an RSA key of %d bits", n)
		}
	case *ecdsa.PublicKey:
		if n := key.Curve.Params().BitSize; n < minCurve {
			return fmt.Sprintf("a key on a curve of %d bits", n)
		}
	case ed25519.PublicKey:
	default:
		return fmt.Sprintf("a key of kind %s", cert.PublicKeyAlgorithm)
	}
	return ""
}

func weakSignature(cert *x509.Certificate) bool {
	switch cert.SignatureAlgorithm {
	case x509.MD2WithRSA, x509.MD5WithRSA, x509.SHA1WithRSA, x509.ECDSAWithSHA1, x509.DSAWithSHA1, x509.DSAWithSHA256:
		return true
	}
	return false
}

// refused puts the verifier's error into a code.
func refused(sent []*x509.Certificate, err error, now time.Time) *Error {
	code := codes.UpstreamTLSInvalid
	if e, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		code = invalid(e, now)
	} else if _, ok := errors.AsType[x509.HostnameError](err); ok {
		code = codes.UpstreamTLSWrongHost
	} else if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return unknown(sent, err)
	}
	return &Error{Code: code, Detail: err.Error(), err: err}
}

func invalid(e x509.CertificateInvalidError, now time.Time) codes.Code {
	switch e.Reason {
	case x509.Expired:
		if e.Cert != nil && now.Before(e.Cert.NotBefore) {
			return codes.UpstreamTLSNotYetValid
		}
		return codes.UpstreamTLSExpired
	case x509.CANotAuthorizedForThisName, x509.TooManyConstraints, x509.UnconstrainedName, x509.NameConstraintsWithoutSANs:
		return codes.UpstreamTLSNameConstrained
	}
	return codes.UpstreamTLSInvalid
}

// unknown says more of a chain that leads to no root. The verifier does not
// follow a weak signature, and then knows of no issuer.
func unknown(sent []*x509.Certificate, err error) *Error {
	leaf := sent[0]
	if bytes.Equal(leaf.RawIssuer, leaf.RawSubject) && len(sent) == 1 {
		return &Error{Code: codes.UpstreamTLSSelfSigned, Detail: err.Error(), err: err}
	}
	for _, cert := range sent {
		root := bytes.Equal(cert.RawIssuer, cert.RawSubject)
		switch why := weakKey(cert); {
		case why != "":
			return &Error{Code: codes.UpstreamTLSWeak, Detail: fmt.Sprintf("the certificate of %s has %s", cert.Subject, why), err: err}
		case weakSignature(cert) && !root:
			return &Error{Code: codes.UpstreamTLSWeak, Detail: fmt.Sprintf("the certificate of %s is signed by %s", cert.Subject, cert.SignatureAlgorithm), err: err}
		}
	}
	return &Error{Code: codes.UpstreamTLSUntrusted, Detail: err.Error(), err: err}
}
