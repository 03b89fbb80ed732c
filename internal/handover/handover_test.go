// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package handover_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"bawn/internal/config"
	"bawn/internal/handover"
	"bawn/internal/names"
	"bawn/internal/roottest"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// put writes a file of the test's directory.
func put(t *testing.T, dir, name string, text []byte, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(dir, name)
	must(t, os.WriteFile(path, text, mode))
	must(t, os.Chmod(path, mode))
	return path
}

// client writes a client certificate and its key.
func client(t *testing.T, dir, name string, change func(*x509.Certificate)) config.Credential {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	if change != nil {
		change(tmpl)
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	must(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	return config.Credential{
		Kind: config.TLSClient, Hosts: []string{"a.example.com"},
		Certificate: put(t, dir, name+".crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644),
		Key:         put(t, dir, name+".key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), 0o600),
	}
}

// TestWhatIsReadArrives goes the whole way from the files to the other process.
func TestWhatIsReadArrives(t *testing.T) {
	dir := t.TempDir()
	c := config.Default()
	c.Credentials = map[string]config.Credential{"k": client(t, dir, "k", nil)}
	ca, err := os.ReadFile(c.Credentials["k"].Certificate)
	must(t, err)
	c.ParentProxy = config.ParentProxy{
		Address: "https://proxy.example:1", CA: put(t, dir, "ca.crt", ca, 0o644),
		Username: "u", PasswordFile: put(t, dir, "password", []byte("hunter2\n"), 0o600),
	}
	contents, warnings, err := handover.Collect(c, time.Now())
	must(t, err)
	if len(warnings) > 0 {
		t.Errorf("warned: %v", warnings)
	}
	f, err := contents.File()
	must(t, err)
	if _, err := f.WriteAt([]byte("x"), 0); err == nil {
		t.Error("what is handed over can be changed")
	}
	fd, err := syscall.Dup(int(f.Fd()))
	must(t, err)
	f.Close()
	got, err := handover.Take(uintptr(fd))
	must(t, err)
	if got.ParentPassword.Reveal() != "hunter2" || string(got.ParentCA) != string(ca) {
		t.Errorf("parent: %q, %q", got.ParentPassword.Reveal(), got.ParentCA)
	}
	cert, err := got.ClientCertificate(t.Context(), "k", names.MustParse("a.example.com"))
	if err != nil || cert.Leaf.Subject.CommonName != "k" || cert.PrivateKey == nil {
		t.Errorf("certificate %v, %v", cert, err)
	}
	if text := fmt.Sprintf("%v %+v", got, contents); text != "[handover] [handover]" {
		t.Errorf("printed: %s", text)
	}
}

// TestI11AKeyIsForItsHostsOnly.
func TestI11AKeyIsForItsHostsOnly(t *testing.T) {
	c := config.Default()
	c.Credentials = map[string]config.Credential{"k": client(t, t.TempDir(), "k", nil)}
	contents, _, err := handover.Collect(c, time.Now())
	must(t, err)
	for _, ask := range [][2]string{{"k", "b.example.com"}, {"k", "example.com"}, {"k", "x.a.example.com"}, {"other", "a.example.com"}} {
		if cert, err := contents.ClientCertificate(t.Context(), ask[0], names.MustParse(ask[1])); err == nil || cert != nil {
			t.Errorf("%s for %s: given", ask[0], ask[1])
		}
	}
}

func TestFilesThatOthersCouldHaveAreRefused(t *testing.T) {
	dir := t.TempDir()
	good, other := client(t, dir, "good", nil), client(t, dir, "other", nil)
	text, err := os.ReadFile(good.Key)
	must(t, err)
	crt, err := os.ReadFile(good.Certificate)
	must(t, err)
	foreign := put(t, dir, "foreign", text, 0o600)
	if os.Geteuid() == 0 {
		must(t, os.Chown(foreign, 4711, 4711))
	}
	link := filepath.Join(dir, "link")
	must(t, os.Symlink(good.Key, link))
	loose := filepath.Join(dir, "loose")
	must(t, os.Symlink(put(t, dir, "open", text, 0o640), loose))
	for name, c := range map[string]struct {
		change func(*config.Credential)
		want   string // empty: fine
	}{
		"good":                   {func(*config.Credential) {}, ""},
		"behind a link":          {func(c *config.Credential) { c.Key = link }, ""},
		"the group may read":     {func(c *config.Credential) { c.Key = put(t, dir, "g", text, 0o640) }, "may be used by others than root (its mode is 0640): chmod 600 it"},
		"all may read":           {func(c *config.Credential) { c.Key = put(t, dir, "o", text, 0o604) }, "its mode is 0604"},
		"all may, behind a link": {func(c *config.Credential) { c.Key = loose }, "its mode is 0640"},
		"all may write":          {func(c *config.Credential) { c.Certificate = put(t, dir, "w", crt, 0o666) }, "may be written by others than root"},
		"not there":              {func(c *config.Credential) { c.Key = filepath.Join(dir, "none") }, "no such file"},
		"a directory":            {func(c *config.Credential) { c.Key = dir }, "is not a file"},
		"too large":              {func(c *config.Credential) { c.Key = put(t, dir, "l", make([]byte, 2<<20), 0o600) }, "has more than 1048576 bytes"},
		"no key in it":           {func(c *config.Credential) { c.Key = put(t, dir, "e", []byte("x"), 0o600) }, "failed to find any PEM data"},
		"another's key":          {func(c *config.Credential) { c.Key = other.Key }, "private key does not match public key"},
	} {
		cfg, cred := config.Default(), good
		c.change(&cred)
		cfg.Credentials = map[string]config.Credential{"k": cred}
		_, _, err := handover.Collect(cfg, time.Now())
		if (err == nil) != (c.want == "") || err != nil && !(strings.Contains(err.Error(), c.want) && strings.HasPrefix(err.Error(), "reading credential k: ")) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	roottest.Require(t)
	cfg := config.Default()
	good.Key = foreign
	cfg.Credentials = map[string]config.Credential{"k": good}
	if _, _, err := handover.Collect(cfg, time.Now()); err == nil || !strings.Contains(err.Error(), "belongs to uid 4711: chown root it") {
		t.Errorf("another's file: %v", err)
	}
}

func TestCertificatesThatServersMayRefuseAreWarnedOf(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*x509.Certificate)
		want   string
	}{
		"expired":     {func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }, "credential k: the certificate expired at "},
		"early":       {func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }, "is not valid before "},
		"for servers": {func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }, "for clients"},
		"for any use": {func(c *x509.Certificate) { c.ExtKeyUsage = nil }, ""},
	} {
		cfg := config.Default()
		cfg.Credentials = map[string]config.Credential{"k": client(t, t.TempDir(), "k", c.change)}
		_, warnings, err := handover.Collect(cfg, time.Now())
		if got := strings.Join(warnings, "\n"); err != nil || !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %v, %q, want %q", name, err, got, c.want)
		}
	}
}

func TestAParentsFiles(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		proxy config.ParentProxy
		want  string
	}{
		"a CA without certificate": {config.ParentProxy{CA: put(t, dir, "ca", []byte("x"), 0o644)}, "reading parent_proxy ca: "},
		"a password for all":       {config.ParentProxy{PasswordFile: put(t, dir, "p", []byte("x\n"), 0o644)}, "may be used by others"},
		"two lines":                {config.ParentProxy{PasswordFile: put(t, dir, "p2", []byte("x\ny\n"), 0o600)}, "is not one line"},
		"no password":              {config.ParentProxy{PasswordFile: put(t, dir, "p3", []byte("\n"), 0o600)}, "is not one line"},
	} {
		cfg := config.Default()
		cfg.ParentProxy = c.proxy
		if _, _, err := handover.Collect(cfg, time.Now()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestTakeQuotesNothing of what it cannot read.
func TestTakeQuotesNothing(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	must(t, err)
	io.WriteString(f, `{"password": hunter2`)
	f.Seek(0, io.SeekStart)
	fd, err := syscall.Dup(int(f.Fd()))
	must(t, err)
	if _, err := handover.Take(uintptr(fd)); err == nil || strings.Contains(err.Error(), "hunter") {
		t.Errorf("error %v", err)
	}
}
