// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/elazarl/goproxy"
)

// goproxyMain is elazarl/goproxy with its own interception: three allowed hosts,
// of which one is not looked into, methods and paths judged, certificates kept,
// upstream verified and kept open, a line for each request. Its defaults would
// mint a certificate for each connection and open a new upstream connection for
// most requests here, which is not what is measured.
func goproxyMain(args []string) error {
	fs := flag.NewFlagSet("goproxy", flag.ContinueOnError)
	listen := fs.String("listen", "", "address to listen on")
	ca := fs.String("ca", "", "CA to mint with")
	roots := fs.String("roots", "", "roots of the upstream")
	file := fs.String("log", "", "file of the access log")
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
	out, err := os.OpenFile(*file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	p := newGoproxy(&pair, &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, MaxIdleConnsPerHost: 1024}, out)
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

func newGoproxy(pair *tls.Certificate, tr *http.Transport, out *os.File) *goproxy.ProxyHttpServer {
	p := goproxy.NewProxyHttpServer()
	p.Logger = log.New(io.Discard, "", 0) // warnings of each connection that ends
	p.Tr = tr
	p.CertStore = &keptCerts{certs: map[string]*tls.Certificate{}}
	mitm := &goproxy.ConnectAction{Action: goproxy.ConnectMitm, TLSConfig: goproxy.TLSConfigFromCA(pair)}
	p.OnRequest().HandleConnectFunc(func(host string, ctx *goproxy.ProxyCtx) (*goproxy.ConnectAction, string) {
		switch host {
		case net.JoinHostPort(originHost, originPort), net.JoinHostPort(originH2, originPort):
			return mitm, host
		case net.JoinHostPort(spliceHost, originPort):
			fmt.Fprintf(out, "%s 200 CONNECT %s\n", time.Now().UTC().Format(time.RFC3339Nano), host)
			return goproxy.OkConnect, host
		}
		return goproxy.RejectConnect, host
	})
	p.OnRequest().DoFunc(func(r *http.Request, ctx *goproxy.ProxyCtx) (*http.Request, *http.Response) {
		allowed := (r.Method == http.MethodGet || r.Method == http.MethodPost) && strings.HasPrefix(r.URL.Path, allowedPath)
		if !allowed {
			return r, goproxy.NewResponse(r, goproxy.ContentTypeText, http.StatusForbidden, "refused")
		}
		return r, nil
	})
	p.OnResponse().DoFunc(func(res *http.Response, ctx *goproxy.ProxyCtx) *http.Response {
		if res != nil {
			fmt.Fprintf(out, "%s %d %s %s\n", time.Now().UTC().Format(time.RFC3339Nano), res.StatusCode, ctx.Req.Method, ctx.Req.URL)
		}
		return res
	})
	return p
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
