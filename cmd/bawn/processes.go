// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"bawn/internal/admin"
	"bawn/internal/apitype"
	"bawn/internal/backup"
	"bawn/internal/config"
	"bawn/internal/doctor"
	"bawn/internal/supervise"
)

// logger writes to standard error, with the process's name in each line.
func (a *app) logger(process string) *slog.Logger {
	level := slog.LevelInfo
	if os.Getenv("BAWN_DEBUG") != "" {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: level})).With("process", process)
}

func (a *app) upCommand() *cobra.Command {
	return &cobra.Command{
		Use: "up", Short: "Run the boundary in the foreground (needs root)", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(a.paths())
			if err != nil {
				return err
			}
			if err := backup.Interrupted(a.paths()); err != nil {
				return fmt.Errorf("starting: %w", err)
			}
			self, err := os.Executable()
			if err != nil {
				return fmt.Errorf("finding bawn's own binary: %w", err)
			}
			stderr, ok := a.stderr.(*os.File)
			if !ok {
				return errors.New("starting: standard error is not a file")
			}
			err = supervise.Run(cmd.Context(), supervise.Options{
				Paths: a.paths(), Config: cfg, Self: self, Stderr: stderr, Log: a.logger("up"), Ready: a.ready,
			})
			if err == nil {
				fmt.Fprintln(a.stdout, "bawn: stopped, and every agent with it")
			}
			return err
		},
	}
}

// ready runs the self-test and says how it went. A boundary that leaks stays
// up, so that it can be looked at, and hands out no agent; a placement that
// cannot be had keeps nobody out of the other.
func (a *app) ready(ctx context.Context) error {
	d, err := a.client().Doctor(ctx)
	if err != nil {
		return fmt.Errorf("running the self-test: %w", err)
	}
	failed := failedPlacements(d)
	if len(failed) > 0 || d.Failed > 0 {
		printDoctor(a.stderr, d, false)
	}
	for _, p := range failed {
		fmt.Fprintf(a.stderr, "bawn: the self-test failed in placement %s: no agent is handed out there\n", p)
	}
	if d.OK {
		fmt.Fprintln(a.stdout, readyLine(d))
	}
	return nil
}

// readyLine says that agents are handed out, and what of the self-test did not
// pass all the same.
func readyLine(d apitype.Doctor) string {
	passed := 0
	for _, l := range d.Lines {
		if l.State == string(doctor.OK) {
			passed++
		}
	}
	s := fmt.Sprintf("bawn: ready: %s passed", count(passed, "self-test check"))
	if d.Failed > 0 {
		s += fmt.Sprintf(", %d failed", d.Failed)
	}
	if d.Warned > 0 {
		s += ", " + count(d.Warned, "warning")
	}
	return s
}

func (a *app) adminCommand() *cobra.Command {
	return &cobra.Command{
		Use: "admin", Hidden: true, Short: "Run the admin process (bawn up starts it)", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := unprivileged(); err != nil {
				return fmt.Errorf("starting admin: %w", err)
			}
			unix.Umask(0o077)
			o, err := a.adminOptions()
			if err != nil {
				return err
			}
			by, err := a.started("admin")
			if err != nil {
				return err
			}
			l, err := by.listener()
			if err != nil {
				return err
			}
			o.Ready = by.ready()
			by.live(cmd.Context())
			s, err := admin.Open(cmd.Context(), o)
			if err != nil {
				return err
			}
			return s.Run(cmd.Context(), l)
		},
	}
}

func (a *app) adminOptions() (admin.Options, error) {
	o := admin.Options{Paths: a.paths(), Version: version, Log: a.logger("admin"), Now: wallClock(), Built: builtAt()}
	var err error
	if o.Config, err = config.Load(o.Paths); err != nil {
		return o, err
	}
	if o.ProxyUID, err = uidOf(config.ProxyAccount); err != nil {
		return o, err
	}
	o.OperatorGID, err = operatorGID()
	return o, err
}

// builtAt is the time of the source that this program was built from, if the
// build has kept it.
func builtAt() time.Time {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return time.Time{}
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.time" {
			if t, err := time.Parse(time.RFC3339, s.Value); err == nil {
				return t
			}
		}
	}
	return time.Time{}
}

func operatorGID() (uint32, error) { return gidOf(config.Group) }

func gidOf(group string) (uint32, error) {
	g, err := user.LookupGroup(group)
	if err != nil {
		return 0, fmt.Errorf("looking up group %s: %w", group, err)
	}
	gid, err := strconv.ParseUint(g.Gid, 10, 32)
	return uint32(gid), err
}

func uidOf(account string) (uint32, error) {
	u, err := user.Lookup(account)
	if err != nil {
		return 0, fmt.Errorf("looking up account %s: %w", account, err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	return uint32(uid), err
}

// unprivileged makes sure that this process is what the design says: not root,
// without a capability, unable to gain any, and not to be traced by others of
// its account.
func unprivileged() error {
	if os.Geteuid() == 0 {
		return errors.New("this process must not be root: bawn up starts it under its own account")
	}
	if set, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil || set != 1 {
		return errors.New("this process must not be able to gain rights (no_new_privs): bawn up starts it so")
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("refusing to be traced: %w", err)
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&head, &sets[0]); err != nil {
		return fmt.Errorf("reading capabilities: %w", err)
	}
	for _, s := range sets {
		if s.Effective|s.Permitted|s.Inheritable != 0 {
			return errors.New("this process must have no capability")
		}
	}
	return nil
}
