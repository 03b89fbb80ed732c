// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// question is a request of the size that agents' requests have.
func (l *load) question(method, more string) []byte {
	return []byte(method + " " + l.path + "?page=3 HTTP/1.1\r\nHost: " + l.host +
		"\r\nUser-Agent: bench/1\r\nAccept: application/json\r\nAuthorization: Bearer 0123456789abcdef0123456789abcdef\r\n" + more + "\r\n")
}

// keepH1 asks one question after the other on each connection.
func keepH1(l *load) ([]func() error, error) {
	question := l.question("GET", "")
	return l.each(l.once(question), func(c *tls.Conn) error {
		buf := make([]byte, 64<<10)
		for !l.ended.Load() {
			if err := ask(c, question, buf); err != nil {
				return err
			}
			l.units.Add(1)
		}
		return nil
	})
}

// once asks a question on a connection.
func (l *load) once(question []byte) func(c *tls.Conn) error {
	return func(c *tls.Conn) error {
		err := ask(c, question, make([]byte, 8<<10))
		if err == nil {
			l.units.Add(1)
		}
		return err
	}
}

// newH1 asks each question on a connection of its own.
func newH1(l *load) ([]func() error, error) {
	question := l.question("GET", "Connection: close\r\n")
	return l.workers(func(buf []byte) error {
		c, err := l.connect(l.host, "http/1.1")
		if err != nil {
			return err
		}
		defer c.Close()
		return ask(c, question, buf)
	}), nil
}

// workers are as many as there are to be connections at a time.
func (l *load) workers(one func(buf []byte) error) []func() error {
	var list []func() error
	for range l.conns {
		list = append(list, func() error {
			buf := make([]byte, 64<<10)
			for !l.ended.Load() {
				if err := one(buf); err != nil {
					return err
				}
				l.units.Add(1)
			}
			return nil
		})
	}
	return list
}

// openH1 asks at a constant rate, whether or not earlier questions have been
// answered: who waits for a free connection waits on the peer's account.
func openH1(l *load) ([]func() error, error) {
	due := make(chan time.Time, 1<<20)
	question := l.question("GET", "")
	work, err := l.each(l.once(question), func(c *tls.Conn) error {
		buf := make([]byte, 64<<10)
		for at := range due {
			if err := ask(c, question, buf); err != nil {
				return err
			}
			l.latency.add(at, time.Now())
			l.units.Add(1)
		}
		return nil
	})
	return append(work, func() error { return l.arrivals(due) }), err
}

// arrivals sends the moment of each arrival when it has come. Go's own timers
// can be a millisecond late on an idle machine; the kernel's are not.
func (l *load) arrivals(due chan<- time.Time) error {
	defer close(due)
	runtime.LockOSThread()
	unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) //nolint:errcheck // later, then
	every := time.Duration(float64(time.Second) / l.rate)
	began := time.Now()
	for n := time.Duration(0); !l.ended.Load(); n++ {
		at := began.Add(n * every)
		if wait := time.Until(at); wait > 0 {
			rest := unix.NsecToTimespec(int64(wait))
			unix.Nanosleep(&rest, nil) //nolint:errcheck // the next look at the clock tells
		}
		select {
		case due <- at:
		default:
			return fmt.Errorf("a million questions wait at %.0f/s", l.rate)
		}
	}
	return nil
}

// denials asks for what policy does not allow. A peer whose refusal ends the
// connection gets a new one.
func denials(l *load) ([]func() error, error) {
	question := l.question("GET", "")
	return l.each(nil, func(c *tls.Conn) error {
		defer func() { c.Close() }()
		for r := newReader(c); !l.ended.Load(); {
			if _, err := c.Write(question); err != nil {
				return err
			}
			a, err := r.answer(io.Discard)
			if err != nil {
				return err
			}
			if a.status != 403 {
				return fmt.Errorf("answer: %d, want 403", a.status)
			}
			l.units.Add(1)
			if a.close {
				c.Close()
				if c, err = l.connect(l.host, "http/1.1"); err != nil {
					return err
				}
				r = newReader(c)
			}
		}
		return nil
	})
}

// Sizes of the rows with large bodies.
const (
	downSize = 10 << 20
	upSize   = 50 << 20
)

// progress counts a unit for each MB that is written to it.
type progress struct {
	l *load
	n int
}

func (p *progress) Write(b []byte) (int, error) {
	p.n += len(b)
	for ; p.n >= 1<<20; p.n -= 1 << 20 {
		p.l.units.Add(1)
	}
	return len(b), nil
}

// download asks for something large.
func download(l *load) ([]func() error, error) {
	question := l.question("GET", "")
	return l.each(nil, func(c *tls.Conn) error {
		r := newReader(c)
		for !l.ended.Load() {
			if _, err := c.Write(question); err != nil {
				return err
			}
			a, err := r.answer(&progress{l: l})
			switch {
			case err != nil:
				return err
			case a.status != 200 || a.length != downSize:
				return fmt.Errorf("answer: %d with %d octets", a.status, a.length)
			}
			l.whole.Add(1)
		}
		return nil
	})
}

// uploads sends something large.
func uploads(l *load) ([]func() error, error) {
	head := l.question("POST", "Content-Type: application/octet-stream\r\nContent-Length: "+strconv.Itoa(upSize)+"\r\n")
	return l.each(nil, func(c *tls.Conn) error {
		r := newReader(c)
		chunk := bytes.Repeat([]byte("u"), 64<<10)
		for !l.ended.Load() {
			if _, err := c.Write(head); err != nil {
				return err
			}
			sent := &progress{l: l}
			for n := 0; n < upSize; n += len(chunk) {
				if _, err := c.Write(chunk); err != nil {
					return err
				}
				sent.Write(chunk)
			}
			var got bytes.Buffer
			a, err := r.answer(&got)
			if err != nil {
				return err
			}
			if want := strconv.Itoa(upSize); a.status != 200 || got.String() != want {
				return fmt.Errorf("answer: %d, %.100q, want %s", a.status, got.String(), want)
			}
			l.whole.Add(1)
		}
		return nil
	})
}

// ask puts one question and reads the upstream's answer of 1 KB.
func ask(c net.Conn, question, buf []byte) error {
	if _, err := c.Write(question); err != nil {
		return err
	}
	have := 0
	for {
		n, err := c.Read(buf[have:])
		have += n
		if n > 0 {
			whole, err := isWhole(buf[:have])
			if whole || err != nil {
				return err
			}
		}
		if err != nil {
			return fmt.Errorf("after %q: %w", buf[:have], err)
		}
	}
}
