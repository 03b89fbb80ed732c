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

// connsOfAgent is how many connections one of Bawn's agents holds in the bench;
// its bound is 256.
const connsOfAgent = 250

// startBawn runs Bawn as an operator does: "bawn up", agents, a policy; each
// client is what an agent runs. The cost is that of all of Bawn's processes.
func startBawn(ctx context.Context, b *bench) (*peer, error) {
	if err := b.up(ctx); err != nil {
		return nil, err
	}
	p := &peer{
		name:  "bawn",
		proxy: fmt.Sprintf("%s:%d", netplan.Gateway, netplan.ProxyPort),
		roots: world.Bundle, // the agent's view has Bawn's root in it
		end:   b.op.Stop, connsEach: connsOfAgent,
		lines: countDecisions(b.place.outside("/var/lib/bawn/proxy/journal")),
		client: func(ctx context.Context, n int, argv ...string) *exec.Cmd {
			return b.op.Command(ctx, append([]string{"run", "--agent", agentName(n), "--no-tty", "--"}, argv...)...)
		},
	}
	var err error
	p.pid, err = findProcess(operator.Binary, "up")
	return p, err
}

func bawnCannot(*row) string { return "" }

func agentName(n int) string { return fmt.Sprintf("%s-%d", benchAgent, n+1) }

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
	most := 1
	for _, r := range b.s.rows {
		most = max(most, r.conns)
	}
	var names []string
	for n := range (most + connsOfAgent - 1) / connsOfAgent {
		names = append(names, agentName(n))
		if _, err = op.Bawn(ctx, "agent", "create", agentName(n), "--user", "bench"); err != nil {
			break
		}
	}
	if err == nil {
		err = op.Apply(ctx, benchPolicy(names...))
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
