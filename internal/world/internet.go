// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
)

// None is the argument or answer of a call that needs none.
type None struct{}

// Setup is what a process of the world needs to begin.
type Setup struct {
	Dir       string // directory of this world
	RootCert  []byte
	RootKey   []byte
	RootPEM   []byte
	RootHash  string // OpenSSL's subject hash of the root
	CgroupFSs []cgroupMount
}

// Filter chooses requests.
type Filter struct {
	Host  string // SNI or Host header; empty: all
	Reset bool   // forget everything afterwards
}

// Log is what the servers of one namespace received.
type Log struct {
	Requests []Received
	Streams  []Stream
}

// Traffic is what a sniffer saw.
type Traffic struct {
	Packets []Packet
	Flows   []Flow
	Lost    int
}

// Zone sets the answers for a name.
type Zone struct {
	Name    string
	Answers []Answer
}

// Internet is the router with the resolver and the servers. It is exported
// for net/rpc only.
type Internet struct {
	rec   *recorder
	dns   *resolver
	gates gates
	wire  *sniffer
	root  *pki
	dir   string

	pretends pretender
}

func newInternet() *Internet {
	return &Internet{rec: &recorder{}, dns: newResolver(zone())}
}

// Links makes the links to the other namespaces; their descriptors are 4 to 6.
func (i *Internet) Links(Setup, *None) error {
	for n, role := range []string{roleHost, roleAttacker, roleLAN} {
		if err := makeLink(role+"0", "eth0", 4+n); err != nil {
			return err
		}
	}
	own := ownAddresses()
	for n, a := range own {
		own[n] = single(a)
	}
	for _, link := range []struct {
		name  string
		addrs []string
	}{
		{"lo", own},
		{roleHost + "0", []string{gatewayAddr + "/24", gatewayAddr6 + "/64"}},
		{roleAttacker + "0", []string{"93.184.217.1/24", "2606:2800:220:2::1/64"}},
		{roleLAN + "0", []string{"10.0.0.1/24"}},
	} {
		if err := addresses(link.name, link.addrs...); err != nil {
			return err
		}
	}
	if err := silent(single(SilentAddr)); err != nil {
		return err
	}
	return forwarding()
}

// ownAddresses are those of the router's own servers.
func ownAddresses() []string {
	return []string{
		MetadataAddr, DNSAddr, DNSAddr6, APIAddr, APIAddr6, gitAddr, filesAddr, registryAddr, brokenAddr, databaseAddr, RefusedAddr,
		h2Addr, h2OnlyAddr, GRPCAddr, WebSocketAddr, SSHAddr, PostgresAddr, SMTPAddr, TLSAddr,
	}
}

func single(addr string) string {
	a := netip.MustParseAddr(addr)
	return netip.PrefixFrom(a, a.BitLen()).String()
}

// Serve starts the resolver and the servers.
func (i *Internet) Serve(s Setup, _ *None) error {
	root, err := unmarshalPKI(s.RootCert, s.RootKey)
	if err != nil {
		return err
	}
	i.root, i.dir = root, s.Dir
	if err := ownFiles(s.Dir); err != nil {
		return err
	}
	if i.wire, err = sniff(roleHost + "0"); err != nil {
		return err
	}
	for _, role := range []string{roleHost, roleAttacker, roleLAN} {
		if err := carried(role + "0"); err != nil {
			return err
		}
	}
	for _, a := range []string{DNSAddr, DNSAddr6} {
		if err := i.dns.serve(a); err != nil {
			return err
		}
	}
	if err := i.gates.serveLines(databaseAddr, "5432"); err != nil {
		return err
	}
	if err := i.serveBroken(root); err != nil {
		return err
	}
	return i.servePages(root, s.Dir)
}

func (i *Internet) servePages(root *pki, dir string) error {
	n := AllNames()
	git, err := gitPages(context.Background(), filepath.Join(dir, "git"))
	if err != nil {
		return err
	}
	api := apiPages(&i.gates)
	all := byHost{other: api, pages: map[string]http.Handler{
		n.Git: git, n.GitH2: git, n.NPM: npmPages(n.NPM), n.PyPI: pypiPages(), n.GoProxy: goPages(),
	}}
	cert := func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if h.ServerName == "" || strings.HasSuffix(h.ServerName, ".org") {
			return nil, fmt.Errorf("no certificate for %q", h.ServerName)
		}
		return root.leaf(h.ServerName)
	}
	for _, a := range []string{APIAddr, APIAddr6, filesAddr, gitAddr, registryAddr} {
		if err := i.rec.serveHTTP(a, "443", all, cert); err != nil {
			return err
		}
		if err := i.rec.serveHTTP(a, "80", all, nil); err != nil {
			return err
		}
	}
	if err := i.rec.serveHTTP(APIAddr, "8443", all, cert); err != nil {
		return err
	}
	if err := i.rec.serveH2(h2Addr, false, all, cert); err != nil {
		return err
	}
	if err := i.rec.serveH2(h2OnlyAddr, true, all, cert); err != nil {
		return err
	}
	secret := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, `{"AccessKeyId":"AKIAEXAMPLE","SecretAccessKey":"the cloud's secret"}`)
	})
	return i.rec.serveHTTP(MetadataAddr, "80", secret, nil)
}

// serveBroken serves certificates that no client may accept.
func (i *Internet) serveBroken(root *pki) error {
	n := AllNames()
	stranger, err := newPKI("A root that nobody trusts")
	if err != nil {
		return err
	}
	cert := func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
		switch h.ServerName {
		case n.SelfSigned:
			return root.selfSigned(h.ServerName)
		case n.Expired:
			return root.expired(h.ServerName)
		case n.UnknownCA:
			return stranger.leaf(h.ServerName)
		case n.NotYet:
			return root.early(h.ServerName)
		case n.Confined:
			return root.confined(h.ServerName)
		case n.Weak:
			return root.short(h.ServerName)
		}
		return root.leaf("another." + h.ServerName)
	}
	return i.rec.serveHTTP(brokenAddr, "443", apiPages(&i.gates), cert)
}

// SetZone changes what the resolver answers.
func (i *Internet) SetZone(z Zone, _ *None) error { i.dns.set(z.Name, z.Answers); return nil }

// Queries lists what the resolver was asked.
func (i *Internet) Queries(f Filter, out *[]Query) error { *out = i.dns.list(f.Reset); return nil }

// Received lists what the servers got.
func (i *Internet) Received(f Filter, out *Log) error {
	out.Requests, out.Streams = i.rec.list(f.Host, f.Reset)
	return nil
}

// Wire lists what left the host, once the packet with the mark has come by.
func (i *Internet) Wire(mark string, out *Traffic) error {
	i.wire.wait(mark)
	out.Packets, out.Flows, out.Lost = i.wire.list(false)
	return nil
}

// ForgetWire forgets what left the host.
func (i *Internet) ForgetWire(None, *None) error { i.wire.list(true); return nil }

// Release opens a gate.
func (i *Internet) Release(name string, _ *None) error { i.gates.release(name); return nil }

// Told waits for a gate.
func (i *Internet) Told(name string, _ *None) error { return i.gates.opened(name) }
