// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// HostCalls is the first process of the host namespace. It is exported for
// net/rpc only.
type HostCalls struct{}

// reap collects the processes whose parents are gone, as a host's init does.
func reap() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGCHLD)
	for range c {
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if pid <= 0 && !errors.Is(err, syscall.EINTR) {
				break
			}
		}
	}
}

// fresh are the directories of which the host gets empty ones on the disk;
// idmapped mounts of tmpfs need a newer kernel than many hosts have.
var fresh = []string{"home", "opt", "var"}

// Ping says that the process runs.
func (h *HostCalls) Ping(None, *None) error { return nil }

// Mounts gives the host files of its own; everything else becomes read-only.
func (h *HostCalls) Mounts(s Setup, _ *None) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if err := privateEtc(s); err != nil {
		return err
	}
	for _, d := range fresh {
		if err := unix.Mount(filepath.Join(s.Dir, d), "/"+d, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mounting /%s: %w", d, err)
		}
	}
	for _, d := range []struct{ path, mode string }{{"/run", "0755"}, {"/tmp", "1777"}, {"/dev/shm", "1777"}} {
		if err := unix.Mount("tmpfs", d.path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode="+d.mode); err != nil {
			return fmt.Errorf("mounting %s: %w", d.path, err)
		}
	}
	if err := unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("making / read-only: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	if err := unix.Mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting /sys: %w", err)
	}
	if err := mountCgroups(s.CgroupFSs); err != nil {
		return err
	}
	return unix.Sethostname([]byte("host"))
}

// privateEtc lays a copy of /etc over it, without the machine's own settings
// of clients, and with the world's root and resolver.
func privateEtc(s Setup) error {
	etc := filepath.Join(s.Dir, "etc")
	if err := unix.Mount("tmpfs", etc, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return fmt.Errorf("mounting a tmpfs for /etc: %w", err)
	}
	if err := copyTree("/etc", etc); err != nil {
		return err
	}
	for _, f := range []string{"npmrc", "pip.conf", "gitconfig", "environment", "resolv.conf", "hosts"} {
		if err := os.RemoveAll(filepath.Join(etc, f)); err != nil {
			return fmt.Errorf("clearing /etc: %w", err)
		}
	}
	files := map[string]string{
		"resolv.conf":              "nameserver " + DNSAddr + "\noptions timeout:2 attempts:1\n",
		"hosts":                    "127.0.0.1 localhost\n::1 localhost\n",
		"hostname":                 "host\n",
		"nsswitch.conf":            "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n",
		"ssl/certs/world-root.pem": string(s.RootPEM),
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(etc, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("writing /etc/%s: %w", name, err)
		}
	}
	if err := os.Symlink("world-root.pem", filepath.Join(etc, "ssl/certs", s.RootHash+".0")); err != nil {
		return fmt.Errorf("adding the root: %w", err)
	}
	bundle, err := os.OpenFile(filepath.Join(etc, "ssl/certs/ca-certificates.crt"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("adding the root: %w", err)
	}
	defer bundle.Close()
	if _, err := bundle.Write(s.RootPEM); err != nil {
		return fmt.Errorf("adding the root: %w", err)
	}
	return unix.Mount(etc, "/etc", "", unix.MS_MOVE, "")
}

// copyTree copies directories, files and links with owners and modes; other
// kinds of files are left out.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("copying %s: %w", from, err)
		}
		target := filepath.Join(to, path[len(from):])
		info, err := d.Info()
		if err != nil {
			return fmt.Errorf("copying %s: %w", path, err)
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return fmt.Errorf("copying %s: no owner", path)
		}
		switch {
		case d.IsDir():
			err = os.MkdirAll(target, 0o755)
		case d.Type()&fs.ModeSymlink != 0:
			var link string
			if link, err = os.Readlink(path); err == nil {
				err = os.Symlink(link, target)
			}
		case d.Type().IsRegular():
			var text []byte
			if text, err = os.ReadFile(path); err == nil {
				err = os.WriteFile(target, text, 0o600)
			}
		default:
			return nil
		}
		if err == nil {
			err = os.Lchown(target, int(st.Uid), int(st.Gid))
		}
		if err == nil && d.Type()&fs.ModeSymlink == 0 {
			err = os.Chmod(target, info.Mode())
		}
		if err != nil {
			return fmt.Errorf("copying %s: %w", path, err)
		}
		return nil
	})
}

// Network sets the host's link up, with a default route to the internet.
func (h *HostCalls) Network(None, *None) error {
	if err := addresses("lo"); err != nil {
		return err
	}
	if err := addresses("eth0", HostAddr+"/24", HostAddr6+"/64"); err != nil {
		return err
	}
	if err := route("default", gatewayAddr); err != nil {
		return err
	}
	if err := route("default", gatewayAddr6); err != nil {
		return err
	}
	// Every account may send pings, as distributions set it, so that a ping
	// that does not get out was stopped by something else.
	if err := os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte("0 2147483647"), 0); err != nil {
		return fmt.Errorf("letting accounts ping: %w", err)
	}
	return carried("eth0")
}

// Mark sends a packet with the mark to each sniffer.
func (h *HostCalls) Mark(mark string, _ *None) error {
	for _, addr := range []string{AttackerAddr, LANAddr} {
		c, err := net.Dial("udp", net.JoinHostPort(addr, "9"))
		if err != nil {
			return fmt.Errorf("sending mark: %w", err)
		}
		_, err = c.Write([]byte(markPrefix + mark))
		c.Close()
		if err != nil {
			return fmt.Errorf("sending mark: %w", err)
		}
	}
	return nil
}
