// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package supply fetches what tests run and the machine need not have
// installed: packages of npm and of Debian.
//
// Both come into a cache of the account, where later runs find them, by the
// machine's own npm and apt with the machine's own settings. Nothing is
// installed: a server from Debian would be started at once, on the machine of
// whoever runs the tests. A package of Debian is unpacked beside the others
// instead; see [Debian.Env].
//
// # Concurrency
//
// Functions may be called by many goroutines and programs: one fetches, the
// others wait.
package supply

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// NPM gives a directory that holds node_modules with the packages, each as
// NAME or NAME@VERSION.
func NPM(packages ...string) (dir string, err error) {
	return cached("npm", packages, func(to string) error {
		args := append([]string{"install", "--silent", "--no-audit", "--no-fund", "--prefix", to}, packages...)
		out, err := exec.Command("npm", args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("npm install %s: %w: %s", strings.Join(packages, " "), err, out)
		}
		return nil
	})
}

// Debian is a directory with unpacked packages, as if it were the root of a
// file system.
type Debian struct{ Root string }

// Unpack gives a directory with Debian packages and what they need that the
// machine has not.
func Unpack(packages ...string) (Debian, error) {
	dir, err := cached("deb", packages, func(to string) error { return unpack(to, packages) })
	return Debian{dir}, err
}

func unpack(to string, packages []string) error {
	archives := filepath.Join(to, "archives")
	if err := os.MkdirAll(filepath.Join(archives, "partial"), 0o755); err != nil {
		return err
	}
	download := func() ([]byte, error) {
		// Packages that are installed count as well: they are wanted here.
		args := append([]string{
			"install", "-y", "-qq", "--reinstall", "--no-install-recommends", "--download-only",
			"-o", "Dir::Cache::archives=" + archives, "-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=root",
		}, packages...)
		return exec.Command("apt-get", args...).CombinedOutput()
	}
	out, err := download()
	if err != nil { // lists that are too old, or none
		_ = exec.Command("apt-get", "update", "-qq").Run()
		out, err = download()
	}
	if err != nil {
		return fmt.Errorf("downloading %s: %w: %s", strings.Join(packages, " "), err, out)
	}
	files, err := filepath.Glob(filepath.Join(archives, "*.deb"))
	if err != nil {
		return err
	}
	for _, f := range files {
		if out, err := exec.Command("dpkg-deb", "--extract", f, to).CombinedOutput(); err != nil {
			return fmt.Errorf("unpacking %s: %w: %s", f, err, out)
		}
	}
	return os.RemoveAll(archives)
}

// Needed gives the package with a version in its name for which a package
// without one stands: postgresql-15 for postgresql.
func Needed(name string) (string, error) {
	out, err := exec.Command("apt-cache", "depends", "--important", name).Output()
	if err != nil {
		return "", fmt.Errorf("asking what %s stands for: %w", name, err)
	}
	for line := range strings.Lines(string(out)) {
		_, dep, ok := strings.Cut(strings.TrimSpace(line), "Depends: ")
		if rest, found := strings.CutPrefix(dep, name+"-"); ok && found && rest != "" && strings.Trim(rest, "0123456789") == "" {
			return dep, nil
		}
	}
	return "", fmt.Errorf("asking what %s stands for: %q", name, out)
}

// Path gives the place of a file that packages put at path.
func (d Debian) Path(path string) string { return filepath.Join(d.Root, path) }

// Env is what a program of the packages needs in its environment to find its
// libraries and modules.
func (d Debian) Env() []string {
	libs, _ := filepath.Glob(d.Path("/usr/lib/*-linux-gnu*")) // the pattern is good
	libs = append(libs, d.Path("/usr/lib"))
	return []string{
		"LD_LIBRARY_PATH=" + strings.Join(libs, ":"),
		"PYTHONPATH=" + d.Path("/usr/lib/python3/dist-packages"),
	}
}

// cached gives the directory for a set of packages, filled by fill at the
// first call ever.
func cached(kind string, packages []string, fill func(to string) error) (string, error) {
	home, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("fetching packages: %w", err)
	}
	cache := filepath.Join(home, "bawn-tests", kind)
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", fmt.Errorf("fetching packages: %w", err)
	}
	name := strings.NewReplacer("@", "-", "/", "-").Replace(strings.Join(packages, "_"))
	dir := filepath.Join(cache, name)
	lock, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", fmt.Errorf("fetching packages: %w", err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", fmt.Errorf("fetching packages: %w", err)
	}
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	half := dir + ".half"
	if err := errors.Join(os.RemoveAll(half), os.MkdirAll(half, 0o755)); err != nil {
		return "", fmt.Errorf("fetching packages: %w", err)
	}
	if err := fill(half); err != nil {
		return "", errors.Join(fmt.Errorf("fetching packages: %w", err), os.RemoveAll(half))
	}
	return dir, os.Rename(half, dir)
}
