// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ownFiles gives the internet's machine accounts and files of its own, so that
// servers find what they need and leave nothing behind: beyond the world's
// directory and what is in memory, they can write nowhere.
func ownFiles(dir string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if err := unix.Mount(dir, dir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mounting %s: %w", dir, err)
	}
	for _, d := range []struct{ path, mode string }{{"/run", "0755"}, {"/dev/shm", "1777"}, {"/var/log", "0755"}} {
		if err := unix.Mount("tmpfs", d.path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode="+d.mode); err != nil {
			return fmt.Errorf("mounting %s: %w", d.path, err)
		}
	}
	passwd, group := accountFiles()
	for name, text := range map[string]string{"passwd": passwd, "group": group} {
		file := filepath.Join(dir, "servers", name)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return fmt.Errorf("writing accounts: %w", err)
		}
		if err := unix.Mount(file, "/etc/"+name, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mounting /etc/%s: %w", name, err)
		}
	}
	for name, n := range Accounts {
		home := "/run/" + name
		if err := os.Mkdir(home, 0o755); err != nil {
			return fmt.Errorf("making a home: %w", err)
		}
		if name == "sshd" {
			continue // its separation directory must belong to root
		}
		if err := os.Chown(home, n, n); err != nil {
			return fmt.Errorf("making a home: %w", err)
		}
	}
	if err := unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("making / read-only: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	return nil
}

func bindMount(from, to string) error {
	return unix.Mount(from, to, "", unix.MS_BIND, "")
}
