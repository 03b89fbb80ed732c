// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package ca

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// bundlePaths are where distributions keep all system roots in one file, in the
// order in which Go's crypto/x509 looks.
var bundlePaths = [...]string{
	"etc/ssl/certs/ca-certificates.crt",                // Debian, Ubuntu, Gentoo, Arch
	"etc/pki/tls/certs/ca-bundle.crt",                  // Fedora, RHEL
	"etc/ssl/ca-bundle.pem",                            // openSUSE
	"etc/pki/tls/cacert.pem",                           // OpenELEC
	"etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // CentOS, RHEL 7
	"etc/ssl/cert.pem",                                 // Alpine
}

// ErrNoSystemRoots says that the host has no bundle in any usual place.
var ErrNoSystemRoots = errors.New("no system CA bundle in the usual places: install the package ca-certificates")

// SystemRoots finds the bundle of the host's own roots under root, "/" for the
// host itself, and returns its path under root and its content.
func SystemRoots(root string) (path string, content []byte, err error) {
	for _, p := range bundlePaths {
		path := filepath.Join(root, p)
		content, err := os.ReadFile(path)
		if err == nil && len(bytes.TrimSpace(content)) > 0 {
			return path, content, nil
		}
	}
	return "", nil, ErrNoSystemRoots
}

// Bundle joins PEM sources into one: every certificate of each, in order, once.
// Other text is left out. A source without a certificate is an error, but for
// an empty one.
func Bundle(sources ...[]byte) ([]byte, error) {
	var out bytes.Buffer
	seen := make(map[string]bool)
	for i, rest := range sources {
		found := len(bytes.TrimSpace(rest)) == 0
		for {
			var block *pem.Block
			if block, rest = pem.Decode(rest); block == nil {
				break
			}
			if block.Type != "CERTIFICATE" {
				continue
			}
			found = true
			if seen[string(block.Bytes)] {
				continue
			}
			seen[string(block.Bytes)] = true
			out.Write(pemOf(block.Bytes))
		}
		if !found {
			return nil, fmt.Errorf("joining CA bundle: source %d holds no certificate", i+1)
		}
	}
	return out.Bytes(), nil
}

// WriteFile replaces path in one step: a reader sees the old content or the
// new, also after a power failure.
func WriteFile(path string, content []byte, mode os.FileMode) (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("replacing %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			os.Remove(tmp.Name())
			err = fmt.Errorf("replacing %s: %w", path, err)
		}
	}()
	if err := writeSync(tmp, content, mode); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// createExclusive makes a file for its owner's eyes only, which must not exist,
// and brings it to the disk. A crash leaves all of it or nothing: the content
// is written under another name, and a hard link, which never replaces, gives
// it its own.
func createExclusive(path string, content []byte) error {
	tmp := path + ".new"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = writeSync(f, content, 0o600)
	if err == nil {
		err = os.Link(tmp, path)
	}
	if err := errors.Join(err, os.Remove(tmp)); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func writeSync(f *os.File, content []byte, mode os.FileMode) error {
	_, err := f.Write(content)
	return errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
