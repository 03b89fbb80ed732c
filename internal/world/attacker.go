// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"time"
)

// Attacker owns the machines that data must not reach: it listens on every
// port and counts every packet. It is exported for net/rpc only.
type Attacker struct {
	rec   *recorder
	dns   *resolver
	sniff *sniffer
	root  *pki
}

func newAttacker() *Attacker { return &Attacker{rec: &recorder{}} }

// everyPort leads each port to one listener, so that whatever is tried gets
// through to a program: a test must not pass because nobody listened.
const everyPort = `table inet every {
	chain in {
		type nat hook prerouting priority dstnat
		udp dport 53 accept
		tcp dport 53 accept
		meta l4proto tcp redirect to :9
		meta l4proto udp redirect to :9
	}
}
`

// Serve sets the links up and listens.
func (a *Attacker) Serve(s Setup, _ *None) error {
	var err error
	if a.root, err = unmarshalPKI(s.RootCert, s.RootKey); err != nil {
		return err
	}
	if err := addresses("lo"); err != nil {
		return err
	}
	if err := addresses("eth0", AttackerAddr+"/24", attackerAddr2+"/24", TunnelAddr+"/24", TunnelAddr2+"/24", AttackerAddr6+"/64"); err != nil {
		return err
	}
	if a.sniff, err = sniff("eth0"); err != nil {
		return err
	}
	if err := route("default", "93.184.217.1"); err != nil {
		return err
	}
	if err := route("default", "2606:2800:220:2::1"); err != nil {
		return err
	}
	nft := exec.Command("nft", "-f", "-")
	nft.Stdin = strings.NewReader(everyPort)
	if out, err := nft.CombinedOutput(); err != nil {
		return fmt.Errorf("redirecting every port: %w: %s", err, bytes.TrimSpace(out))
	}
	return a.listen()
}

func (a *Attacker) listen() error {
	n := AllNames()
	found := Answer{Addrs: []string{AttackerAddr}}
	a.dns = newResolver(map[string][]Answer{"*." + n.Evil: {found}, "*." + n.Evil2: {found}})
	for _, addr := range []string{AttackerAddr, attackerAddr2} {
		if err := a.dns.serve(addr); err != nil {
			return err
		}
	}
	ln, err := net.Listen("tcp", ":9")
	if err != nil {
		return fmt.Errorf("listening on every port: %w", err)
	}
	split := &sniffingListener{Listener: ln, conf: &tls.Config{
		GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if h.ServerName == "" {
				return a.root.leaf(n.Evil)
			}
			return a.root.leaf(h.ServerName) // an attacker can have had any name certified once
		},
		NextProtos: []string{"http/1.1"},
	}}
	pages := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprintln(w, "the attacker thanks you")
	})
	srv := &http.Server{Handler: pages, ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute}
	go func() { _ = srv.Serve(a.rec.record(split, nil)) }()
	pc, err := net.ListenPacket("udp", ":9")
	if err != nil {
		return fmt.Errorf("listening on every port: %w", err)
	}
	go func() {
		buf := make([]byte, 2048)
		for {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			if !bytes.HasPrefix(buf[:n], []byte(markPrefix)) {
				_, _ = pc.WriteTo([]byte("got it"), from)
			}
		}
	}()
	return nil
}

// Packets lists what arrived, once the packet with the mark has.
func (a *Attacker) Packets(mark string, out *Traffic) error {
	a.sniff.wait(mark)
	out.Packets, out.Flows, out.Lost = a.sniff.list(false)
	return nil
}

// Forget starts the count anew.
func (a *Attacker) Forget(None, *None) error { a.sniff.list(true); a.dns.list(true); return nil }

// Queries lists what the attacker's resolver was asked.
func (a *Attacker) Queries(f Filter, out *[]Query) error { *out = a.dns.list(f.Reset); return nil }

// Received lists what the attacker's servers got.
func (a *Attacker) Received(f Filter, out *Log) error {
	out.Requests, out.Streams = a.rec.list(f.Host, f.Reset)
	return nil
}

// sniffingListener speaks TLS with clients that begin with it.
type sniffingListener struct {
	net.Listener
	conf *tls.Config
}

// Accept returns at once; which protocol it is shows at the first read.
func (l *sniffingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &eitherConn{Conn: c, conf: l.conf}, nil
}

type eitherConn struct {
	net.Conn
	conf  *tls.Config
	inner net.Conn
}

func (c *eitherConn) Read(p []byte) (int, error) {
	if c.inner == nil {
		r := bufio.NewReader(c.Conn)
		first, err := r.Peek(1)
		if err != nil {
			return 0, err
		}
		c.inner = &peekedConn{c.Conn, r}
		if first[0] == 0x16 {
			c.inner = tls.Server(c.inner, c.conf)
		}
	}
	return c.inner.Read(p)
}

func (c *eitherConn) Write(p []byte) (int, error) {
	if c.inner == nil {
		return c.Conn.Write(p)
	}
	return c.inner.Write(p)
}

type peekedConn struct {
	net.Conn
	r *bufio.Reader
}

func (c *peekedConn) Read(p []byte) (int, error) { return c.r.Read(p) }

// LAN is the private service. It is exported for net/rpc only.
type LAN struct {
	rec   *recorder
	gates gates
	sniff *sniffer
}

func newLAN() *LAN { return &LAN{rec: &recorder{}} }

// Serve sets the link up and listens on 443 and 80.
func (l *LAN) Serve(s Setup, _ *None) error {
	root, err := unmarshalPKI(s.RootCert, s.RootKey)
	if err != nil {
		return err
	}
	if err := addresses("lo"); err != nil {
		return err
	}
	if err := addresses("eth0", LANAddr+"/24"); err != nil {
		return err
	}
	if l.sniff, err = sniff("eth0"); err != nil {
		return err
	}
	if err := route("default", "10.0.0.1"); err != nil {
		return err
	}
	cert := func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if h.ServerName == "" {
			return root.leaf(AllNames().LAN)
		}
		return root.leaf(h.ServerName)
	}
	if err := l.rec.serveHTTP(LANAddr, "443", apiPages(&l.gates), cert); err != nil {
		return err
	}
	return l.rec.serveHTTP(LANAddr, "80", apiPages(&l.gates), nil)
}

// Received lists what the private service got.
func (l *LAN) Received(f Filter, out *Log) error {
	out.Requests, out.Streams = l.rec.list(f.Host, f.Reset)
	return nil
}

// Packets lists what arrived, once the packet with the mark has.
func (l *LAN) Packets(mark string, out *Traffic) error {
	l.sniff.wait(mark)
	out.Packets, out.Flows, out.Lost = l.sniff.list(false)
	return nil
}

// Forget starts the count anew.
func (l *LAN) Forget(None, *None) error { l.sniff.list(true); return nil }
