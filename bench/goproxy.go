// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"sync"

	"github.com/elazarl/goproxy"
)

// goproxyMain is elazarl/goproxy with its own interception: one allowed host,
// certificates kept, upstream verified and kept open. Its defaults would open a
// new upstream connection for most requests here, which is not what is
// measured.
func goproxyMain(args []string) error {
	fs := flag.NewFlagSet("goproxy", flag.ContinueOnError)
	listen := fs.String("listen", "", "address to listen on")
	ca := fs.String("ca", "", "CA to mint with")
	roots := fs.String("roots", "", "roots of the upstream")
	if err := fs.Parse(args); err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(*ca, *ca)
	if err != nil {
		return err
	}
	pool, err := loadRoots(*roots)
	if err != nil {
		return err
	}
	p := goproxy.NewProxyHttpServer()
	p.Tr = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, MaxIdleConnsPerHost: 1024}
	p.CertStore = &keptCerts{certs: map[string]*tls.Certificate{}}
	mitm := &goproxy.ConnectAction{Action: goproxy.ConnectMitm, TLSConfig: goproxy.TLSConfigFromCA(&pair)}
	authority := net.JoinHostPort(originHost, originPort)
	p.OnRequest().HandleConnectFunc(func(host string, _ *goproxy.ProxyCtx) (*goproxy.ConnectAction, string) {
		if host != authority {
			return goproxy.RejectConnect, host
		}
		return mitm, host
	})
	p.OnRequest().DoFunc(func(r *http.Request, ctx *goproxy.ProxyCtx) (*http.Request, *http.Response) {
		if r.Method != http.MethodGet {
			return r, goproxy.NewResponse(r, goproxy.ContentTypeText, http.StatusForbidden, "refused")
		}
		return r, nil
	})
	ln, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	closeAtEnd(ln)
	fmt.Println("ready")
	if err := http.Serve(ln, p); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// keptCerts mints each name once.
type keptCerts struct {
	mu    sync.Mutex
	certs map[string]*tls.Certificate
}

// Fetch returns the certificate for a name.
func (k *keptCerts) Fetch(name string, mint func() (*tls.Certificate, error)) (*tls.Certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c := k.certs[name]; c != nil {
		return c, nil
	}
	c, err := mint()
	if err == nil {
		k.certs[name] = c
	}
	return c, err
}
