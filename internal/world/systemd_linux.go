// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// A Systemd is the real service manager, process 1 of a process namespace of
// its own within the host. It starts nothing by itself: every unit that the
// distribution would start with the machine is masked, the journal too, and
// services write to a file instead.
type Systemd struct {
	h    *Host
	pid  string // of process 1, as the host sees it
	done chan error
}

// The places of what systemd and its services print.
const (
	systemdConsole = "/var/log/systemd.log"
	servicesLog    = "/var/log/services.log"
)

// bootScript prepares the mounts and becomes systemd. The kernel's settings
// are the machine's: only those of the network namespace may be written.
const bootScript = `set -eu
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
mount -t proc proc /mnt
mount --bind /mnt/sys/net /proc/sys/net
umount -l /mnt
: >` + systemdConsole + ` && : >` + servicesLog + ` && chmod 666 ` + servicesLog + `
mount --bind ` + systemdConsole + ` /dev/console
mkdir -p /run/systemd/system /run/systemd/system/service.d /etc/systemd/system.conf.d
for d in /lib/systemd/system/*.target.wants /etc/systemd/system/*.target.wants; do
	for u in "$d"/*; do ln -sf /dev/null "/run/systemd/system/${u##*/}"; done
done
rm -rf /etc/systemd/system/*.wants
printf '[Service]\nStandardOutput=append:` + servicesLog + `\nStandardError=inherit\n' >/run/systemd/system/service.d/log.conf
printf '[Unit]\nDescription=Nothing yet\nDefaultDependencies=no\nAllowIsolate=yes\n' >/run/systemd/system/idle.target
export container=bawn-world
exec /lib/systemd/systemd --system --unit=idle.target --log-target=console --log-level=info --show-status=0`

// Systemd boots the service manager and waits until it answers.
func (h *Host) Systemd(ctx context.Context) (*Systemd, error) {
	cmd := h.Command(context.WithoutCancel(ctx), "unshare", "--pid", "--mount", "--propagation", "private", "--fork", "--kill-child=KILL", "--mount-proc", "sh", "-c", bootScript)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("booting systemd: %w", err)
	}
	s := &Systemd{h: h, done: make(chan error, 1)}
	go func() { s.done <- cmd.Wait() }()
	for range 600 {
		select {
		case err := <-s.done:
			return nil, fmt.Errorf("booting systemd: it ended: %v: %s", err, out.String())
		case <-time.After(50 * time.Millisecond):
		}
		if s.find(ctx) && s.Command(ctx, "systemctl", "is-system-running").Run() != nil {
			// Not "running" yet is no failure: it answers.
		}
		if s.pid != "" && s.Command(ctx, "systemctl", "show", "idle.target").Run() == nil {
			return s, nil
		}
	}
	return nil, errors.Join(errors.New("booting systemd: it does not answer: "+s.Console()), s.Kill(ctx))
}

// find looks for process 1.
func (s *Systemd) find(ctx context.Context) bool {
	out, err := s.h.Command(ctx, "pgrep", "-x", "systemd").Output()
	s.pid = ""
	if fields := strings.Fields(string(out)); err == nil && len(fields) == 1 {
		s.pid = fields[0]
	}
	return s.pid != ""
}

// Command prepares a program to run as root where systemd sees it.
func (s *Systemd) Command(ctx context.Context, argv ...string) *exec.Cmd {
	return s.h.Command(ctx, append([]string{"nsenter", "-t", s.pid, "-p", "-m", "--"}, argv...)...)
}

// CommandAs is Command under the account user of the host, with its groups.
func (s *Systemd) CommandAs(ctx context.Context, user string, argv ...string) *exec.Cmd {
	as := []string{"setpriv", "--reuid=" + user, "--regid=" + user, "--init-groups", "--"}
	cmd := s.Command(ctx, append(as, argv...)...)
	for i, v := range cmd.Env {
		switch name, _, _ := strings.Cut(v, "="); name {
		case "HOME":
			cmd.Env[i] = "HOME=/home/" + user
		case "USER", "LOGNAME":
			cmd.Env[i] = name + "=" + user
		}
	}
	return cmd
}

// Console is what systemd has printed, and Services what its services have.
func (s *Systemd) Console() string { return s.h.read(systemdConsole) }

// Services is what the services have printed.
func (s *Systemd) Services() string { return s.h.read(servicesLog) }

func (h *Host) read(path string) string {
	text, err := os.ReadFile(filepath.Join(h.dir, path))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Kill ends systemd and everything that it started.
func (s *Systemd) Kill(ctx context.Context) error {
	if s.pid == "" {
		return nil
	}
	if out, err := s.h.Command(ctx, "kill", "-KILL", s.pid).CombinedOutput(); err != nil {
		return fmt.Errorf("ending systemd: %w: %s", err, out)
	}
	select {
	case <-s.done:
	case <-time.After(20 * time.Second):
		return errors.New("ending systemd: still there after 20 s")
	}
	return nil
}
