// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bawn/internal/h2suite"
	"bawn/internal/netplan"
)

// proxyFor names the variable that makes this test binary a client of the proxy
// that it names.
const proxyFor = "BAWN_EGRESS_PROXY"

func TestMain(m *testing.M) {
	if proxy := os.Getenv(proxyFor); proxy != "" {
		os.Exit(askThrough(proxy, os.Args[len(os.Args)-1]))
	}
	os.Exit(m.Run())
}

// TestAgentsLegConforms has h2spec talk to the proxy as an agent would, through
// a tunnel and TLS that ends there. Nothing may fail.
func TestAgentsLegConforms(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer ln.Close()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	// h2spec asks for the name and the port that it connects to.
	r := newRig(t, fmt.Sprintf(`
version: 1
profiles:
  p:
    rules:
      - {host: localhost, ports: [%s]}
agents:
  dev: {profile: p}
`, port))
	r.upstreamALPN("localhost", apiAddr, []string{"h2"}, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if _, err := io.Copy(io.Discard, q.Body); err == nil {
			w.Write(make([]byte, 100))
		}
	}))
	r.net.move(apiAddr, 443, mustPort(t, port))
	proxy := r.listen(netplan.Explicit)
	go tunnelEach(ln, proxy, "localhost:"+port)
	h2suite.Server(t, "localhost", port, true, nil)
}

func mustPort(t *testing.T, s string) uint16 {
	t.Helper()
	a, err := netip.ParseAddrPort("127.0.0.1:" + s)
	must(t, err)
	return a.Port()
}

// tunnelEach puts each connection into a tunnel of its own.
func tunnelEach(ln net.Listener, proxy, target string) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			up, err := net.Dial("tcp", proxy)
			if err != nil {
				return
			}
			defer up.Close()
			fmt.Fprintf(up, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
			answer := make([]byte, 0, 1024)
			for !strings.HasSuffix(string(answer), "\r\n\r\n") {
				n, err := up.Read(answer[len(answer) : len(answer)+1])
				if err != nil {
					return
				}
				answer = answer[:len(answer)+n]
			}
			go func() {
				io.Copy(up, c)
				up.(*net.TCPConn).CloseWrite()
			}()
			io.Copy(c, up)
		}()
	}
}

// TestServersLegConforms has h2specd be the servers that the proxy talks to,
// one for each case, for an agent that asks each of them once. Nothing may fail.
func TestServersLegConforms(t *testing.T) {
	self, err := os.Executable()
	must(t, err)
	first := h2suite.FreePorts(t)
	var ports []string
	for p := first; p < first+h2suite.ClientPorts; p++ {
		ports = append(ports, fmt.Sprint(p))
	}
	r := newRig(t, fmt.Sprintf(`
version: 1
profiles:
  p:
    rules:
      - {host: %s, ports: [%s]}
agents:
  dev: {profile: p}
`, apiHost, strings.Join(ports, ", ")))
	r.net.add(apiHost, apiAddr)
	for i, p := range ports {
		r.net.servers[netip.AddrPortFrom(netip.MustParseAddr(apiAddr), uint16(first+i))] = net.JoinHostPort("127.0.0.1", p)
	}
	cert, err := r.serverCA.Certificate(apiHost)
	must(t, err)
	certFile, keyFile := writePair(t, cert)
	h2suite.Clients{
		Exec: self, Env: []string{proxyFor + "=" + r.listen(netplan.Explicit), "GORACE=atexit_sleep_ms=0"},
		First: first, Cert: certFile, Key: keyFile,
	}.Run(t)
}

func writePair(t *testing.T, cert *tls.Certificate) (certFile, keyFile string) {
	t.Helper()
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	var chain []byte
	for _, der := range cert.Certificate {
		chain = append(chain, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	must(t, err)
	must(t, os.WriteFile(certFile, chain, 0o600))
	must(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600))
	return certFile, keyFile
}

// askThrough asks the server at the port of an address, by the name that it is
// allowed under.
func askThrough(proxy, address string) int {
	u, err := url.Parse(address)
	if err != nil {
		return 2
	}
	c := http.Client{Transport: &http.Transport{
		Proxy:             http.ProxyURL(&url.URL{Scheme: "http", Host: proxy}),
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		ForceAttemptHTTP2: true,
	}}
	res, err := c.Get("https://" + net.JoinHostPort(apiHost, u.Port()) + "/")
	if err != nil {
		return 1
	}
	defer res.Body.Close()
	io.Copy(io.Discard, res.Body)
	return 0
}
