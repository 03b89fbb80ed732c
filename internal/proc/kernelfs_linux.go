// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"errors"
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// devices are the host's device files that an agent sees. None of them leads
// to hardware.
var devices = []string{"null", "zero", "full", "random", "urandom", "tty"}

// dev makes a /dev of these devices and terminals of the agent's own.
func (v *view) dev() error {
	t, err := newMount("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC, [2]string{"mode", "0755"}, [2]string{"size", "64k"})
	if err != nil {
		return err
	}
	again, err := unix.Dup(int(t)) // to make it read-only once it is filled
	if err != nil {
		t.close()
		return err
	}
	defer unix.Close(again)
	if err := v.root.attach(t, "dev"); err != nil {
		return err
	}
	for _, name := range devices {
		if err := v.device(path.Join("/dev", name)); err != nil {
			return err
		}
	}
	links := [][2]string{
		{"pts/ptmx", "dev/ptmx"},
		{"/proc/self/fd", "dev/fd"},
		{"/proc/self/fd/0", "dev/stdin"},
		{"/proc/self/fd/1", "dev/stdout"},
		{"/proc/self/fd/2", "dev/stderr"},
	}
	for _, l := range links {
		if err := v.root.symlink(l[0], l[1]); err != nil {
			return err
		}
	}
	if err := v.terminals(); err != nil {
		return err
	}
	return tree(again).set(unix.MOUNT_ATTR_RDONLY, false)
}

// device shows one device file of the host's. A read-only mount does not keep
// anybody from writing to a device; it keeps its owner and mode as they are.
func (v *view) device(p string) error {
	if err := v.root.write(p, ""); err != nil {
		return err
	}
	t, err := openTree(unix.AT_FDCWD, p, 0)
	if err != nil {
		return err
	}
	if err := t.set(unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC|unix.MOUNT_ATTR_RDONLY, false); err != nil {
		t.close()
		return err
	}
	return v.root.attach(t, p)
}

// terminals makes /dev/pts, an instance of its own, so that no terminal of the
// host can be named, and /dev/shm.
func (v *view) terminals() error {
	if err := errors.Join(v.root.mkdir("dev/pts"), v.root.mkdir("dev/shm")); err != nil {
		return err
	}
	const tty = "5" // the group tty on every common distribution
	pts, err := newMount("devpts", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC,
		[2]string{"newinstance", ""}, [2]string{"ptmxmode", "0666"}, [2]string{"mode", "0620"}, [2]string{"gid", tty})
	if err != nil {
		return err
	}
	if err := v.root.attach(pts, "dev/pts"); err != nil {
		return err
	}
	shm, err := newMount("tmpfs", attrShared, [2]string{"mode", "1777"})
	if err != nil {
		return err
	}
	return v.root.attach(shm, "dev/shm")
}

// procMasked are files of /proc that tell about the host or its keys, and
// procReadOnly are what configures it; the lists are those that container
// run-times share. An agent is not root, so each is a second lock.
var (
	procMasked = []string{
		"acpi", "asound", "interrupts", "kcore", "keys", "latency_stats", "sched_debug",
		"scsi", "timer_list", "timer_stats", "kmsg", "kallsyms", "modules",
	}
	procReadOnly = []string{"bus", "fs", "irq", "sys", "sysrq-trigger"}
	sysMasked    = []string{"firmware", "devices/virtual/powercap"}
)

// proc mounts a /proc of the new PID namespace.
func (v *view) proc() error {
	t, err := newMount("proc", attrKernel)
	if err != nil {
		return err
	}
	if err := v.root.attach(t, "proc"); err != nil {
		return err
	}
	for _, name := range procReadOnly {
		if err := v.freeze(path.Join("/proc", name)); err != nil {
			return err
		}
	}
	return v.maskAll("/proc", procMasked)
}

// sys mounts a read-only /sys, which shows the links of the agent's own
// network namespace.
func (v *view) sys() error {
	t, err := newMount("sysfs", attrKernel|unix.MOUNT_ATTR_RDONLY)
	if err != nil {
		return err
	}
	if err := v.root.attach(t, "sys"); err != nil {
		return err
	}
	return v.maskAll("/sys", sysMasked)
}

// freeze mounts p on itself, read-only.
func (v *view) freeze(p string) error {
	t, err := openTree(int(v.root), rel(p), 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := t.set(attrKernel|unix.MOUNT_ATTR_RDONLY, false); err != nil {
		t.close()
		return err
	}
	return v.root.attach(t, p)
}

func (v *view) maskAll(dir string, names []string) error {
	for _, name := range names {
		at, err := v.root.open(path.Join(dir, name), false)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		err = v.mask(at)
		unix.Close(at)
		if err != nil {
			return fmt.Errorf("masking %s/%s: %w", dir, name, err)
		}
	}
	return nil
}
