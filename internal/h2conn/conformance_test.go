// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package h2conn_test

import (
	"io"
	"net"
	"net/url"
	"os"
	"testing"
	"time"

	"bawn/internal/h2conn"
	"bawn/internal/h2suite"
	"bawn/internal/httpwire"
)

// TestServerConforms has h2spec try a server. Nothing may fail.
func TestServerConforms(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			go h2conn.NewServer(nc, h2conn.Limits{}, answer).Serve() //nolint:errcheck // the suite judges
		}
	}()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	h2suite.Server(t, "127.0.0.1", port, false, nil)
}

// answer reads the request to its end and answers what it deserves.
func answer(s *h2conn.ServerStream) {
	_, refused := s.Head()
	if _, err := io.Copy(io.Discard, s.Body()); err != nil && refused == nil {
		refused = err
	}
	code := 200
	if refused != nil {
		code = 400
	}
	s.WriteHead(status(code), false)
	s.Write(make([]byte, 100))
	s.End(nil)
}

// clientFor names the variable that makes this test binary a client.
const clientFor = "BAWN_H2CONN_CLIENT"

func TestMain(m *testing.M) {
	if os.Getenv(clientFor) != "" {
		os.Exit(beClient(os.Args[len(os.Args)-1]))
	}
	os.Exit(m.Run())
}

// TestClientConforms has h2specd try a client. Nothing may fail.
func TestClientConforms(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	env := []string{clientFor + "=1", "GORACE=atexit_sleep_ms=0"}
	h2suite.Clients{Exec: self, Env: env, First: h2suite.FreePorts(t)}.Run(t)
}

// beClient sends one request and reads the response.
func beClient(target string) int {
	u, err := url.Parse(target)
	if err != nil {
		return 2
	}
	nc, err := net.Dial("tcp", u.Host)
	if err != nil {
		return 2
	}
	k, err := h2conn.NewClient(nc, h2conn.Limits{})
	if err != nil {
		return 2
	}
	defer func() { k.Close(); <-k.Done() }()
	s, err := k.Open(request("GET"), "http", "/", true)
	if err != nil {
		return 1
	}
	for {
		var p httpwire.Response
		if err := s.ReadHead(&p); err != nil {
			break
		}
	}
	io.Copy(io.Discard, s.Body())
	for k.Usable() { // the server has more to say
		time.Sleep(time.Millisecond)
	}
	return 0
}
