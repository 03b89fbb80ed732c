// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package ca

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"bawn/internal/roottest"
)

// A clock is set by hand.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

func realClock() *clock { return &clock{t: time.Now()} }

func openRoot(t *testing.T, c *clock) *Root {
	t.Helper()
	root, err := OpenRoot(t.TempDir(), c.now)
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func issue(t *testing.T, root *Root, c *clock) *Intermediate {
	t.Helper()
	req, err := NewRequest("Bawn egress intermediate")
	if err != nil {
		t.Fatal(err)
	}
	chain, err := root.SignIntermediate(req.CSR())
	if err != nil {
		t.Fatal(err)
	}
	i, err := req.Complete(chain, c.now())
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func newMinter(t *testing.T, c *clock) (*Minter, *Root) {
	t.Helper()
	root := openRoot(t, c)
	m, err := NewMinter(issue(t, root, c), c.now)
	if err != nil {
		t.Fatal(err)
	}
	return m, root
}

func mint(t *testing.T, m *Minter, name string) *tls.Certificate {
	t.Helper()
	cert, err := m.Certificate(name)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func parse(t *testing.T, der []byte) *x509.Certificate {
	t.Helper()
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// verifyGo checks a chain as a Go client does, at a time.
func verifyGo(root *Root, cert *tls.Certificate, name string, at time.Time) error {
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(root.Certificate())
	for _, der := range cert.Certificate[1:] {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return err
		}
		between.AddCert(c)
	}
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		return err
	}
	_, err = leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots, Intermediates: between, CurrentTime: at})
	return err
}

func TestRootIsMadeOnceAndKept(t *testing.T) {
	dir, c := t.TempDir(), realClock()
	first, err := OpenRoot(dir, c.now)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{rootKeyFile, RootCertFile} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %04o", name, info.Mode().Perm())
		}
	}
	second, err := OpenRoot(dir, c.now)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Certificate(), second.Certificate()) {
		t.Error("the second call made another root")
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 2 {
		t.Errorf("the directory holds %v", entries)
	}
	cert := first.cert
	if !cert.IsCA || cert.MaxPathLen != 1 || len(cert.PermittedDNSDomains)+len(cert.ExcludedDNSDomains) != 0 {
		t.Errorf("root: CA %v, path length %d", cert.IsCA, cert.MaxPathLen)
	}
	if life := cert.NotAfter.Sub(c.now()); life < rootLife-time.Minute || life > rootLife {
		t.Errorf("root lives for %v", life)
	}
}

func TestRootFilesThatAreWrong(t *testing.T) {
	cases := map[string]struct {
		spoil func(t *testing.T, dir string)
		want  string // in the error; empty: none
	}{
		"a crash left the key alone": {func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, RootCertFile)) }, ""},
		"a crash left a half-written key": {func(t *testing.T, dir string) {
			os.Remove(filepath.Join(dir, RootCertFile))
			os.Remove(filepath.Join(dir, rootKeyFile))
			os.WriteFile(filepath.Join(dir, rootKeyFile+".new"), []byte("-----BEG"), 0o600)
		}, ""},
		"the key is gone":   {func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, rootKeyFile)) }, "ca.key is missing"},
		"others may read":   {func(t *testing.T, dir string) { os.Chmod(filepath.Join(dir, rootKeyFile), 0o640) }, "set 0600"},
		"the key is broken": {func(t *testing.T, dir string) { os.Truncate(filepath.Join(dir, rootKeyFile), 40) }, "ca.key: not one PEM block"},
		"the key is another's": {func(t *testing.T, dir string) {
			other := t.TempDir()
			if _, err := OpenRoot(other, nil); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(filepath.Join(other, rootKeyFile), filepath.Join(dir, rootKeyFile)); err != nil {
				t.Fatal(err)
			}
		}, "is not the key of"},
		"the directory is gone": {func(t *testing.T, dir string) { os.RemoveAll(dir) }, "no such file or directory"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "ca")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if _, err := OpenRoot(dir, nil); err != nil {
				t.Fatal(err)
			}
			c.spoil(t, dir)
			_, err := OpenRoot(dir, nil)
			switch {
			case c.want == "" && err != nil:
				t.Errorf("got %v", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %v, want %q in it", err, c.want)
			}
		})
	}
}

func TestExpiredRootSaysSo(t *testing.T) {
	dir, c := t.TempDir(), realClock()
	if _, err := OpenRoot(dir, c.now); err != nil {
		t.Fatal(err)
	}
	c.add(rootLife + time.Hour)
	if _, err := OpenRoot(dir, c.now); err == nil || !strings.Contains(err.Error(), "expired on") {
		t.Errorf("got %v", err)
	}
}

func TestSigningRefusesWhatIsNoRequest(t *testing.T) {
	root := openRoot(t, realClock())
	req, err := NewRequest("x")
	if err != nil {
		t.Fatal(err)
	}
	forged := req.CSR()
	forged[len(forged)-1] ^= 1
	noName, err := NewRequest("")
	if err != nil {
		t.Fatal(err)
	}
	for name, csr := range map[string][]byte{
		"nothing": nil, "noise": []byte("csr"), "signature": forged, "no name": noName.CSR(),
	} {
		if _, err := root.SignIntermediate(csr); err == nil {
			t.Errorf("%s: signed", name)
		}
	}
}

func TestCompleteRefusesAnothersChain(t *testing.T) {
	c := realClock()
	root := openRoot(t, c)
	mine, _ := NewRequest("mine")
	theirs, _ := NewRequest("theirs")
	chain, err := root.SignIntermediate(theirs.CSR())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mine.Complete(chain, c.now()); err == nil {
		t.Error("took the chain of another key")
	}
	if _, err := theirs.Complete(root.Certificate(), c.now()); err == nil {
		t.Error("took a chain without an intermediate")
	}
	if _, err := theirs.Complete(chain, c.now().Add(intermediateLife)); err == nil {
		t.Error("took an intermediate that has ended")
	}
}

// TestWindowsLieInsideTheIssuers is what strict clients (.NET for one) demand.
func TestWindowsLieInsideTheIssuers(t *testing.T) {
	c := realClock()
	m, root := newMinter(t, c)
	for range 7 * 24 {
		cert, err := m.Certificate("a.example.com")
		if err != nil {
			t.Fatal(err)
		}
		leaf, between := parse(t, cert.Certificate[0]), parse(t, cert.Certificate[1])
		for _, pair := range [][2]*x509.Certificate{{leaf, between}, {between, root.cert}} {
			if pair[0].NotBefore.Before(pair[1].NotBefore) || pair[0].NotAfter.After(pair[1].NotAfter) {
				t.Fatalf("%v to %v is not inside %v to %v", pair[0].NotBefore, pair[0].NotAfter, pair[1].NotBefore, pair[1].NotAfter)
			}
		}
		if life := leaf.NotAfter.Sub(leaf.NotBefore); life > 7*24*time.Hour {
			t.Fatalf("leaf lives for %v", life)
		}
		// A clock that lags by almost a day still takes what was minted now.
		if err := verifyGo(root, cert, "a.example.com", c.now()); err != nil {
			t.Fatal(err)
		}
		if err := verifyGo(root, cert, "a.example.com", leaf.NotBefore); err != nil {
			t.Fatal(err)
		}
		c.add(time.Hour - time.Second)
	}
}

func TestBackdatedForClocksThatLag(t *testing.T) {
	c := realClock()
	m, root := newMinter(t, c)
	if err := verifyGo(root, mint(t, m, "a.example.com"), "a.example.com", c.now().Add(-backdate+time.Minute)); err != nil {
		t.Error(err)
	}
}

func TestLeafIsRenewedAtTwoThirdsAndNeverHandedOutExpired(t *testing.T) {
	c := realClock()
	m, root := newMinter(t, c)
	first := mint(t, m, "a.example.com")
	end := first.Leaf.NotAfter
	c.add(end.Sub(c.now())/3*2 - time.Minute)
	if mint(t, m, "a.example.com") != first {
		t.Error("renewed before two thirds")
	}
	c.add(2 * time.Minute)
	second := mint(t, m, "a.example.com")
	if second == first {
		t.Error("not renewed after two thirds")
	}
	// The intermediate ends a day behind the first leaf: what is minted until
	// then is valid, and nothing is minted afterwards.
	for {
		cert, err := m.Certificate("a.example.com")
		if !c.now().Before(m.issuer.NotAfter()) {
			if err == nil || !strings.Contains(err.Error(), "was not renewed") {
				t.Errorf("after the intermediate's end: %v", err)
			}
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := verifyGo(root, cert, "a.example.com", c.now()); err != nil {
			t.Fatal(err)
		}
		c.add(20 * time.Minute)
	}
	m.Use(issue(t, root, c))
	if err := verifyGo(root, mint(t, m, "a.example.com"), "a.example.com", c.now()); err != nil {
		t.Errorf("with the next intermediate: %v", err)
	}
}

func TestClockSetBackMintsAnew(t *testing.T) {
	c := realClock()
	m, root := newMinter(t, c)
	c.add(3 * 24 * time.Hour)
	first := mint(t, m, "a.example.com")
	c.add(-60 * time.Hour)
	second := mint(t, m, "a.example.com")
	if first == second {
		t.Fatal("handed out a leaf that is not valid yet")
	}
	if err := verifyGo(root, second, "a.example.com", c.now()); err != nil {
		t.Error(err)
	}
}

func TestIntermediateRenewsAtTwoThirds(t *testing.T) {
	c := realClock()
	i := issue(t, openRoot(t, c), c)
	if got, want := i.RenewAt().Sub(c.now()), intermediateLife*2/3; got > want || got < want-time.Minute {
		t.Errorf("renews after %v, want %v", got, want)
	}
}

func TestCacheIsBounded(t *testing.T) {
	m, _ := newMinter(t, realClock())
	mint(t, m, "kept.example.com")
	for i := range CacheSize + 600 {
		mint(t, m, fmt.Sprintf("n%d.example.com", i))
		mint(t, m, "kept.example.com")
	}
	if len(m.byName) != CacheSize || m.order.Len() != CacheSize {
		t.Errorf("cache holds %d names and %d leaves, want %d", len(m.byName), m.order.Len(), CacheSize)
	}
	before := m.Minted()
	mint(t, m, "kept.example.com")
	if m.Minted() != before {
		t.Error("a leaf in use was evicted")
	}
	mint(t, m, "n0.example.com")
	if m.Minted() != before+1 {
		t.Error("the oldest leaf was not evicted")
	}
}

func TestConcurrentAsksMintOnce(t *testing.T) {
	m, _ := newMinter(t, realClock())
	var wg sync.WaitGroup
	for range 64 {
		for i := range 4 {
			wg.Go(func() {
				if _, err := m.Certificate(fmt.Sprintf("n%d.example.com", i)); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	if m.Minted() != 4 {
		t.Errorf("minted %d leaves for 4 names", m.Minted())
	}
}

func TestNamesThatNoLeafCanHave(t *testing.T) {
	m, _ := newMinter(t, realClock())
	for _, name := range []string{"", strings.Repeat("a", 254), "fe80::1%eth0"} {
		for range 2 {
			if _, err := m.Certificate(name); err == nil {
				t.Errorf("%q: minted", name)
			}
		}
	}
	if len(m.byName) != 0 {
		t.Errorf("failures are kept: %d", len(m.byName))
	}
	if cert := mint(t, m, "2001:db8::1"); len(cert.Leaf.IPAddresses) != 1 || len(cert.Leaf.DNSNames) != 0 {
		t.Errorf("address: %+v", cert.Leaf)
	}
}

// serve starts a TLS server with the minter's leaf for name and returns its
// port, the path of a bundle that trusts it, and its root.
func serve(t *testing.T, name string) (port, bundle string) {
	t.Helper()
	m, root := newMinter(t, realClock())
	bundle = filepath.Join(t.TempDir(), "bundle.crt")
	content, err := Bundle(root.Certificate())
	if err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(bundle, content, 0o644); err != nil {
		t.Fatal(err)
	}
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) { return m.Certificate(name) },
	})
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{
		Handler:  http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "reached") }),
		ErrorLog: log.New(io.Discard, "", 0),
	}
	go srv.Serve(ln)
	t.Cleanup(func() { srv.Close() })
	_, port, err = net.SplitHostPort(ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port, bundle
}

func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		roottest.Skip(t, name+" is not installed")
	}
	return path
}

func TestRealClientsTakeTheChain(t *testing.T) {
	const host = "a-name-that-is-longer-than-the-64-bytes-of-a-common-name.agents.example.com"
	port, bundle := serve(t, host)
	clients := map[string][]string{
		"curl": {
			"-sS", "--max-time", "20", "--cacert", bundle, "--resolve", host + ":" + port + ":127.0.0.1",
			"--noproxy", "*", "https://" + host + ":" + port + "/",
		},
		"node": {"-e", `
			const fs = require("fs");
			require("https").get({host: "127.0.0.1", port: +process.argv[1], servername: process.argv[2],
				headers: {host: process.argv[2]}, ca: fs.readFileSync(process.argv[3])},
				r => r.on("data", d => process.stdout.write(d)))
				.on("error", e => { console.error(e); process.exit(1); })`, port, host, bundle},
		"python3": {"-c", `
import socket, ssl, sys
c = ssl.create_default_context(cafile=sys.argv[3])
c.verify_flags |= ssl.VERIFY_X509_STRICT
s = c.wrap_socket(socket.create_connection(("127.0.0.1", int(sys.argv[1])), 20), server_hostname=sys.argv[2])
s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
while True:
    b = s.recv(4096)
    if not b: break
    sys.stdout.write(b.decode())
`, port, host, bundle},
	}
	for name, args := range clients {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			out, err := exec.CommandContext(ctx, tool(t, name), args...).CombinedOutput()
			if err != nil || !bytes.Contains(out, []byte("reached")) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func TestOpensslVerifiesTheChainStrictly(t *testing.T) {
	m, root := newMinter(t, realClock())
	cert := mint(t, m, "a.example.com")
	dir := t.TempDir()
	write := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	args := []string{
		"verify", "-x509_strict", "-check_ss_sig", "-purpose", "sslserver", "-verify_hostname", "a.example.com",
		"-CAfile", write("root", root.Certificate()),
		"-untrusted", write("between", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[1]})),
		write("leaf", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]})),
	}
	if out, err := exec.CommandContext(t.Context(), tool(t, "openssl"), args...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestBundleJoinsAndDropsTheRest(t *testing.T) {
	c := realClock()
	a, b := openRoot(t, c).Certificate(), openRoot(t, c).Certificate()
	system := append([]byte("# a comment\n"), a...)
	system = append(bytes.TrimSuffix(system, []byte("\n")), '\n')
	got, err := Bundle(system, b, a, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := append(bytes.Clone(a), b...); !bytes.Equal(got, want) {
		t.Errorf("got %s", got)
	}
	if _, err := Bundle(a, []byte("no certificate")); err == nil {
		t.Error("took a source without a certificate")
	}
}

func TestSystemRootsAreFound(t *testing.T) {
	root := t.TempDir()
	if _, _, err := SystemRoots(root); err != ErrNoSystemRoots {
		t.Errorf("none: %v", err)
	}
	for i := len(bundlePaths) - 1; i >= 0; i-- {
		path := filepath.Join(root, bundlePaths[i])
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(bundlePaths[i]), 0o644); err != nil {
			t.Fatal(err)
		}
		got, content, err := SystemRoots(root)
		if err != nil || got != path || string(content) != bundlePaths[i] {
			t.Errorf("got %q, %q, %v, want %q", got, content, err, path)
		}
	}
}

func TestWriteFileReplacesInOneStep(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bundle")
	for _, content := range []string{"one", "two"} {
		if err := WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != content {
			t.Errorf("got %q, %v", got, err)
		}
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("left %v", entries)
	}
	if err := WriteFile(filepath.Join(path, "x"), nil, 0o644); err == nil {
		t.Error("wrote below a file")
	}
}

func BenchmarkMint(b *testing.B) {
	c := realClock()
	root, err := OpenRoot(b.TempDir(), c.now)
	if err != nil {
		b.Fatal(err)
	}
	req, _ := NewRequest("x")
	chain, err := root.SignIntermediate(req.CSR())
	if err != nil {
		b.Fatal(err)
	}
	i, err := req.Complete(chain, c.now())
	if err != nil {
		b.Fatal(err)
	}
	m, err := NewMinter(i, c.now)
	if err != nil {
		b.Fatal(err)
	}
	for n := 0; b.Loop(); n++ {
		if _, err := m.Certificate(fmt.Sprintf("n%d.example.com", n)); err != nil {
			b.Fatal(err)
		}
	}
}
