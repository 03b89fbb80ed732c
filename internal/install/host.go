// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"

	"bawn/internal/config"
	"bawn/internal/supervise"
)

// Install plans everything that makes an installation of this host: files,
// accounts, directories, and what systemd is told where it runs.
func Install(ctx context.Context, l Layout, force bool) (Plan, error) {
	plan, err := l.plan(force)
	if err != nil {
		return nil, err
	}
	plan = append(plan, accountSteps(ctx, l.Paths)...)
	return append(plan, systemdSteps(ctx, l.Paths.Root, booted())...), nil
}

// systemdSteps make the units known and have them start with the machine, or say
// why that is left to somebody else.
func systemdSteps(ctx context.Context, root string, booted bool) Plan {
	reload := Step{Action: Makes, What: "systemd's view of the units (systemctl daemon-reload)", do: systemctl(ctx, "daemon-reload")}
	enable := Step{Action: Makes, What: "the start of " + Target + " with the machine (systemctl enable " + Target + ")", do: systemctl(ctx, "--quiet", "enable", Target)}
	why := ""
	switch {
	case root != "/":
		why = "left out below another root: systemctl link brings the units in"
	case !booted:
		why = "left out: systemd does not run here"
	}
	if why != "" {
		reload.Action, reload.Why, enable.Action, enable.Why = Keeps, why, Keeps, why
	}
	return Plan{reload, enable}
}

// accountSteps has one step for each account that is missing, and one for the
// directories.
func accountSteps(ctx context.Context, p config.Paths) Plan {
	var plan Plan
	add := func(what string, err error) {
		s := Step{Action: Keeps, What: what, Why: "it is there"}
		switch {
		case errors.Is(err, fs.ErrPermission):
			s.Action, s.Why = Unseen, "only root can see whether it is there"
		case err != nil:
			s.Action, s.Why = Makes, ""
		}
		s.do = func() (string, error) { return "", supervise.Prepare(ctx, p) }
		plan = append(plan, s)
	}
	_, err := user.LookupGroup(config.Group)
	add("group "+config.Group, err)
	for _, name := range []string{config.AdminAccount, config.ProxyAccount} {
		_, err := user.Lookup(name)
		add("account "+name, err)
	}
	run := supervise.Directory{Path: p.Run(), Mode: 0o755}
	for _, d := range append(supervise.Directories(p), run) {
		info, err := os.Lstat(d.Path)
		if err == nil && (!info.IsDir() || info.Mode().Perm() != d.Mode.Perm()) {
			err = fs.ErrInvalid // Prepare puts it right, or says why it cannot
		}
		add("directory "+d.Path, err)
	}
	return plan
}

// booted reports whether systemd is this host's (sd_booted(3)).
func booted() bool {
	info, err := os.Lstat("/run/systemd/system")
	return err == nil && info.IsDir()
}

func systemctl(ctx context.Context, args ...string) func() (string, error) {
	return func() (string, error) {
		out, err := exec.CommandContext(ctx, "systemctl", args...).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
		}
		return "", nil
	}
}

// Removal says what Uninstall takes away.
type Removal struct {
	Force bool // files that were changed by hand too
	Purge bool // data, configuration and accounts too
}

// Uninstall plans the way back. Bawn must not run when the plan is applied: the
// first step stops it where systemd runs, and the next one makes sure.
func Uninstall(ctx context.Context, l Layout, r Removal) (Plan, error) {
	files, err := l.Files()
	if err != nil {
		return nil, err
	}
	var plan Plan
	tell := booted() && l.Paths.Root == "/" && unitsThere(files)
	if tell {
		plan = append(plan, Step{Action: Removes, What: "the start of " + Target + ", and what runs", do: stopUnits(ctx, files)})
	}
	plan = append(plan, Step{Action: Removes, What: "the lock " + l.Paths.Lock(), do: func() (string, error) {
		if _, err := os.Lstat(l.Paths.Run()); errors.Is(err, fs.ErrNotExist) {
			return "", nil
		}
		unlock, err := supervise.Lock(l.Paths)
		if err != nil {
			return "", err
		}
		defer unlock()
		return "", os.RemoveAll(l.Paths.Run())
	}})
	steps, err := removals(files, r)
	if err != nil {
		return nil, err
	}
	plan = append(plan, steps...)
	if tell {
		plan = append(plan, Step{Action: Makes, What: "systemd's view of the units", do: systemctl(ctx, "daemon-reload")})
	}
	if r.Purge {
		plan = append(plan, purge(ctx, l)...)
	}
	plan = append(plan, Step{Action: Removes, What: "directories that are empty now", do: func() (string, error) { l.tidy(); return "", nil }})
	return plan, nil
}

// unitsThere reports whether a unit of ours is on the host.
func unitsThere(files []File) bool {
	for _, f := range files {
		if strings.HasSuffix(f.Path, "/"+Target) {
			_, regular, have, err := look(f.Path)
			return err == nil && regular && stateOf(have) != foreign
		}
	}
	return false
}

// stopUnits stops and disables everything, sockets too.
func stopUnits(ctx context.Context, files []File) func() (string, error) {
	args := []string{"--quiet", "stop", Target}
	for _, f := range files {
		name := f.Path[strings.LastIndex(f.Path, "/")+1:]
		if (strings.HasSuffix(name, ".service") || strings.HasSuffix(name, ".socket")) && !strings.Contains(name, "@") {
			args = append(args, name)
		}
	}
	return func() (string, error) {
		_, err := systemctl(ctx, "--quiet", "disable", Target)()
		if err == nil {
			_, err = systemctl(ctx, args...)()
		}
		return "", err
	}
}

// removals says what becomes of the files.
func removals(files []File, r Removal) (Plan, error) {
	var plan Plan
	for _, f := range files {
		exists, regular, have, err := look(f.Path)
		if err != nil {
			return nil, err
		}
		if !exists {
			continue
		}
		s := Step{Action: Removes, What: f.Path}
		switch {
		case !regular, stateOf(have) == foreign && !(f.Config && r.Purge):
			s.Action, s.Why = Keeps, "it is not Bawn's"
		case stateOf(have) == edited && f.Config && !r.Purge:
			s.Action, s.Why = Keeps, "it was changed; --purge removes it"
		case stateOf(have) == edited && !r.Purge && !r.Force:
			s.Action, s.Why = Keeps, "it was changed by hand; --force removes it"
		}
		plan = append(plan, s)
	}
	return plan, nil
}

// everyHost are directories that are systemd's own, be they empty.
var everyHost = map[string]bool{"/": true, "/etc": true, "/etc/systemd/system": true, "/etc/sysusers.d": true, "/etc/tmpfiles.d": true, "/var/lib": true, "/run": true}

// tidy removes directories of the layout that are empty. Those that every host
// has stay.
func (l Layout) tidy() {
	p := l.Paths
	for _, dir := range []string{l.Units, l.Sysusers, l.Tmpfiles, filepath.Dir(p.Lib()), filepath.Dir(p.Run()), filepath.Dir(p.Etc())} {
		for at := dir; at != p.Root && !everyHost[at]; at = filepath.Dir(at) {
			err := os.Remove(at)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				break // something is in it
			}
		}
	}
}
