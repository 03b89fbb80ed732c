// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package casetest

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"
)

// A pipe is one direction of an in-memory connection: a buffer without a bound,
// so that no writer waits for a reader and a case cannot deadlock by its order.
type pipe struct {
	mu       sync.Mutex
	changed  *sync.Cond
	buf      []byte
	ended    bool // the writer is done
	dropped  bool // the reader is done
	deadline time.Time
	timer    *time.Timer
}

func newPipe() *pipe {
	p := &pipe{}
	p.changed = sync.NewCond(&p.mu)
	return p
}

func (p *pipe) read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.dropped:
			return 0, net.ErrClosed
		case len(p.buf) > 0:
			n := copy(b, p.buf)
			p.buf = p.buf[n:]
			return n, nil
		case p.ended:
			return 0, io.EOF
		case !p.deadline.IsZero() && !time.Now().Before(p.deadline):
			return 0, os.ErrDeadlineExceeded
		}
		p.changed.Wait()
	}
}

var errReset = errors.New("the other end has closed the connection")

func (p *pipe) write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.ended:
		return 0, net.ErrClosed
	case p.dropped:
		return 0, errReset
	}
	p.buf = append(p.buf, b...)
	p.changed.Broadcast()
	return len(b), nil
}

// end says that nothing more will be written.
func (p *pipe) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.changed.Broadcast()
}

// drop says that nothing more will be read.
func (p *pipe) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropped, p.buf = true, nil
	p.changed.Broadcast()
}

func (p *pipe) setDeadline(t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deadline = t
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	if !t.IsZero() {
		p.timer = time.AfterFunc(time.Until(t), func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.changed.Broadcast()
		})
	}
	p.changed.Broadcast()
}

// A conn is one end of an in-memory connection. Writes never block, so write
// deadlines have no effect.
type conn struct {
	in, out       *pipe
	local, remote net.Addr
}

// newConns returns the two ends of a connection from one address to the other.
func newConns(from, to netip.AddrPort) (client, server *conn) {
	up, down := newPipe(), newPipe()
	a, b := net.TCPAddrFromAddrPort(from), net.TCPAddrFromAddrPort(to)
	return &conn{down, up, a, b}, &conn{up, down, b, a}
}

var _ net.Conn = (*conn)(nil)

func (c *conn) Read(b []byte) (int, error)         { return c.in.read(b) }
func (c *conn) Write(b []byte) (int, error)        { return c.out.write(b) }
func (c *conn) LocalAddr() net.Addr                { return c.local }
func (c *conn) RemoteAddr() net.Addr               { return c.remote }
func (c *conn) SetReadDeadline(t time.Time) error  { c.in.setDeadline(t); return nil }
func (c *conn) SetWriteDeadline(_ time.Time) error { return nil }
func (c *conn) SetDeadline(t time.Time) error      { return c.SetReadDeadline(t) }

// CloseWrite ends the stream to the other end; this end can go on reading.
func (c *conn) CloseWrite() error { c.out.end(); return nil }

// CloseRead stops reading.
func (c *conn) CloseRead() error { c.in.drop(); return nil }

// Close ends both directions. What was written stays readable.
func (c *conn) Close() error {
	c.out.end()
	c.in.drop()
	return nil
}

// A listener hands out connections that the test made.
type listener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
	addr  net.Addr
}

func newListener(addr netip.AddrPort) *listener {
	return &listener{conns: make(chan net.Conn, 1), done: make(chan struct{}), addr: net.TCPAddrFromAddrPort(addr)}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *listener) Addr() net.Addr { return l.addr }
