// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"bawn/internal/codes"
	"bawn/internal/names"
	"bawn/internal/netplan"
)

// keys is a keyring, and what it was asked for.
type keys struct {
	mu    sync.Mutex
	certs map[string]*tls.Certificate
	asked []string
	when  func()
}

func (k *keys) ClientCertificate(_ context.Context, name string, host names.Host) (*tls.Certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked = append(k.asked, name+" for "+host.String())
	if k.when != nil {
		k.when()
	}
	if c := k.certs[name]; c != nil {
		return c, nil
	}
	return nil, errors.New("no such credential")
}

// strict is an upstream that says whose certificate it was shown. It asks
// everybody.
func (r *rig) strict(host, addr string, clients *x509.CertPool) {
	r.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(r.t, err)
	r.net.add(host, addr)
	r.net.servers[netip.MustParseAddrPort(addr+":443")] = ln.Addr().String()
	cert, err := r.serverCA.Certificate(host)
	must(r.t, err)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		who := "nobody"
		if len(q.TLS.PeerCertificates) > 0 {
			who = q.TLS.PeerCertificates[0].DNSNames[0]
		}
		fmt.Fprintf(w, "%s from %s", who, q.RemoteAddr)
	})}
	go srv.Serve(tls.NewListener(ln, &tls.Config{
		Certificates: []tls.Certificate{*cert}, ClientAuth: tls.RequestClientCert, ClientCAs: clients, NextProtos: []string{"http/1.1"},
	}))
	r.t.Cleanup(func() { srv.Close() })
}

const withKeys = `version: 1
agents:
  dev:
    rules:
      - {host: api.example.com, id: a, paths: ["/a/**"], credential: key-a}
      - {host: api.example.com, id: b, paths: ["/b/**"], credential: key-b}
      - {host: api.example.com, id: c, paths: ["/c/**"]}
      - {host: api.example.com, id: d, paths: ["/d/**"], credential: gone}
`

func keyed(t *testing.T) (*rig, *keys) {
	t.Helper()
	clients, pool := newCA(t)
	k := &keys{certs: map[string]*tls.Certificate{}}
	for _, name := range []string{"key-a", "key-b"} {
		cert, err := clients.Certificate(name + ".clients.example")
		must(t, err)
		k.certs[name] = cert
	}
	r := newRig(t, "version: 1\n", func(r *rig) { r.cfg.Keys = k })
	r.known.AnyCredential = true
	r.apply(withKeys)
	r.strict(apiHost, apiAddr, pool)
	return r, k
}

func (r *rig) get(client *http.Client, path string) (*http.Response, string) {
	r.t.Helper()
	res, err := client.Get("https://api.example.com" + path)
	must(r.t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	must(r.t, err)
	return res, string(body)
}

// TestI11CredentialsHaveConnectionsOfTheirOwn: a request shows the certificate
// of its rule, or none, and never uses a connection that showed another.
func TestI11CredentialsHaveConnectionsOfTheirOwn(t *testing.T) {
	r, k := keyed(t)
	client := r.client(r.listen(netplan.Explicit))
	from := map[string]string{}
	for i, path := range []string{"/a/1", "/b/1", "/c/1", "/a/2", "/b/2", "/c/2"} {
		res, body := r.get(client, path)
		who, where, _ := strings.Cut(body, " from ")
		want := map[byte]string{'a': "key-a.clients.example", 'b': "key-b.clients.example", 'c': "nobody"}[path[1]]
		if res.StatusCode != 200 || who != want {
			t.Fatalf("%s: %s, shown %q, want %q", path, res.Status, who, want)
		}
		if i < 3 {
			for other, used := range from {
				if used == where {
					t.Errorf("%s and %s share a connection", path, other)
				}
			}
			from[path[:2]] = where
		} else if from[path[:2]] != where {
			t.Errorf("%s: another connection than the first", path)
		}
		d, o := r.journal.lastDecision(t, i+1), r.journal.lastOutcome(t, i+1)
		name := map[byte]string{'a': "key-a", 'b': "key-b"}[path[1]]
		if d.Credential != name || d.Sensitive != (name != "") {
			t.Errorf("%s: decision %+v", path, d)
		}
		if shown := o.Presented; shown != "" && (shown != name || o.Reused) || shown == "" && name != "" && !o.Reused {
			t.Errorf("%s: outcome %+v", path, o)
		}
	}
	if got := fmt.Sprint(k.asked); got != "[key-a for api.example.com key-b for api.example.com]" {
		t.Errorf("asked for %s", got)
	}
}

// TestI11UseOfACredentialIsOnTheDiskFirst: the journal is synced before the key
// is asked for, and where it cannot be, it is not asked for.
func TestI11UseOfACredentialIsOnTheDiskFirst(t *testing.T) {
	r, k := keyed(t)
	client := r.client(r.listen(netplan.Explicit))
	k.when = func() {
		r.journal.mu.Lock()
		defer r.journal.mu.Unlock()
		if n := len(r.journal.decisions); n == 0 || r.journal.synced != n {
			t.Errorf("asked with %d decisions, of which %d are on the disk", n, r.journal.synced)
		}
	}
	if res, _ := r.get(client, "/a/1"); res.StatusCode != 200 {
		t.Fatal(res.Status)
	}
	r.journal.mu.Lock()
	r.journal.failSync = errors.New("disk is gone")
	r.journal.mu.Unlock()
	res, err := client.Get("https://api.example.com/b/1")
	must(t, err)
	wantDenial(t, res, 503, codes.JournalUnavailable)
	if len(k.asked) != 1 || r.net.dials() != 1 {
		t.Errorf("asked for %v, dialled %v", k.asked, r.net.dialled)
	}
}

func TestACredentialThatIsNotThere(t *testing.T) {
	r, _ := keyed(t)
	client := r.client(r.listen(netplan.Explicit))
	res, err := client.Get("https://api.example.com/d/1")
	must(t, err)
	wantDenial(t, res, 503, codes.CredentialUnavailable)
	if o := r.journal.lastOutcome(t, 1); !strings.Contains(o.Error, "no such credential") || r.net.dials() != 0 {
		t.Errorf("outcome %+v", o)
	}
	r2 := newRig(t, "version: 1\n")
	r2.known.AnyCredential = true
	r2.apply(withKeys)
	res, err = r2.client(r2.listen(netplan.Explicit)).Get("https://api.example.com/a/1")
	must(t, err)
	wantDenial(t, res, 503, codes.CredentialUnavailable)
}

// TestI10ARequestWithAnotherCredentialIsCut while its response still comes.
func TestI10ARequestWithAnotherCredentialIsCut(t *testing.T) {
	r, _ := keyed(t)
	began := make(chan struct{})
	r.upstream("slow.example.com", "93.184.215.15", 443, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.WriteHeader(200)
		w.(http.Flusher).Flush()
		close(began)
		<-q.Context().Done()
	}))
	rule := "version: 1\nagents: {dev: {rules: [{host: slow.example.com, credential: %s}]}}\n"
	r.apply(fmt.Sprintf(rule, "key-a"))
	res, err := r.client(r.listen(netplan.Explicit)).Get("https://slow.example.com/")
	must(t, err)
	<-began
	r.apply(fmt.Sprintf(rule, "key-b"))
	if _, err := io.ReadAll(res.Body); err == nil {
		t.Error("the response came to an end")
	}
	if o := r.journal.lastOutcome(t, 1); o.Cut != "policy" || o.Code != codes.PolicyDenied {
		t.Errorf("outcome %+v", o)
	}
}

// TestAServerThatWantsACertificate says so after the handshake (TLS 1.3), in
// either version of HTTP.
func TestAServerThatWantsACertificate(t *testing.T) {
	for _, proto := range []string{"http/1.1", "h2"} {
		r := newRig(t, basic)
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		t.Cleanup(func() { ln.Close() })
		r.net.add(apiHost, apiAddr)
		r.net.servers[netip.MustParseAddrPort(apiAddr+":443")] = ln.Addr().String()
		cert, err := r.serverCA.Certificate(apiHost)
		must(t, err)
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{*cert}, ClientAuth: tls.RequireAnyClientCert, NextProtos: []string{proto}})
					s.Handshake()          //nolint:errcheck // it fails
					io.Copy(io.Discard, c) //nolint:errcheck // until the client goes
				}()
			}
		}()
		client := r.client(r.listen(netplan.Explicit))
		for i := range 20 {
			res, err := client.Get("https://api.example.com/v1/a")
			must(t, err)
			wantDenial(t, res, 502, codes.UpstreamTLSInvalid)
			if o := r.journal.lastOutcome(t, i+1); !strings.Contains(o.Error, "the server wants a certificate, and the rule has no credential") {
				t.Errorf("%s: outcome %+v", proto, o)
			}
		}
	}
}
