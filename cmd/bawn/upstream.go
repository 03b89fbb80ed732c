// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/x509"
	"fmt"
	"os"

	"bawn/internal/apitype"
	"bawn/internal/config"
	"bawn/internal/dnsclient"
	"bawn/internal/egress"
	"bawn/internal/parent"
	"bawn/internal/uptls"
)

// upstreamRoots are the system's roots, unless the operator wants none of them,
// and those that the operator added.
func upstreamRoots(cfg config.Config) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if cfg.SystemRoots {
		var err error
		if pool, err = x509.SystemCertPool(); err != nil {
			return nil, fmt.Errorf("reading the system's roots: %w", err)
		}
	}
	if cfg.UpstreamRoots == "" {
		return pool, nil
	}
	pem, err := os.ReadFile(cfg.UpstreamRoots)
	if err != nil {
		return nil, fmt.Errorf("reading upstream_roots: %w", err)
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("reading upstream_roots %s: no certificate in it", cfg.UpstreamRoots)
	}
	return pool, nil
}

// newParent returns the parent proxy of the configuration, nil if there is none.
func (p *proxy) newParent(cfg config.Config, names *dnsclient.Client, roots *x509.CertPool) *parent.Proxy {
	c, ok := cfg.Parent()
	if !ok {
		return nil
	}
	pc := parent.Config{
		Host: c.Host, Addr: c.Addr, Port: c.Port, Addresses: c.Addresses, Bypass: c.Bypass,
		Username: cfg.ParentProxy.Username, Password: p.handed.ParentPassword,
		Resolver: names, Dialer: egress.NetDialer{}, Vet: p.own.vet,
	}
	if c.TLS {
		if p.handed.ParentCA != nil {
			roots = x509.NewCertPool()
			roots.AppendCertsFromPEM(p.handed.ParentCA) // there is one, or bawn up had not started
		}
		pc.TLS = uptls.New(roots, nil)
	}
	return parent.New(pc)
}

// watchParent keeps up with how the parent proxy does, where there is one.
func (p *proxy) watchParent(ctx context.Context) error {
	if p.parent == nil {
		<-ctx.Done()
		return nil
	}
	return p.parent.Watch(ctx, p.log)
}

func (p *proxy) parentHealth() apitype.ParentHealth {
	h := p.parent.Health()
	return apitype.ParentHealth{At: h.At, Error: h.Err}
}
