// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"bawn/internal/netplan"
	"bawn/internal/world"
	"bawn/internal/world/operator"
)

// startBawn runs Bawn as an operator does: "bawn up", an agent, a policy; the
// client is what the agent runs. The cost is that of all of Bawn's processes.
func startBawn(ctx context.Context, b *bench) (*peer, error) {
	if err := b.up(ctx); err != nil {
		return nil, err
	}
	p := &peer{
		proxy: fmt.Sprintf("%s:%d", netplan.Gateway, netplan.ProxyPort),
		roots: world.Bundle, // the agent's view has Bawn's root in it
		end:   b.op.Stop,
		load: func(ctx context.Context, argv ...string) *exec.Cmd {
			return b.op.Command(ctx, append([]string{"run", "--agent", benchAgent, "--no-tty", "--"}, argv...)...)
		},
	}
	var err error
	p.pid, err = findProcess(operator.Binary, "up")
	return p, err
}

// up installs Bawn on the first call and just starts it on later ones.
func (b *bench) up(ctx context.Context) error {
	if b.op != nil {
		return b.op.Up(ctx)
	}
	config := "version: 1\nresolvers: [127.0.0.1]\nupstream_roots: " + b.pki.originRoot + "\n"
	op, err := operator.Start(ctx, b.place.w, operator.Options{Binary: b.s.bawn, Config: config})
	if err != nil {
		return err
	}
	b.op = op
	_, err = op.Bawn(ctx, "agent", "create", benchAgent, "--user", "bench")
	if err == nil {
		err = op.Apply(ctx, benchPolicy())
	}
	if err != nil {
		return errors.Join(err, op.Stop())
	}
	return nil
}

// findProcess finds the process with a command line among the bench's own.
func findProcess(argv ...string) (int, error) {
	table, err := below(os.Getpid())
	if err != nil {
		return 0, err
	}
	want := []byte(strings.Join(argv, "\x00") + "\x00")
	for _, p := range table {
		line, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(p.pid), "cmdline"))
		if err == nil && bytes.Equal(line, want) {
			return p.pid, nil
		}
	}
	return 0, fmt.Errorf("no process runs %v", argv)
}
