// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package handover brings the proxy what only root may read: client
// certificates with their keys, and what a parent proxy wants to hear.
//
// [Collect] reads the files that the configuration names, as root, whenever the
// proxy is about to be started, and [Contents.File] makes a descriptor of them
// that the proxy inherits. So the proxy's account needs no right to the
// operator's files, nothing of them lies in another place, and no other process
// keeps them. [Take] is the other end. Where a service manager starts the
// processes, the proxy asks a socket of root's instead: [Ask] and [Give].
package handover

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"bawn/internal/config"
	"bawn/internal/names"
	"bawn/internal/secret"
)

// Contents are what is handed over.
type Contents struct {
	ParentCA       []byte // PEM; nil: none of its own
	ParentPassword secret.Text

	keys map[string]key
}

// Format keeps keys out of whatever prints contents.
func (c *Contents) Format(f fmt.State, _ rune) { fmt.Fprint(f, "[handover]") }

// A key is a client certificate and whom it may be shown to.
type key struct {
	hosts     []names.Host
	cert, pem []byte // certificate with chain, and private key, in PEM
	pair      tls.Certificate
}

// ClientCertificate returns the certificate of a credential for one host.
func (c *Contents) ClientCertificate(_ context.Context, credential string, host names.Host) (*tls.Certificate, error) {
	k, ok := c.keys[credential]
	switch {
	case !ok:
		return nil, fmt.Errorf("credential %s was not there when the proxy was started", credential)
	case !slices.Contains(k.hosts, host):
		return nil, fmt.Errorf("credential %s is not for %s", credential, host)
	}
	return &k.pair, nil
}

// Collect reads what c names. The warnings are about what will be used all the
// same. An error names every file that cannot be.
func Collect(c config.Config, now time.Time) (*Contents, []string, error) {
	out := &Contents{keys: map[string]key{}}
	var warnings []string
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c.Credentials)) {
		k, warns, err := readKey(c.Credentials[name], now)
		if err != nil {
			errs = append(errs, fmt.Errorf("reading credential %s: %w", name, err))
		}
		for _, w := range warns {
			warnings = append(warnings, "credential "+name+": "+w)
		}
		out.keys[name] = k
	}
	if err := out.readParent(c.ParentProxy); err != nil {
		errs = append(errs, err)
	}
	return out, warnings, errors.Join(errs...)
}

func readKey(c config.Credential, now time.Time) (k key, warnings []string, err error) {
	k.hosts = c.HostNames()
	if k.cert, err = readFile(c.Certificate, false); err != nil {
		return k, nil, err
	}
	if k.pem, err = readFile(c.Key, true); err != nil {
		return k, nil, err
	}
	if k.pair, err = tls.X509KeyPair(k.cert, k.pem); err != nil {
		return k, nil, fmt.Errorf("%s and %s: %w", c.Certificate, c.Key, err)
	}
	return k, doubts(k.pair.Leaf, now), nil
}

// doubts are why a server may not take a certificate.
func doubts(leaf *x509.Certificate, now time.Time) []string {
	var list []string
	switch {
	case now.After(leaf.NotAfter):
		list = append(list, "the certificate expired at "+leaf.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(leaf.NotBefore):
		list = append(list, "the certificate is not valid before "+leaf.NotBefore.UTC().Format(time.RFC3339))
	}
	forClients := len(leaf.ExtKeyUsage)+len(leaf.UnknownExtKeyUsage) == 0
	for _, u := range leaf.ExtKeyUsage {
		forClients = forClients || u == x509.ExtKeyUsageClientAuth || u == x509.ExtKeyUsageAny
	}
	if !forClients {
		list = append(list, "the certificate does not say that it is for clients (extended key usage)")
	}
	return list
}

func (c *Contents) readParent(p config.ParentProxy) error {
	var errs []error
	if p.CA != "" {
		pem, err := readFile(p.CA, false)
		if err == nil && !x509.NewCertPool().AppendCertsFromPEM(pem) {
			err = fmt.Errorf("%s: no certificate in it", p.CA)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("reading parent_proxy ca: %w", err))
		}
		c.ParentCA = pem
	}
	if p.PasswordFile != "" {
		password, err := readPassword(p.PasswordFile)
		if err != nil {
			errs = append(errs, fmt.Errorf("reading parent_proxy password_file: %w", err))
		}
		c.ParentPassword = password
	}
	return errors.Join(errs...)
}

// The form in which contents travel.
type (
	wire struct {
		Keys     map[string]wireKey `json:"keys"`
		CA       []byte             `json:"ca"`
		Password *string            `json:"password"`
	}
	wireKey struct {
		Hosts       []names.Host `json:"hosts"`
		Certificate []byte       `json:"certificate"`
		Key         []byte       `json:"key"`
	}
)

// File returns a descriptor that gives the contents to whoever holds it, once.
// It has no name, and nobody can change it.
func (c *Contents) File() (*os.File, error) {
	w := wire{Keys: map[string]wireKey{}, CA: c.ParentCA}
	if !c.ParentPassword.IsZero() {
		text := c.ParentPassword.Reveal()
		w.Password = &text
	}
	for name, k := range c.keys {
		w.Keys[name] = wireKey{k.hosts, k.cert, k.pem}
	}
	text, err := json.Marshal(w)
	if err != nil {
		return nil, fmt.Errorf("handing over: %w", err)
	}
	fd, err := unix.MemfdCreate("bawn-handover", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("handing over: making a file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), "handover")
	if _, err = f.Write(text); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("handing over: %w", err)
	}
	return f, nil
}

// maxContents bounds what is read of a descriptor.
const maxContents = 64 << 20

// Take reads what was handed over as descriptor fd, and closes it.
func Take(fd uintptr) (*Contents, error) {
	f := os.NewFile(fd, "handover")
	if f == nil {
		return nil, errors.New("taking over: there is no descriptor (bawn up starts this process)")
	}
	return take(f)
}

func take(f *os.File) (*Contents, error) {
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxContents))
	if err != nil {
		return nil, fmt.Errorf("taking over: %w (bawn up starts this process)", err)
	}
	var w wire
	if err := json.Unmarshal(text, &w); err != nil {
		return nil, errors.New("taking over: not what bawn up hands over") // the cause would quote it
	}
	c := &Contents{ParentCA: w.CA, keys: map[string]key{}}
	if w.Password != nil {
		c.ParentPassword = secret.New(*w.Password)
	}
	for name, k := range w.Keys {
		pair, err := tls.X509KeyPair(k.Certificate, k.Key)
		if err != nil {
			return nil, fmt.Errorf("taking over credential %s: %w", name, err)
		}
		c.keys[name] = key{k.Hosts, k.Certificate, k.Key, pair}
	}
	return c, nil
}
