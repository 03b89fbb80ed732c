// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	mathbig "math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bawn/internal/roottest"
	"bawn/internal/world"
	"bawn/internal/world/operator"
)

// partner makes a certificate for clients, and its key, in PEM.
func partner(t *testing.T) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: mathbig.NewInt(1), Subject: pkix.Name{CommonName: "the partner"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return block("CERTIFICATE", der), block("PRIVATE KEY", pkcs8)
}

// strict runs a server of OpenSSL's that serves only who shows cert, and says
// whose it was shown.
func strict(t *testing.T, w *world.World, cert string) {
	t.Helper()
	dir, err := w.Upstream.Folder("strict", "")
	if err == nil {
		err = w.Upstream.Certify(w.Names.TLS, dir, "")
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "clients.pem"), []byte(cert), 0o644)
	}
	if err == nil {
		err = w.Upstream.Run(world.Program{
			Name: "strict", Listens: world.TLSAddr + ":443",
			Argv: []string{
				"openssl", "s_server", "-accept", world.TLSAddr + ":443", "-cert", dir + "/cert.pem", "-key", dir + "/key.pem",
				"-www", "-Verify", "1", "-verify_return_error", "-CAfile", dir + "/clients.pem",
			},
		})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestI11AClientCertificateIsTheProxysAlone: the server sees it, and the record
// has each use; agents, and Bawn's own accounts but for the proxy's memory, have
// nothing of it.
func TestI11AClientCertificateIsTheProxysAlone(t *testing.T) {
	roottest.Require(t)
	w := world.New(t)
	cert, key := partner(t)
	strict(t, w, cert)
	op, err := operator.Start(t.Context(), w, operator.Options{
		Binary: built.bawn(t),
		Config: "version: 1\ncredentials: {partner: {kind: tls-client, certificate: /etc/bawn/partner.crt, key: /etc/bawn/partner.key, hosts: [" + w.Names.TLS + "]}}\n",
		Files:  map[string]string{"partner.crt": cert, "partner.key": key},
	})
	if err != nil {
		t.Fatal(err)
	}
	h := &host{op, w}
	h.agents(t)
	rules := func(rule string) string {
		return "version: 1\nprofiles: {p: {rules: [" + rule + "]}}\nagents: {dev: {profile: p}, guest: {profile: p}}\n"
	}
	for rule, want := range map[string]string{
		"{host: " + w.Names.TLS + ", credential: partnr}":  "did you mean partner?",
		"{host: " + w.Names.API + ", credential: partner}": `credential "partner" is not for api.example.com`,
	} {
		if err := h.Apply(t.Context(), rules(rule)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", rule, err, want)
		}
	}
	h.apply(t, rules("{host: "+w.Names.TLS+"}"))
	if status, code := h.curl(t, "dev", "https://"+w.Names.TLS+"/"); code != "upstream_tls_invalid" {
		t.Errorf("without a credential: %s %s", status, code)
	}
	h.apply(t, rules("{host: "+w.Names.TLS+", id: partner, credential: partner}"))
	if out := h.bawn(t, "policy", "explain", "dev", "GET", "https://"+w.Names.TLS+"/"); !strings.Contains(out, ", credential partner\n") {
		t.Errorf("explained:\n%s", out)
	}
	for placement, agent := range placements() {
		r := h.sh(t, agent, "curl -sS -m 60 https://"+w.Names.TLS+"/; cat /etc/bawn/partner.key /etc/bawn/partner.crt; env")
		if !strings.Contains(r.out, "CN = the partner") && !strings.Contains(r.out, "CN=the partner") {
			t.Errorf("%s: the server was shown nothing: %+v", placement, r)
		}
		if strings.Contains(r.out, "PRIVATE KEY") || strings.Count(r.err, "cat: ") != 2 {
			t.Errorf("%s: the agent has it: %+v", placement, r)
		}
	}
	d := h.decisions(t, func(r operator.Record) bool { return r.Rule == "partner" && r.Path == "/" })
	if len(d) != 2 || d[0].Credential != "partner" || !d[0].Sensitive {
		t.Errorf("decisions %+v", d)
	}
	eventually(t, "both outcomes say that it was presented", func() bool {
		records, err := h.Records()
		if err != nil {
			t.Fatal(err)
		}
		presented := 0
		for _, r := range records {
			if r.Presented == "partner" {
				presented++
			}
		}
		return presented == 2
	})
	for _, account := range []string{"bawn-proxy", "bawn-admin"} {
		if r := h.root(t, "setpriv --reuid="+account+" --regid="+account+" --clear-groups cat /etc/bawn/partner.key; grep -rlE 'PRIVATE KEY' /var/lib/bawn/proxy /run/bawn"); strings.Contains(r.out, "PRIVATE") || strings.Contains(r.out, "/bawn") {
			t.Errorf("%s: %+v", account, r)
		}
	}
	h.restartsOnlyWithAKeyThatIsRoots(t)
}

// restartsOnlyWithAKeyThatIsRoots opens the key to others.
func (h *host) restartsOnlyWithAKeyThatIsRoots(t *testing.T) {
	t.Helper()
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}
	if r := h.root(t, "chmod 640 /etc/bawn/partner.key"); r.status != 0 {
		t.Fatalf("%+v", r)
	}
	err := h.Up(t.Context())
	if err == nil || !strings.Contains(err.Error(), "reading credential partner: /etc/bawn/partner.key may be used by others than root (its mode is 0640): chmod 600 it") {
		t.Errorf("a key that others can read: %v", err)
	}
}
