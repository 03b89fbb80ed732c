// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package terminal_test

import (
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"testing"

	"bawn/internal/terminal"
)

func TestPublicationsAreReadStrictly(t *testing.T) {
	for s, want := range map[string][2]uint16{"8080:3000": {8080, 3000}, "3000": {3000, 3000}, "0:3000": {0, 3000}} {
		p, err := terminal.ParsePublication(s)
		if err != nil || p.HostPort != want[0] || p.AgentPort != want[1] {
			t.Errorf("%q: %+v, %v", s, p, err)
		}
	}
	for _, bad := range []string{"", ":", "8080:", ":3000x", "8080:0", "70000:1", "1:70000", "127.0.0.1:80:80", "+1:2", "-1:2", "a:b"} {
		if _, err := terminal.ParsePublication(bad); err == nil {
			t.Errorf("%q accepted", bad)
		}
	}
}

func TestATakenPortIsNamed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p, err := terminal.ParsePublication(strconv.Itoa(l.Addr().(*net.TCPAddr).Port) + ":3000")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Listen(); !errors.Is(err, terminal.ErrPort) {
		t.Errorf("error %v", err)
	}
}

// TestPublishedPortsCarryBothWaysWithHalfClose stands a server in for the
// agent's; the descriptor is what netd would hand over.
func TestPublishedPortsCarryBothWaysWithHalfClose(t *testing.T) {
	agent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	go func() {
		c, err := agent.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		all, _ := io.ReadAll(c) // ends when the operator's side has closed its half
		c.Write(append([]byte("echo "), all...))
	}()
	p, _ := terminal.ParsePublication("0:3000")
	if err := p.Listen(); err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	go p.Serve(func(port uint16) (*os.File, error) {
		c, err := net.Dial("tcp", agent.Addr().String())
		if err != nil {
			return nil, err
		}
		defer c.Close()
		return c.(*net.TCPConn).File()
	})
	c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(p.HostPort))))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "hello")
	c.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(c); string(got) != "echo hello" {
		t.Errorf("heard %q, %v", got, err)
	}
}
