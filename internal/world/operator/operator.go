// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package operator runs Bawn on the host of a world, as an operator would.
//
// [Start] runs "bawn up" as root and makes the account [Account], a member of
// group bawn and nothing more; all other commands run under it. Tests and the
// demonstration share this, so that both use Bawn in the one way that is
// documented.
package operator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"bawn/internal/world"
)

// Account is the operator's account on the host.
const Account = "oper"

// Binary is where the host has Bawn.
const Binary = "/opt/bawn/bin/bawn"

// Options say how Bawn is started.
type Options struct {
	Binary string            // outside: the program to install as [Binary]
	Root   string            // --root; empty means the default
	Env    []string          // additional variables for "bawn up"
	Config string            // text of config.yaml; empty: no file
	Files  map[string]string // more files beside it, by their names, which only root may read
}

// An Operator is a running Bawn and somebody who uses it.
type Operator struct {
	World *world.World
	o     Options
	up    *exec.Cmd
	ended chan struct{}
	log   transcript
}

// Start installs Bawn, starts it and waits until it says that it is ready.
func Start(ctx context.Context, w *world.World, o Options) (*Operator, error) {
	op := &Operator{World: w, o: o}
	if err := op.install(); err != nil {
		return nil, err
	}
	if err := w.Host.AddUser(ctx, Account); err != nil {
		return nil, err
	}
	if o.Config != "" {
		cmd := w.Host.Command(ctx, "sh", "-c", "mkdir -p \"$1\" && cat >\"$1/config.yaml\"", "sh", filepath.Join("/", o.Root, "etc/bawn"))
		cmd.Stdin = strings.NewReader(o.Config)
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("writing configuration: %w: %s", err, out)
		}
	}
	for name, text := range o.Files {
		cmd := w.Host.Command(ctx, "sh", "-c", `mkdir -p "${1%/*}" && umask 077 && cat >"$1"`, "sh", filepath.Join("/", o.Root, "etc/bawn", name))
		cmd.Stdin = strings.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("writing %s: %w: %s", name, err, out)
		}
	}
	if err := op.Up(ctx); err != nil {
		return nil, err
	}
	if out, err := w.Host.Command(ctx, "usermod", "--append", "--groups", "bawn", Account).CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("making %s an operator: %w: %s", Account, err, out), op.Stop())
	}
	return op, nil
}

// install copies the binary into the host.
func (op *Operator) install() error {
	to := op.World.Host.File(Binary)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return fmt.Errorf("installing bawn: %w", err)
	}
	in, err := os.Open(op.o.Binary)
	if err != nil {
		return fmt.Errorf("installing bawn: %w", err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return fmt.Errorf("installing bawn: %w", err)
	}
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("installing bawn: %w", err)
	}
	return nil
}

// readyLine is how the output of "bawn up" begins once it hands out agents.
const readyLine = "bawn: ready"

const pidFile = "/run/bawn-up.pid"

// Up starts "bawn up", with further variables in its environment, and waits
// for it, half a minute at most.
func (op *Operator) Up(ctx context.Context, env ...string) error {
	args := append([]string{"sh", "-c", `echo $$ >` + pidFile + `; exec "$@"`, "sh", Binary}, op.root()...)
	cmd := op.World.Host.Command(context.WithoutCancel(ctx), append(args, "up")...)
	cmd.Env = append(append(cmd.Env, op.o.Env...), env...)
	op.log.reset()
	cmd.Stdout, cmd.Stderr = &op.log, &op.log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting bawn up: %w", err)
	}
	ended := make(chan struct{})
	op.up, op.ended = cmd, ended
	go func() { _ = cmd.Wait(); close(ended) }()
	late := time.After(30 * time.Second)
	for {
		select {
		case <-ended:
			return fmt.Errorf("starting bawn up: it ended:\n%s", op.log.String())
		case <-late:
			return errors.Join(fmt.Errorf("starting bawn up: not ready after 30 s:\n%s", op.log.String()), op.Kill())
		case <-time.After(20 * time.Millisecond):
		}
		if strings.Contains("\n"+op.log.String(), "\n"+readyLine) {
			return nil
		}
	}
}

func (op *Operator) root() []string {
	if op.o.Root == "" {
		return nil
	}
	return []string{"--root", op.o.Root}
}

// Stop asks "bawn up" to end, as ctrl-C does, and waits half a minute at most.
func (op *Operator) Stop() error { return op.end("TERM") }

// Kill ends "bawn up" with SIGKILL.
func (op *Operator) Kill() error { return op.end("KILL") }

func (op *Operator) end(signal string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	out, err := op.World.Host.Command(ctx, "sh", "-c", "kill -"+signal+" $(cat "+pidFile+")").CombinedOutput()
	if err != nil {
		return fmt.Errorf("stopping bawn up: %w: %s", err, out)
	}
	select {
	case <-op.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stopping bawn up: still there after 30 s:\n%s", op.log.String())
	}
}

// Pause stops "bawn up", which starts no process again until [Operator.Resume].
func (op *Operator) Pause() error { return op.tell("STOP") }

// Resume continues it. The program that brought it into the host has stopped
// itself meanwhile, as a shell would see it, and has to hear of it too.
func (op *Operator) Resume() error {
	return errors.Join(op.tell("CONT"), op.up.Process.Signal(syscall.SIGCONT))
}

func (op *Operator) tell(signal string) error {
	out, err := op.World.Host.Command(context.Background(), "sh", "-c", "kill -"+signal+" $(cat "+pidFile+")").CombinedOutput()
	if err != nil {
		return fmt.Errorf("signalling bawn up: %w: %s", err, out)
	}
	return nil
}

// Log is what "bawn up" has printed since it was started last.
func (op *Operator) Log() string { return op.log.String() }

// Command prepares "bawn ARGS" under the operator's account.
func (op *Operator) Command(ctx context.Context, args ...string) *exec.Cmd {
	argv := append(append([]string{Binary}, op.root()...), args...)
	cmd := op.World.Host.CommandAs(ctx, Account, argv...)
	return cmd
}

// Bawn runs "bawn ARGS" under the operator's account and returns what it
// printed; the error holds that too.
func (op *Operator) Bawn(ctx context.Context, args ...string) (string, error) {
	out, err := op.Command(ctx, args...).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("bawn %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return string(out), nil
}

// Apply puts a policy in force.
func (op *Operator) Apply(ctx context.Context, yaml string) error {
	cmd := op.Command(ctx, "policy", "apply", "-")
	cmd.Stdin = strings.NewReader(yaml)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("applying policy: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// Process gives the process id, inside the host, of one of Bawn's processes:
// netd, admin or proxy.
func (op *Operator) Process(ctx context.Context, name string) (int, error) {
	out, err := op.World.Host.Command(ctx, "sh", "-c", `for p in /proc/[0-9]*; do
		tr '\0' ' ' <$p/cmdline 2>/dev/null | grep -qE "^[^ ]*bawn (--root [^ ]* )?$1 ?\$" && echo ${p#/proc/}
	done; true`, "sh", name).Output()
	if err != nil {
		return 0, fmt.Errorf("finding process %s: %w", name, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		return 0, fmt.Errorf("finding process %s: found %q", name, out)
	}
	return pid, nil
}

// transcript is a buffer that may be read while it is written.
type transcript struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (t *transcript) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.buf.Write(p)
}

func (t *transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.buf.String()
}

func (t *transcript) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf.Reset()
}
