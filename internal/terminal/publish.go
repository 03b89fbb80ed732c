// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// A Publication lends a port of the agent's own loopback to the operator's.
type Publication struct {
	HostPort  uint16 // 0: any free one
	AgentPort uint16
	listener  net.Listener
}

// ParsePublication reads "HOSTPORT:PORT" or "PORT" for both.
func ParsePublication(s string) (Publication, error) {
	host, agent, two := strings.Cut(s, ":")
	if !two {
		agent = host
	}
	h, err1 := strconv.ParseUint(host, 10, 16)
	p, err2 := strconv.ParseUint(agent, 10, 16)
	if err1 != nil || err2 != nil || p == 0 {
		return Publication{}, fmt.Errorf("publish %q: not HOSTPORT:PORT, two numbers from 1 to 65535 (HOSTPORT 0: any free one)", s)
	}
	return Publication{HostPort: uint16(h), AgentPort: uint16(p)}, nil
}

// Listen takes the operator's port, on 127.0.0.1 alone: what an agent serves
// is not for the network.
func (p *Publication) Listen() error {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(p.HostPort))))
	if err != nil {
		return fmt.Errorf("publish %d:%d: %w: %w", p.HostPort, p.AgentPort, ErrPort, reason(err))
	}
	p.listener = l
	p.HostPort = uint16(l.Addr().(*net.TCPAddr).Port)
	return nil
}

// reason leaves out of err what the caller says anyway, and adds what Linux does
// not say.
func reason(err error) error {
	errno, ok := errors.AsType[syscall.Errno](err)
	switch {
	case !ok:
		return err
	case errno == syscall.EACCES:
		return fmt.Errorf("%w: ports below 1024 are root's", errno)
	}
	return errno
}

// Close gives the port back.
func (p *Publication) Close() error {
	if p.listener == nil {
		return nil
	}
	return p.listener.Close()
}

// Serve passes connections to the agent until the publication is closed. dial
// connects to the agent's port.
func (p *Publication) Serve(dial func(port uint16) (*os.File, error)) {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			f, err := dial(p.AgentPort)
			if err != nil {
				return
			}
			defer f.Close()
			join(c.(*net.TCPConn), f)
		}()
	}
}

// join copies both ways, with half-close.
func join(operator *net.TCPConn, f *os.File) {
	conn, err := net.FileConn(f)
	if err != nil {
		return
	}
	defer conn.Close()
	agent, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { io.Copy(agent, operator); agent.CloseWrite() })
	both.Go(func() { io.Copy(operator, agent); operator.CloseWrite() })
	both.Wait()
}
