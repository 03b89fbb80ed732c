// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Command demo shows Bawn at work in about a minute.
//
// It builds a private internet in network namespaces (package world), starts
// Bawn there as an operator would, lets an agent do its work, then lets it try
// to carry a secret out in ten ways, and shows the record. Every line that
// begins with "$" is a command that a reader can run on a host of their own.
// It needs root and leaves nothing behind.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"bawn/internal/world"
	"bawn/internal/world/operator"
)

func main() {
	world.Main()
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// run returns the exit status: 0 when everything that should pass passed and
// nothing got out, 1 otherwise, 2 for wrong use.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(stderr)
	binary := flags.String("bawn", "", "the program to show (default: built from the module in the current directory)")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := show(ctx, *binary, stdout); err != nil {
		fmt.Fprintf(stderr, "demo: %v\n", err)
		if os.Geteuid() != 0 {
			fmt.Fprintln(stderr, "hint: run it as root: sudo make demo")
		}
		return 1
	}
	return 0
}

func show(ctx context.Context, binary string, out io.Writer) (err error) {
	if binary == "" {
		dir, err := os.MkdirTemp("", "bawn-demo-")
		if err != nil {
			return fmt.Errorf("making a directory: %w", err)
		}
		defer os.RemoveAll(dir)
		if binary, err = build(ctx, dir); err != nil {
			return err
		}
	}
	w, err := world.Open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	fmt.Fprintf(out, intro, world.HostAddr, w.Names.Evil)
	op, err := operator.Start(ctx, w, operator.Options{Binary: binary})
	if err != nil {
		return err
	}
	s := &stage{op: op, w: w, out: out}
	return errors.Join(s.play(ctx), op.Stop())
}

// build compiles the program of this module.
func build(ctx context.Context, dir string) (string, error) {
	to := filepath.Join(dir, "bawn")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", to, "./cmd/bawn")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building bawn: %w: %s", err, text)
	}
	return to, nil
}

const intro = `Bawn in a minute
================
This runs in a private test internet: network namespaces on this machine with
no link to its interfaces. No packet leaves the machine, and nothing stays
behind. The programs are real: curl, git, npm, TLS, DNS.

  the host, where Bawn and the agent run   %s
  servers that the agent needs             api, git, registry (.example.com, .example.net)
  an attacker who counts what arrives      %s, on every port

`
