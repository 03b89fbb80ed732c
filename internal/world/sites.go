// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// An Echo is what the API host says about a request that it has no page for.
type Echo struct {
	Method    string              `json:"method"`
	Target    string              `json:"target"`
	Host      string              `json:"host"`
	Proto     string              `json:"proto"`
	Headers   map[string][]string `json:"headers"`
	BodyBytes int64               `json:"body_bytes"`
	SHA256    string              `json:"sha256"`
}

// Pattern returns n bytes that no compression shrinks, the same at each call:
// the content of /download?bytes=n and a body for /upload.
func Pattern(n int64) io.Reader {
	return io.LimitReader(rand.NewChaCha8([32]byte([]byte("the world's endless pattern, v.1"))), n)
}

// gates holds handlers back until a test lets them go on, so that no test has
// to wait for a time.
type gates struct {
	mu   sync.Mutex
	open map[string]chan struct{}
}

func (g *gates) channel(name string) chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open == nil {
		g.open = map[string]chan struct{}{}
	}
	if g.open[name] == nil {
		g.open[name] = make(chan struct{})
	}
	return g.open[name]
}

func (g *gates) release(name string) {
	c := g.channel(name)
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-c:
	default:
		close(c)
	}
}

// opened waits until a gate is open, 15 seconds at most.
func (g *gates) opened(name string) error {
	select {
	case <-g.channel(name):
		return nil
	case <-time.After(15 * time.Second):
		return fmt.Errorf("gate %s did not open in 15 s", name)
	}
}

// wait blocks until the gate that the request names is open, if it names one.
func (g *gates) wait(r *http.Request) {
	name := r.URL.Query().Get("gate")
	if name == "" {
		return
	}
	select {
	case <-g.channel(name):
	case <-r.Context().Done():
	}
}

// apiPages are the pages of the API host.
func apiPages(g *gates) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", echo)
	streamPages(mux, g)
	mux.HandleFunc("/download", download)
	mux.HandleFunc("/upload", echo)
	mux.HandleFunc("/gate", func(w http.ResponseWriter, r *http.Request) { g.wait(r); echo(w, r) })
	mux.HandleFunc("/redirect", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", r.URL.Query().Get("to"))
		w.WriteHeader(http.StatusFound)
	})
	mux.HandleFunc("/status", func(w http.ResponseWriter, r *http.Request) {
		code, err := strconv.Atoi(r.URL.Query().Get("code"))
		if err != nil || code < 200 || code > 599 {
			code = http.StatusBadRequest
		}
		w.WriteHeader(code)
	})
	return mux
}

// echo answers with what it got; the body is counted and hashed, not kept.
func echo(w http.ResponseWriter, r *http.Request) {
	sum := sha256.New()
	n, err := io.Copy(sum, r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(Echo{
		Method: r.Method, Target: r.RequestURI, Host: r.Host, Proto: r.Proto, Headers: r.Header,
		BodyBytes: n, SHA256: hex.EncodeToString(sum.Sum(nil)),
	})
}

// download sends ?bytes=N of the pattern, with a length, or with ?chunked=1 without.
func download(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.ParseInt(r.URL.Query().Get("bytes"), 10, 64)
	if err != nil || n < 0 || n > 1<<31 {
		http.Error(w, "bytes: not a number below 2 GiB", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if r.URL.Query().Get("chunked") == "" {
		w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	}
	_, _ = io.Copy(w, Pattern(n))
}

// byHost chooses the pages by the Host header.
type byHost struct {
	pages map[string]http.Handler
	other http.Handler
}

func (b byHost) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	if h := b.pages[strings.ToLower(host)]; h != nil {
		h.ServeHTTP(w, r)
		return
	}
	b.other.ServeHTTP(w, r)
}
