// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"bawn/internal/undo"
)

// A World is one small internet. See the package comment.
type World struct {
	Names    Names
	Host     *Host
	DNS      *DNS      // the resolver of the internet
	Upstream *Upstream // its servers
	Attacker *Watcher  // the attacker's machines
	LAN      *Watcher  // the private service

	dir      string
	children []*child
	internet *child
	cgroups  []cgroupMount
	root     *pki
	spaces   []*os.File // the namespaces, to look for at the end
	undo     undo.Stack
	closed   bool
}

// TB is what New needs of a test.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
	Cleanup(func())
}

// New opens a world that ends with the test, and fails the test if anything of
// it is left then.
func New(t TB) *World {
	t.Helper()
	w, err := Open(context.Background())
	if err != nil {
		t.Fatalf("opening the world: %v", err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Errorf("closing the world: %v", err)
		}
	})
	return w
}

// Open builds a world. It needs root, and the programs ip-less: nft, nsenter,
// setpriv, unshare, git and openssl.
func Open(ctx context.Context) (*World, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("building the world: needs root")
	}
	for _, p := range []string{"nft", "nsenter", "setpriv", "unshare", "git", "openssl"} {
		if _, err := exec.LookPath(p); err != nil {
			return nil, fmt.Errorf("building the world: needs the program %s: %w", p, err)
		}
	}
	if err := sweep(); err != nil {
		return nil, err
	}
	w := &World{Names: AllNames()}
	if err := w.build(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("building the world: %w", err), w.Close())
	}
	return w, nil
}

// build makes everything in order and pushes what undoes it.
func (w *World) build(ctx context.Context) error {
	name, err := w.makeDir()
	if err != nil {
		return err
	}
	if w.cgroups, err = findCgroups(name); err != nil {
		return err
	}
	w.undo.Push("cgroups", func(context.Context) error { return removeCgroups(w.cgroups) })
	if err := makeCgroups(w.cgroups); err != nil {
		return err
	}
	setup, err := w.setup(ctx)
	if err != nil {
		return err
	}
	if err := w.startAll(); err != nil {
		return err
	}
	return w.configure(setup)
}

func (w *World) makeDir() (name string, err error) {
	name = dirPrefix + ownerTag() + "-" + newMark()
	w.dir = filepath.Join(baseDir, name)
	w.undo.Push("files", func(context.Context) error { return os.RemoveAll(w.dir) })
	// Open to all, since accounts of the host go through it to their homes.
	for _, d := range []string{"", "etc", "git", "home", "opt", "servers", "var", "var/lib", "var/log", "var/cache", "var/mail", "var/tmp"} {
		if err := os.Mkdir(filepath.Join(w.dir, d), 0o755); err != nil {
			return "", fmt.Errorf("making files: %w", err)
		}
	}
	return name, os.Chmod(filepath.Join(w.dir, "var/tmp"), 0o777|os.ModeSticky)
}

// setup makes the root of the world's certificates.
func (w *World) setup(ctx context.Context) (Setup, error) {
	s := Setup{Dir: w.dir, CgroupFSs: w.cgroups}
	var err error
	if w.root, err = newPKI("World Test Root"); err != nil {
		return s, err
	}
	if s.RootCert, s.RootKey, err = w.root.marshal(); err != nil {
		return s, fmt.Errorf("passing the root on: %w", err)
	}
	s.RootPEM = w.root.pem()
	cmd := exec.CommandContext(ctx, "openssl", "x509", "-noout", "-hash")
	cmd.Stdin = strings.NewReader(string(s.RootPEM))
	hash, err := cmd.Output()
	if err != nil {
		return s, fmt.Errorf("hashing the root's name: %w", err)
	}
	s.RootHash = strings.TrimSpace(string(hash))
	return s, nil
}

// startAll starts the processes; the internet comes last, with descriptors of
// the namespaces that it makes links to.
func (w *World) startAll() error {
	var dirs []string
	for _, m := range w.cgroups {
		dirs = append(dirs, m.Dir)
	}
	// The host's cgroup namespace begins where the process is: join first,
	// unshare then, and only then move to where the processes may be.
	before := []string{"/bin/sh", "-c", joinScript(dirs) + `exec unshare --cgroup -- "$@"`, "start"}
	links := make([]*os.File, 0, 3)
	defer func() {
		for _, f := range links {
			f.Close()
		}
	}()
	for _, role := range []string{roleHost, roleAttacker, roleLAN} {
		wrap := before
		if role != roleHost {
			wrap = nil
		}
		c, err := w.start(role, wrap)
		if err != nil {
			return err
		}
		ns, err := c.namespace("net")
		if err != nil {
			return err
		}
		links = append(links, ns)
	}
	internet, err := w.start(roleInternet, nil, links...)
	w.internet = internet
	return err
}

func (w *World) start(role string, before []string, extra ...*os.File) (*child, error) {
	c, err := start(w.dir, role, before, extra...)
	if err != nil {
		return nil, err
	}
	w.children = append(w.children, c)
	w.undo.Push(role, func(context.Context) error { c.stop(); return nil })
	return c, nil
}

// configure brings the processes to work, in the order of the packets' way.
func (w *World) configure(s Setup) error {
	host, attacker, lan := w.children[0], w.children[1], w.children[2]
	steps := []struct {
		c      *child
		method string
		args   any
	}{
		{w.internet, "Links", s}, {attacker, "Serve", s}, {lan, "Serve", s},
		{host, "Mounts", s}, {host, "Network", None{}}, {w.internet, "Serve", s},
	}
	// Once it answers it has the view of cgroups that it began with.
	if err := host.call("Ping", None{}, &None{}); err != nil {
		return err
	}
	if err := passOn(w.cgroups, host.cmd.Process.Pid); err != nil {
		return err
	}
	for _, step := range steps {
		if err := step.c.call(step.method, step.args, &None{}); err != nil {
			return err
		}
	}
	for _, c := range w.children {
		held, err := c.pin()
		w.spaces = append(w.spaces, held...)
		if err != nil {
			return err
		}
	}
	var procs []string
	for _, m := range w.cgroups {
		procs = append(procs, m.Procs)
	}
	w.Host = &Host{c: host, dir: w.dir, enter: joinScript(procs)}
	w.DNS = &DNS{w}
	w.Upstream = &Upstream{w}
	w.Attacker = &Watcher{w, attacker}
	w.LAN = &Watcher{w, lan}
	return nil
}

// RootPEM is the certificate of the world's root.
func (w *World) RootPEM() []byte { return w.root.pem() }

// Close ends everything and reports what is left: processes, namespaces,
// mounts, cgroups and files. Later calls do nothing.
func (w *World) Close() error {
	if w.closed {
		return nil
	}
	w.closed = true
	err := w.undo.Run(context.Background())
	return errors.Join(err, w.leftovers())
}

// newMark returns 12 random hex digits.
func newMark() string {
	b := make([]byte, 6)
	rand.Read(b)
	return hex.EncodeToString(b)
}
