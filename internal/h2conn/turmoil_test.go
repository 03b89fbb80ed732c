// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package h2conn_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"

	"golang.org/x/net/http2"

	"bawn/internal/h2conn"
	"bawn/internal/httpwire"
	"bawn/internal/roottest"
)

// TestTurmoil has many streams do everything at once, in windows that are too
// small for them, and give up wherever they like. What comes back whole must be
// what was sent, and in the end nothing may be left: no stream, and no octet of
// a window.
func TestTurmoil(t *testing.T) {
	for seed := range uint64(roottest.Count(4, 200)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { turmoil(t, rand.New(rand.NewPCG(seed, 0))) })
	}
}

func turmoil(t *testing.T, r *rand.Rand) {
	lim := h2conn.Limits{StreamWindow: 1 + r.IntN(40_000), ConnWindow: 65_535 + r.IntN(50_000)}
	a, b := net.Pipe()
	v := h2conn.NewServer(a, lim, mayGiveUp)
	served := make(chan error, 1)
	go func() { served <- v.Serve() }()
	k, err := h2conn.NewClient(b, lim)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 20 {
		seed := r.Uint64()
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, 1))
			for range 10 {
				tryEcho(t, k, r)
			}
		})
	}
	all.Wait()
	if n := k.Streams(); n != 0 {
		t.Errorf("the client has %d streams", n)
	}
	whole := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	if got, err := echoed(k, rand.New(rand.NewPCG(0, 0)), whole, "all", false); err != nil || !bytes.Equal(got, whole) {
		t.Errorf("in the end %d octets of %d came back, %v", len(got), len(whole), err)
	}
	k.Close()
	<-k.Done()
	if err := <-served; err != nil || v.Streams() != 0 {
		t.Errorf("the server ended with %d streams, %v", v.Streams(), err)
	}
}

// fates are what becomes of a request, as its client wants it.
var fates = []string{"all", "all", "all", "reset", "answer", "nothing", "stop", "abandon"}

// tryEcho sends one request, of which a part fail.
func tryEcho(t *testing.T, k *h2conn.Client, r *rand.Rand) {
	fate := fates[r.IntN(len(fates))]
	body := make([]byte, r.IntN(1<<r.IntN(18)))
	for i := range body {
		body[i] = byte(r.Uint32())
	}
	got, err := echoed(k, r, body, fate, fate == "abandon")
	switch {
	case fate == "all" && err != nil:
		t.Errorf("a request that should have come back failed: %v", err)
	case fate == "all" && !bytes.Equal(got, body):
		t.Errorf("%d octets came back of %d, or others", len(got), len(body))
	case err == nil && !bytes.HasPrefix(body, got):
		t.Errorf("what came back is not what was sent (%s)", fate)
	}
}

// echoed sends a body in pieces and reads what comes back.
func echoed(k *h2conn.Client, r *rand.Rand, body []byte, fate string, abandon bool) ([]byte, error) {
	s, err := k.Open(request("POST", "x-fate", fate), "https", "/", false)
	if err != nil {
		return nil, err
	}
	defer s.Reset(http2.ErrCodeCancel)
	pieces := 1 + r.IntN(20_000)
	var sending sync.WaitGroup
	defer sending.Wait()
	defer s.Body().Stop()
	sending.Go(func() {
		for left := body; len(left) > 0; {
			n := min(len(left), pieces)
			if _, err := s.Write(left[:n]); err != nil {
				return
			}
			left = left[n:]
			if n%3 == 0 {
				s.Flush()
			}
		}
		s.End(httpwire.Fields{{Name: "x-end", Value: "1"}})
	})
	if abandon {
		io.CopyN(io.Discard, s.Body(), int64(len(body)/2))
		s.Reset(http2.ErrCodeCancel)
		return nil, h2conn.ErrReset
	}
	var p httpwire.Response
	if err := s.ReadHead(&p); err != nil {
		return nil, err
	}
	got, err := io.ReadAll(s.Body())
	if err != nil {
		s.Reset(http2.ErrCodeCancel) // lest the sending goes on
	}
	return got, err
}

// mayGiveUp is echo, unless the request wants something else.
func mayGiveUp(s *h2conn.ServerStream) {
	q, _ := s.Head()
	fate, _ := q.Fields.Get("x-fate")
	s.WriteHead(status(200), false)
	buf := make([]byte, 7000)
	for i := 0; ; i++ {
		switch {
		case i < 2:
		case fate == "reset":
			s.Reset(http2.ErrCodeInternal)
			return
		case fate == "answer":
			s.End(nil)
			return
		case fate == "nothing":
			return
		case fate == "stop":
			s.Body().Stop()
		}
		if !s.Body().Ready() {
			s.Flush()
		}
		n, err := s.Body().Read(buf)
		if _, err := s.Write(buf[:n]); err != nil {
			return
		}
		if errors.Is(err, io.EOF) {
			s.End(s.Body().Trailers())
			return
		}
		if err != nil {
			return
		}
	}
}
