// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"bawn/internal/world"
)

// The upstream's names and address. The address counts as public, as a real
// upstream's does, and is one of lo's in the host where the bench runs: no
// packet leaves that.
const (
	originHost = "origin.bench.example.com" // speaks HTTP/1.1
	originH2   = "h2.bench.example.com"     // speaks HTTP/2 as well
	spliceHost = "splice.bench.example.com" // the same, and not to be looked into
	originAddr = "93.184.215.14"
	originPort = "443"
)

// Paths inside the host. What is below /opt agents can read.
const (
	benchDir  = "/opt/bench"
	benchFile = benchDir + "/bench"
	stateDir  = "/var/bench"
)

// A place is the host where everything of the bench runs: one of the tests'
// world, with accounts, files and a network of its own.
type place struct {
	w *world.World
}

// openPlace makes the host ready: the bench itself, lo with the upstream's
// address, and a name for it.
func openPlace(ctx context.Context) (*place, error) {
	w, err := world.Open(ctx)
	if err != nil {
		return nil, err
	}
	p := &place{w}
	if err := p.furnish(ctx); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return p, nil
}

func (p *place) furnish(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, dir := range []string{benchDir, stateDir} {
		if err := os.MkdirAll(p.outside(dir), 0o755); err != nil {
			return err
		}
	}
	if err := copyFile(self, p.outside(benchFile)); err != nil {
		return err
	}
	for _, line := range []string{
		"ip addr add " + originAddr + "/32 dev lo",
		"echo " + originAddr + " " + originHost + " " + originH2 + " " + spliceHost + " >>/etc/hosts",
		// Connections that were closed keep their ports for a minute.
		"echo 2048 65535 >/proc/sys/net/ipv4/ip_local_port_range",
	} {
		if out, err := p.command(ctx, "sh", "-c", line).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", line, err, out)
		}
	}
	return nil
}

// command prepares a program to run in the host as root.
func (p *place) command(ctx context.Context, argv ...string) *exec.Cmd {
	return p.w.Host.Command(ctx, argv...)
}

// outside is where a file of the host can be reached from here.
func (p *place) outside(path string) string { return p.w.Host.File(path) }

// freshDir makes a directory in the host.
func (p *place) freshDir(name string) (string, error) {
	dir, err := os.MkdirTemp(p.outside(stateDir), name)
	if err != nil {
		return "", err
	}
	return filepath.Join(stateDir, filepath.Base(dir)), os.Chmod(dir, 0o755)
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
