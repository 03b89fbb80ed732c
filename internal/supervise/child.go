// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"bawn/internal/handover"
)

// A child is one process of Bawn, started again when it ends.
type child struct {
	name   string
	argv   []string
	cred   *syscall.Credential      // nil: stays root
	files  []*os.File               // become descriptors 3 and up, the ready pipe last
	fresh  func() (*os.File, error) // nil, or makes one more for each start, before the ready pipe
	stderr *os.File
	log    *slog.Logger

	ready     chan struct{} // closed when it was ready for the first time
	again     chan struct{} // nil, or told each time that it is ready after a death
	firstTime sync.Once
}

// FirstFile is the number under which a child finds the first descriptor that
// it was handed: the listening socket, and for the proxy what package handover
// brings it. The next number is the pipe on which it says that it is ready.
const FirstFile = 3

func children(o Options, a accounts, s sockets) []*child {
	make := func(name string, acc *account, files ...*os.File) *child {
		c := &child{
			name: name, argv: []string{o.Self, "--root", o.Paths.Root, name},
			files: files, stderr: o.Stderr, log: o.Log, ready: make(chan struct{}),
		}
		if acc != nil {
			c.cred = &syscall.Credential{Uid: uint32(acc.uid), Gid: uint32(acc.gid), Groups: []uint32{}}
		}
		return c
	}
	proxy := make("proxy", &a.proxy)
	proxy.fresh = o.handover
	return []*child{make("netd", nil, s.netd), make("admin", &a.admin, s.admin), proxy}
}

// handover reads the operator's files anew for each start of the proxy.
func (o Options) handover() (*os.File, error) {
	contents, warnings, err := handover.Collect(o.Config, time.Now())
	if err != nil {
		return nil, err
	}
	for _, w := range warnings {
		o.Log.Warn(w)
	}
	return contents.File()
}

// The pause before a child is started again grows from the first to the
// second while it keeps dying.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
)

// keep runs the child until ctx is done. A child that was never ready ends
// keep with an error: what cannot start once will not start by repetition.
func (c *child) keep(ctx context.Context) error {
	pause := firstPause
	for {
		began := time.Now()
		err := c.once(ctx)
		if ctx.Err() != nil {
			return nil
		}
		select {
		case <-c.ready:
		default:
			return fmt.Errorf("starting %s: %w", c.name, err)
		}
		if time.Since(began) > lastPause {
			pause = firstPause
		}
		c.log.Error("a process of Bawn ended and is started again", "process", c.name, "error", err, "pause", pause)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, lastPause)
	}
}

// once runs the child a single time, on a thread that lives as long as the
// child does: the kernel sends the child its death signal when the thread that
// made it ends (prctl(2), PR_SET_PDEATHSIG). A process without root inherits
// from that thread that no program it might execute gains a right. The thread
// is never used for anything else: it ends with the goroutine.
func (c *child) once(ctx context.Context) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if c.cred != nil {
			if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
				done <- fmt.Errorf("setting no_new_privs: %w", err)
				return
			}
		}
		done <- c.run(ctx)
	}()
	return <-done
}

// stopGrace is what a child has between SIGTERM and SIGKILL.
const stopGrace = 5 * time.Second

func (c *child) run(ctx context.Context) error {
	readyRead, readyWrite, err := os.Pipe()
	if err != nil {
		return err
	}
	defer readyRead.Close()
	files, done, err := c.handed()
	if err != nil {
		readyWrite.Close()
		return err
	}
	cmd := exec.CommandContext(ctx, c.argv[0], c.argv[1:]...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Env = append(cmd.Env, passedOn(os.Environ())...)
	cmd.Stdout, cmd.Stderr = c.stderr, c.stderr
	cmd.ExtraFiles = append(files, readyWrite)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, Credential: c.cred}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopGrace
	err = cmd.Start()
	readyWrite.Close()
	done()
	if err != nil {
		return err
	}
	late := time.AfterFunc(startTimeout, func() {
		c.log.Error("a process of Bawn is not ready in time", "process", c.name)
		cmd.Process.Kill()
	})
	defer late.Stop()
	if c.waitReady(readyRead) {
		late.Stop()
		c.log.Debug("ready", "process", c.name, "pid", cmd.Process.Pid)
		c.sayReady()
	}
	if err := cmd.Wait(); err != nil {
		return err
	}
	return errors.New("it ended by itself")
}

// handed returns what the child gets, and what to do once it has it.
func (c *child) handed() (files []*os.File, done func(), err error) {
	files = slices.Clone(c.files)
	if c.fresh == nil {
		return files, func() {}, nil
	}
	f, err := c.fresh()
	if err != nil {
		return nil, nil, err
	}
	return append(files, f), func() { f.Close() }, nil
}

// sayReady says that the child answers. Several restarts that nobody has looked
// at yet are one.
func (c *child) sayReady() {
	first := false
	c.firstTime.Do(func() { first = true; close(c.ready) })
	if first || c.again == nil {
		return
	}
	select {
	case c.again <- struct{}{}:
	default:
	}
}

// waitReady reports whether the child said that it is ready; it has not if its
// end of the pipe closes first.
func (c *child) waitReady(r *os.File) bool {
	said, _ := io.ReadAll(io.LimitReader(r, 1))
	return bytes.Equal(said, []byte("\n"))
}
