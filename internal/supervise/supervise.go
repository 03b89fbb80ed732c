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
	if err := errors.Join(CheckSelf(o.Self), checkRoot(o.Paths)); err != nil {
		return err
	}
	if _, _, err := handover.Collect(o.Config, time.Now()); err != nil {
		return fmt.Errorf("starting: %w", err)
	}
	unlock, err := Lock(o.Paths)
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

// Lock makes this the one supervisor of its root directory.
func Lock(p config.Paths) (unlock func(), err error) {
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
		return nil, fmt.Errorf("locking %s: Bawn runs already as process %s: stop it first, or use another --root", p.Lock(), strings.TrimSpace(string(pid[:n])))
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

// A Directory is one that must exist with exactly this owner and mode.
type Directory struct {
	Path         string
	Owner, Group string // names of an account and a group
	Mode         os.FileMode
}

// Directories are those of an installation, each after what holds it.
func Directories(p config.Paths) []Directory {
	const root, admin, proxy = "root", config.AdminAccount, config.ProxyAccount
	return []Directory{
		{p.Etc(), root, root, 0o755},
		{p.Lib(), root, root, 0o755},
		{p.State("admin"), admin, admin, 0o700},
		{p.Public(), admin, admin, 0o755},
		// admin reads the proxy's journal and cannot write it.
		{p.State("proxy"), proxy, admin, 0o750},
		{p.Journal("proxy"), proxy, admin, os.ModeSetgid | 0o750},
		{p.Agents(), root, root, 0o711},
	}
}

// Prepare makes what an installation needs before anything of it runs: the
// group of operators, the accounts, the directories. It may be called again.
func Prepare(ctx context.Context, p config.Paths) error {
	acc, err := ensureAccounts(ctx, p)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(p.Run(), 0o755); err != nil { // the machine's next start makes it by itself
		return fmt.Errorf("making %s: %w", p.Run(), err)
	}
	return makeDirectories(p, acc)
}

// makeDirectories makes the state directories. One that exists as something
// else, such as a link, is an error: it may have been put there.
func makeDirectories(p config.Paths, a accounts) error {
	for _, d := range Directories(p) {
		if err := os.MkdirAll(filepath.Dir(d.Path), 0o755); err != nil {
			return fmt.Errorf("making %s: %w", filepath.Dir(d.Path), err)
		}
		if err := os.Mkdir(d.Path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("making %s: %w", d.Path, err)
		}
		if err := own(d, a); err != nil {
			return fmt.Errorf("making %s: %w", d.Path, err)
		}
	}
	return nil
}

// own sets owner and mode through a descriptor, so that a link put in place
// cannot redirect it.
func own(d Directory, a accounts) error {
	fd, err := unix.Open(d.Path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), d.Path)
	defer f.Close()
	if err := f.Chown(a.of(d.Owner).uid, a.of(d.Group).gid); err != nil {
		return err
	}
	return f.Chmod(d.Mode)
}

// startTimeout is how long a child may take until it is ready.
const startTimeout = 15 * time.Second
