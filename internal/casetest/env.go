// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package casetest

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"bawn/internal/ca"
)

// An Env is what all cases of a run share: a throw-away root, under which the
// proxy mints what the client sees and the pretend upstream has its
// certificates.
type Env struct {
	minter *ca.Minter
	roots  *x509.CertPool
}

// NewEnv makes a root. Its key is on the disk while NewEnv runs and nowhere
// afterwards.
func NewEnv() (*Env, error) {
	dir, err := os.MkdirTemp("", "bawn-case-")
	if err != nil {
		return nil, fmt.Errorf("making a place for a throw-away root: %w", err)
	}
	defer os.RemoveAll(dir)
	root, err := ca.OpenRoot(dir, nil)
	if err != nil {
		return nil, fmt.Errorf("making a throw-away root: %w", err)
	}
	request, err := ca.NewRequest("Bawn case files")
	if err != nil {
		return nil, fmt.Errorf("making a throw-away intermediate: %w", err)
	}
	chain, err := root.SignIntermediate(request.CSR())
	if err != nil {
		return nil, fmt.Errorf("signing a throw-away intermediate: %w", err)
	}
	issuer, err := request.Complete(chain, time.Now())
	if err != nil {
		return nil, fmt.Errorf("taking a throw-away intermediate: %w", err)
	}
	minter, err := ca.NewMinter(issuer, nil)
	if err != nil {
		return nil, fmt.Errorf("making a minter: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(root.Certificate()) {
		return nil, errors.New("reading the throw-away root: no certificate")
	}
	return &Env{minter: minter, roots: roots}, nil
}

// upstreamCertificate is the certificate of every server of the internet.
func (e *Env) upstreamCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	name := hello.ServerName
	if name == "" {
		name = "no-name.invalid"
	}
	return e.minter.Certificate(name)
}

func newReader(b []byte) io.Reader { return bytes.NewReader(b) }
