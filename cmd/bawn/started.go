// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"bawn/internal/backup"
	"bawn/internal/config"
	"bawn/internal/handover"
	"bawn/internal/notify"
	"bawn/internal/supervise"
)

// started is how this process was started: by "bawn up", which hands over
// descriptors, or by a service manager such as systemd, which has words for the
// same. Nothing else of a process knows the difference.
type started struct {
	manager notify.Manager
	paths   config.Paths
	log     *slog.Logger
}

func (a *app) started(process string) (started, error) {
	m, err := notify.FromEnv(os.Getenv, os.Getpid())
	if err == nil {
		err = backup.Interrupted(a.paths())
	}
	if err != nil {
		return started{}, fmt.Errorf("starting %s: %w", process, err)
	}
	// What is started from here is no service of the manager's.
	for _, name := range []string{"NOTIFY_SOCKET", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "WATCHDOG_PID", "WATCHDOG_USEC"} {
		os.Unsetenv(name)
	}
	return started{m, a.paths(), a.logger(process)}, nil
}

// listener takes over the socket that this process answers on.
func (s started) listener() (net.Listener, error) {
	if !s.manager.IsZero() && s.manager.Sockets() != 1 {
		return nil, fmt.Errorf("taking over the socket: the service manager gave %d, not 1 (is the socket unit installed?)", s.manager.Sockets())
	}
	return inherited(supervise.FirstFile)
}

// ready returns a function that tells that this process answers.
func (s started) ready() func() {
	if s.manager.IsZero() {
		return sayReady(supervise.FirstFile + 1)
	}
	return func() {
		if err := s.manager.Ready(); err != nil {
			s.log.Error("not known to be ready", "error", err)
		}
	}
}

// handover takes over what only root may read.
func (s started) handover(ctx context.Context) (*handover.Contents, error) {
	if s.manager.IsZero() {
		return handover.Take(supervise.FirstFile)
	}
	return handover.Ask(ctx, s.paths.HandoverSock())
}

// only makes sure that nothing else supervises this installation, for as long
// as the lock that it returns is not released. "bawn up" sees to that itself.
func (s started) only() (unlock func(), err error) {
	if s.manager.IsZero() {
		return func() {}, nil
	}
	return supervise.Lock(s.paths)
}

// live gives signs of life in the background until ctx is done.
func (s started) live(ctx context.Context) { go s.manager.Live(ctx, s.log) }

// inherited takes over the listening socket that the supervisor holds.
func inherited(fd int) (net.Listener, error) {
	f := os.NewFile(uintptr(fd), "listener")
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("taking over the socket from the supervisor: %w (bawn up starts this process)", err)
	}
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false)
	}
	return l, nil
}

// sayReady returns a function that tells the supervisor that this process
// answers.
func sayReady(fd int) func() {
	syscall.CloseOnExec(fd)
	return func() {
		f := os.NewFile(uintptr(fd), "ready")
		f.Write([]byte("\n"))
		f.Close()
	}
}

// handoverCommand is root's part in a start of the proxy by a service manager:
// standard input is the connection that the proxy has made.
func (a *app) handoverCommand() *cobra.Command {
	return &cobra.Command{
		Use: "handover", Hidden: true, Short: "Hand credentials to the proxy (a socket unit starts it)", Args: wants(),
		RunE: func(*cobra.Command, []string) error {
			c, err := net.FileConn(os.Stdin)
			if err != nil {
				return fmt.Errorf("handing over: standard input: %w", err)
			}
			defer c.Close()
			u, ok := c.(*net.UnixConn)
			if !ok {
				return errors.New("handing over: standard input is no Unix socket")
			}
			proxy, err := uidOf(config.ProxyAccount)
			if err != nil {
				return err
			}
			return handover.Give(u, proxy, a.collect)
		},
	}
}

// collect reads what the configuration names.
func (a *app) collect() (*handover.Contents, error) {
	cfg, err := config.Load(a.paths())
	if err != nil {
		return nil, err
	}
	contents, warnings, err := handover.Collect(cfg, time.Now())
	for _, w := range warnings {
		a.logger("handover").Warn(w)
	}
	return contents, err
}

// selftestCommand is what "bawn up" does by itself once all processes answer.
func (a *app) selftestCommand() *cobra.Command {
	return &cobra.Command{
		Use: "selftest", Hidden: true, Short: "Open the boundary once it holds (a unit starts it)", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.ready(cmd.Context()) },
	}
}
