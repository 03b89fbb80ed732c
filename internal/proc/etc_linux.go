// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// notShown are the entries of the host's /etc that an agent has no use for:
// Bawn's configuration, which it must not even read, and what concerns log-ins.
var notShown = map[string]bool{
	"bawn": true, "shadow": true, "shadow-": true, "gshadow": true, "gshadow-": true,
	"sudoers": true, "sudoers.d": true, "opasswd": true, "krb5.keytab": true,
	"resolv.conf": true, "hosts": true, "hostname": true, "passwd": true, "group": true, // Bawn's own
}

// etc makes an /etc that shows each of the host's entries, read-only, but for
// the few that are the agent's own.
func (v *view) etc() error {
	entries, err := os.ReadDir("/etc")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if notShown[e.Name()] {
			continue
		}
		err := v.show(path.Join("/etc", e.Name()))
		if err != nil && !errors.Is(err, os.ErrNotExist) { // gone since it was listed
			return err
		}
	}
	passwd, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return err
	}
	group, err := os.ReadFile("/etc/group")
	if err != nil {
		return err
	}
	return errors.Join(
		v.root.write("etc/resolv.conf", v.spec.resolvConf()),
		v.root.write("etc/hosts", v.spec.hosts()),
		v.root.write("etc/hostname", v.spec.hostname()+"\n"),
		v.root.write("etc/passwd", v.spec.passwd(string(passwd))),
		v.root.write("etc/group", v.spec.group(string(group))),
	)
}

// certificates puts the bundle with Bawn's root wherever distributions keep
// theirs, so that programs which know nothing of Bawn trust it too.
func (v *view) certificates() error {
	public := path.Join(v.spec.State, "public")
	if err := v.bind(public, PublicPath); err != nil {
		return fmt.Errorf("showing Bawn's public certificates: %w", err)
	}
	replaced, err := v.replace(BundleFile, bundlePaths)
	if err != nil {
		return err
	}
	if !replaced {
		return fmt.Errorf("no certificate bundle of the system: none of %s exists; install the package ca-certificates",
			strings.Join(bundlePaths, ", "))
	}
	if _, err := os.Stat(path.Join(public, JavaFile)); err != nil {
		return nil
	}
	_, err = v.replace(JavaFile, javaPaths)
	return err
}

// bundlePaths are where distributions keep all trusted roots in one file.
// Several may lead to the same file.
var bundlePaths = []string{
	"/etc/ssl/certs/ca-certificates.crt",                // Debian, Ubuntu, Arch, Gentoo, Alpine, NixOS
	"/etc/ssl/certs/ca-bundle.crt",                      // NixOS
	"/etc/ssl/cert.pem",                                 // Alpine
	"/etc/ssl/ca-bundle.pem",                            // SUSE
	"/etc/pki/tls/certs/ca-bundle.crt",                  // Fedora, RHEL
	"/etc/pki/tls/cert.pem",                             // Fedora, RHEL
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // Fedora, RHEL
	"/etc/ca-certificates/extracted/tls-ca-bundle.pem",  // Arch
	"/var/lib/ca-certificates/ca-bundle.pem",            // SUSE
}

var javaPaths = []string{
	"/etc/ssl/certs/java/cacerts",                     // Debian, Ubuntu
	"/etc/pki/ca-trust/extracted/java/cacerts",        // Fedora, RHEL
	"/etc/ca-certificates/extracted/java-cacerts.jks", // Arch
	"/var/lib/ca-certificates/java-cacerts",           // SUSE
}

// replace puts the public file name over each of the places that exist. The file
// is admin's: a link in its place would be looked up on the host, and whatever it
// leads to, a socket of the host's services for instance, shown to the agent.
func (v *view) replace(name string, places []string) (any bool, err error) {
	file, err := v.root.open(path.Join(PublicPath, name), false)
	if err != nil {
		return false, fmt.Errorf("looking at Bawn's public file: %w", err)
	}
	defer unix.Close(file)
	var ours unix.Stat_t
	if err := unix.Fstat(file, &ours); err != nil || ours.Mode&unix.S_IFMT != unix.S_IFREG {
		return false, errors.Join(fmt.Errorf("public file %s is not a regular file", name), err)
	}
	for _, p := range places {
		at, err := v.root.open(p, true)
		if err != nil {
			continue // not this distribution's
		}
		err = cover(at, file, ours)
		unix.Close(at)
		if err != nil {
			return false, fmt.Errorf("replacing %s: %w", p, err)
		}
		any = true
	}
	return any, nil
}

// cover mounts a file on the place at, unless it is there already: several
// places may lead to one.
func cover(at, file int, ours unix.Stat_t) error {
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return err
	}
	if st.Dev == ours.Dev && st.Ino == ours.Ino {
		return nil
	}
	t, err := openTree(file, "", unix.AT_EMPTY_PATH)
	if err != nil {
		return err
	}
	return t.attach(at)
}
