// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Path is the search path of every program in the world.
const Path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Bundle is the host's list of trusted roots; the world's own is in it.
const Bundle = "/etc/ssl/certs/ca-certificates.crt"

// A Host is the machine of the world on which Bawn runs.
type Host struct {
	c     *child
	dir   string
	enter string // shell code that moves into the host's cgroups and namespaces
}

// Command prepares a program to run on the host as root. Its environment is
// small and has none of the caller's variables; add to Env as needed. When ctx
// ends the program is killed with its process group.
func (h *Host) Command(ctx context.Context, argv ...string) *exec.Cmd {
	return h.command(ctx, "root", "/root", nil, argv)
}

// CommandAs is Command under the account user of the host, with its groups.
func (h *Host) CommandAs(ctx context.Context, user string, argv ...string) *exec.Cmd {
	as := []string{"setpriv", "--reuid=" + user, "--regid=" + user, "--init-groups", "--"}
	return h.command(ctx, user, "/home/"+user, as, argv)
}

func (h *Host) command(ctx context.Context, user, home string, before, argv []string) *exec.Cmd {
	script := fmt.Sprintf("%sexec nsenter -t %d -m -u -i -n -p -C -- \"$@\"", h.enter, h.c.cmd.Process.Pid)
	args := append([]string{"-c", script, "enter"}, before...)
	cmd := exec.CommandContext(ctx, "/bin/sh", append(args, argv...)...)
	cmd.Dir = "/"
	cmd.Env = []string{
		"PATH=" + Path, "HOME=" + home, "USER=" + user, "LOGNAME=" + user, "SHELL=/bin/sh",
		"LANG=C.UTF-8", "TERM=xterm", "NODE_EXTRA_CA_CERTS=" + Bundle,
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// File gives the place, outside, of a file of the host below /home, /opt or
// /var: a test may read and write there.
func (h *Host) File(path string) string { return filepath.Join(h.dir, path) }

// AddUser makes an account on the host, with a home and a shell.
func (h *Host) AddUser(ctx context.Context, name string) error {
	out, err := h.Command(ctx, "useradd", "--create-home", "--shell", "/bin/bash", "--user-group", name).CombinedOutput()
	if err != nil {
		return fmt.Errorf("adding account %s: %w: %s", name, err, out)
	}
	return nil
}
