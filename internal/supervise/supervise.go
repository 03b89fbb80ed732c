// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package supervise is `bawn up`: it makes what the processes of Bawn need
// (accounts, directories, sockets), starts them in order, and starts again
// what dies.
//
// The supervisor holds the listening sockets and hands them to each child, so
// a name in /run/bawn is never free to be taken while a child is away, and it
// holds nothing else: no policy, no connection, and keys only while it starts the
// proxy, to which it hands them (package handover). Children die with it.
package supervise

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"bawn/internal/config"
	"bawn/internal/handover"
	"bawn/internal/lifecycle"
)

// Options says what to run.
type Options struct {
	Paths  config.Paths
	Config config.Config
	Self   string   // path of the bawn binary
	Stderr *os.File // where children write their logs
	Log    *slog.Logger
	// Ready is called once all processes answer; its error ends Run. It is
	// called again after one of them has died and answers anew, until it
	// succeeds: what a process knew of the boundary's state died with it.
	Ready func(ctx context.Context) error
}

// Run prepares the host, runs the processes and blocks until ctx is done. It
// returns nil after an orderly stop. It never leaves the host half prepared:
// each step can be done again by the next start.
func Run(ctx context.Context, o Options) error {
	if os.Geteuid() != 0 {
		return errors.New("starting: bawn up needs root, since it makes accounts and namespaces (use sudo)")
	}
	if err := errors.Join(checkSelf(o.Self), checkRoot(o.Paths)); err != nil {
		return err
	}
	if _, _, err := handover.Collect(o.Config, time.Now()); err != nil {
		return fmt.Errorf("starting: %w", err)
	}
	unlock, err := lock(o.Paths)
	if err != nil {
		return err
	}
	defer unlock()
	acc, err := ensureAccounts(ctx, o.Paths)
	if err != nil {
		return err
	}
	if err := makeDirectories(o.Paths, acc); err != nil {
		return err
	}
	socks, err := listen(o.Paths, acc)
	if err != nil {
		return err
	}
	defer socks.close()
	return runChildren(ctx, o, children(o, acc, socks))
}

// lock makes this the one supervisor of its root directory.
func lock(p config.Paths) (unlock func(), err error) {
	if err := os.MkdirAll(p.Run(), 0o755); err != nil {
		return nil, fmt.Errorf("making %s: %w", p.Run(), err)
	}
	f, err := os.OpenFile(p.Lock(), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		pid := make([]byte, 32)
		n, _ := f.ReadAt(pid, 0)
		f.Close()
		return nil, fmt.Errorf("locking %s: bawn up runs already as process %s: stop it first, or use another --root", p.Lock(), strings.TrimSpace(string(pid[:n])))
	}
	f.Truncate(0)
	fmt.Fprintf(f, "%d\n", os.Getpid())
	return func() { f.Close() }, nil
}

// runChildren starts the children one after the other, each once the one
// before is ready, and stops them in reverse.
func runChildren(ctx context.Context, o Options, list []*child) error {
	services := make([]lifecycle.Service, 0, len(list)+1)
	again := make(chan struct{}, 1)
	for i, c := range list {
		c.again = again
		var after []<-chan struct{}
		if i > 0 {
			after = append(after, list[i-1].ready)
		}
		services = append(services, lifecycle.Service{Name: c.name, Run: func(ctx context.Context) error {
			if !wait(ctx, after...) {
				return nil
			}
			return c.keep(ctx)
		}})
	}
	services = append(services, lifecycle.Service{Name: "readiness", Run: func(ctx context.Context) error {
		if !wait(ctx, list[len(list)-1].ready) {
			return nil
		}
		if err := o.Ready(ctx); err != nil {
			return err
		}
		readyAgain(ctx, o, again)
		return nil
	}})
	return lifecycle.Run(ctx, services...)
}

// readyAgain calls Ready after each restart of a child, until ctx is done.
func readyAgain(ctx context.Context, o Options, again <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-again:
		}
		for err := o.Ready(ctx); err != nil; err = o.Ready(ctx) {
			o.Log.Error("not ready after the restart of a process; trying again", "error", err, "pause", lastPause)
			select {
			case <-ctx.Done():
				return
			case <-time.After(lastPause):
			}
		}
	}
}

// wait blocks until all of chans are closed and reports whether ctx is still
// wanted.
func wait(ctx context.Context, chans ...<-chan struct{}) bool {
	for _, ch := range chans {
		select {
		case <-ch:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// directory is one that must exist with exactly this owner and mode.
type directory struct {
	path     string
	uid, gid int
	mode     os.FileMode
}

func directories(p config.Paths, a accounts) []directory {
	return []directory{
		{p.Etc(), 0, 0, 0o755},
		{p.Lib(), 0, 0, 0o755},
		{p.State("admin"), a.admin.uid, a.admin.gid, 0o700},
		{p.Public(), a.admin.uid, a.admin.gid, 0o755},
		// admin reads the proxy's journal and cannot write it.
		{p.State("proxy"), a.proxy.uid, a.admin.gid, 0o750},
		{p.Journal("proxy"), a.proxy.uid, a.admin.gid, os.ModeSetgid | 0o750},
		{p.Agents(), 0, 0, 0o711},
	}
}

// makeDirectories makes the state directories. One that exists as something
// else, such as a link, is an error: it may have been put there.
func makeDirectories(p config.Paths, a accounts) error {
	for _, d := range directories(p, a) {
		if err := os.MkdirAll(filepath.Dir(d.path), 0o755); err != nil {
			return fmt.Errorf("making %s: %w", filepath.Dir(d.path), err)
		}
		if err := os.Mkdir(d.path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("making %s: %w", d.path, err)
		}
		if err := own(d); err != nil {
			return fmt.Errorf("making %s: %w", d.path, err)
		}
	}
	return nil
}

// own sets owner and mode through a descriptor, so that a link put in place
// cannot redirect it.
func own(d directory) error {
	fd, err := unix.Open(d.path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), d.path)
	defer f.Close()
	if err := f.Chown(d.uid, d.gid); err != nil {
		return err
	}
	return f.Chmod(d.mode)
}

// startTimeout is how long a child may take until it is ready.
const startTimeout = 15 * time.Second
