// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A load is one kind of traffic through one proxy. It is a process of its own,
// so that its cost is not the peer's, and as raw as can be, so that it takes
// little of the machine.
//
// It makes its connections, says "ready" and begins. It answers each line on
// its standard input with the number of units that are through; from the first
// line on, and up to the last one, latencies count. When its standard input
// ends it stops and says what came of it. Any answer but the whole of what the
// upstream says ends it with an error.
type load struct {
	kind    string
	proxy   string // address; empty: there is none
	host    string
	path    string
	roots   *x509.CertPool // of what the peer mints
	unread  *x509.CertPool // of the upstream itself
	conns   int
	streams int     // on each connection
	rate    float64 // arrivals a second, where the load is open
	deflate bool

	units   atomic.Int64 // what is counted
	whole   atomic.Int64 // requests whose units count one by one, once they are through
	ended   atomic.Bool
	window  window
	latency latencies
	mu      sync.Mutex
	open    []net.Conn // to be closed at the end
}

// A result is what a load says at its end.
type result struct {
	Units   int64   `json:"units"`
	Whole   int64   `json:"whole"` // that upstream and log must know of
	Latency summary `json:"latency"`
}

// A kind makes its connections and returns what then runs on them, each in a
// goroutine of its own, until the load has ended.
type kind func(l *load) ([]func() error, error)

var kinds = map[string]kind{
	"h1":      keepH1,
	"h1new":   newH1,
	"h1open":  openH1,
	"h2":      keepH2,
	"h2new":   newH2,
	"down":    download,
	"up":      uploads,
	"deny":    denials,
	"ws":      wsEcho,
	"sse":     events,
	"idle":    idleTLS,
	"idlews":  idleWS,
	"idlemix": idleMix,
}

func loadMain(args []string) error {
	l, err := newLoad(args)
	if err != nil {
		return err
	}
	work, err := kinds[l.kind](l)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	failed := make(chan error, len(work))
	var wg sync.WaitGroup
	for _, w := range work {
		wg.Go(func() {
			if err := w(); err != nil && !l.ended.Load() {
				failed <- err
			}
		})
	}
	if err := l.answer(failed); err != nil {
		return err
	}
	l.end()
	wg.Wait()
	select {
	case err := <-failed:
		return err
	default:
	}
	whole := l.whole.Load()
	if l.kind != "down" && l.kind != "up" {
		whole = l.units.Load()
	}
	return json.NewEncoder(os.Stdout).Encode(result{l.units.Load(), whole, l.latency.summary(&l.window)})
}

func newLoad(args []string) (*load, error) {
	l := &load{}
	fs := flag.NewFlagSet("load", flag.ContinueOnError)
	fs.StringVar(&l.kind, "kind", "", "kind of traffic")
	fs.StringVar(&l.proxy, "proxy", "", "address of the proxy")
	fs.StringVar(&l.host, "host", originHost, "name of the upstream")
	fs.StringVar(&l.path, "path", "", "path to ask for")
	roots := fs.String("roots", "", "PEM file of the roots to trust")
	unread := fs.String("spliceroots", "", "the same for the host that is not looked into")
	fs.IntVar(&l.conns, "conns", 1, "connections")
	fs.IntVar(&l.streams, "streams", 1, "requests at a time on each")
	fs.Float64Var(&l.rate, "rate", 0, "arrivals a second")
	fs.BoolVar(&l.deflate, "deflate", false, "compress")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if kinds[l.kind] == nil {
		return nil, fmt.Errorf("no load of kind %q", l.kind)
	}
	var err error
	if l.roots, err = loadRoots(*roots); err == nil {
		l.unread, err = loadRoots(*unread)
	}
	return l, err
}

// answer answers lines until there are no more, or something has failed.
func (l *load) answer(failed <-chan error) error {
	lines := make(chan struct{})
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			lines <- struct{}{}
		}
		close(lines)
	}()
	for {
		select {
		case err := <-failed:
			return err
		case _, more := <-lines:
			if !more {
				return nil
			}
			l.window.mark(time.Now())
			fmt.Println(l.units.Load())
		}
	}
}

// end stops the work: between two units, or where it waits for ever by closing
// its connections.
func (l *load) end() {
	l.ended.Store(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.open {
		c.Close()
	}
}

// endWith makes c end with the load.
func (l *load) endWith(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = append(l.open, c)
}

// each makes one piece of work for each connection. first is done on each
// before the load says that it is ready, so that what peers do once for a
// connection, such as to open one to the upstream, is over then.
func (l *load) each(first, work func(c *tls.Conn) error) ([]func() error, error) {
	conns := make([]*tls.Conn, l.conns)
	err := parallel(l.conns, func(i int) (err error) {
		if conns[i], err = l.connect(l.host, "http/1.1"); err == nil && first != nil {
			err = first(conns[i])
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	list := make([]func() error, 0, len(conns))
	for _, c := range conns {
		list = append(list, func() error {
			defer c.Close()
			return work(c)
		})
	}
	return list, nil
}

// atATime is how many connections are made at a time.
const atATime = 16

// parallel calls do with 0 up to n, some at a time.
func parallel(n int, do func(i int) error) error {
	var next atomic.Int64
	errs := make([]error, min(n, atATime))
	var wg sync.WaitGroup
	for k := range errs {
		wg.Go(func() {
			for errs[k] == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				errs[k] = do(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// connect opens a tunnel, if there is a proxy, and TLS in it.
func (l *load) connect(host, proto string) (*tls.Conn, error) {
	c, err := l.tunnel(host)
	if err != nil {
		return nil, err
	}
	roots := l.roots
	if host == spliceHost {
		roots = l.unread
	}
	t := tls.Client(c, &tls.Config{ServerName: host, RootCAs: roots, NextProtos: []string{proto}})
	c.SetDeadline(time.Now().Add(20 * time.Second))
	if err := t.Handshake(); err != nil {
		c.Close()
		return nil, fmt.Errorf("TLS: %w", err)
	}
	if got := t.ConnectionState().NegotiatedProtocol; got != proto && (got != "" || proto != "http/1.1") {
		c.Close()
		return nil, fmt.Errorf("TLS: asked for %s, got %q", proto, got)
	}
	return t, c.SetDeadline(time.Time{})
}

func (l *load) tunnel(host string) (net.Conn, error) {
	if l.proxy == "" {
		return net.DialTimeout("tcp", net.JoinHostPort(originAddr, originPort), 5*time.Second)
	}
	c, err := net.DialTimeout("tcp", l.proxy, 5*time.Second)
	if err != nil {
		return nil, err
	}
	if err := askTunnel(c, net.JoinHostPort(host, originPort)); err != nil {
		c.Close()
		return nil, fmt.Errorf("CONNECT: %w", err)
	}
	return c, nil
}

func askTunnel(c net.Conn, authority string) error {
	if _, err := fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", authority, authority); err != nil {
		return err
	}
	head, err := readHead(c)
	if err != nil {
		return err
	}
	if len(head) < 12 || !slices.Contains([]string{"HTTP/1.1 200", "HTTP/1.0 200"}, string(head[:12])) {
		return fmt.Errorf("answer: %q", head)
	}
	return nil
}

// readHead reads octet by octet, so that nothing behind the head is taken.
func readHead(c net.Conn) ([]byte, error) {
	var head []byte
	for len(head) < 4 || string(head[len(head)-4:]) != headEnd {
		var b [1]byte
		if _, err := c.Read(b[:]); err != nil {
			return head, err
		}
		if head = append(head, b[0]); len(head) > 8<<10 {
			return head, errors.New("head too long")
		}
	}
	return head, nil
}

const headEnd = "\r\n\r\n"
