// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// detach makes a mount of the operator's directory that only the view will
// have. Symbolic links cannot redirect it, since nothing is looked up: the
// descriptor is mounted. What is mounted below the directory does not come
// along.
//
// The owner's files become the agent's own in it. A file system that cannot do
// that is refused for writing; for reading it is mounted as it is, which shows
// the agent less, never more.
func (m *Mount) detach(uid, gid uint32, write bool) (t tree, err error) {
	if m.Dir == nil {
		return -1, fmt.Errorf("mounting %s: no descriptor came with it", m.Path)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(m.Dir.Fd()), &st); err != nil {
		return -1, fmt.Errorf("mounting %s: %w", m.Path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return -1, fmt.Errorf("mounting %s: not a directory", m.Path)
	}
	t, err = openTree(int(m.Dir.Fd()), "", unix.AT_EMPTY_PATH)
	if errors.Is(err, unix.EINVAL) {
		err = fmt.Errorf("%w: the directory belongs to another mount namespace (a container, or a service with mounts of its own)", err)
	}
	if err != nil {
		return -1, fmt.Errorf("mounting %s: %w", m.Path, err)
	}
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	attrs := uint64(attrShared)
	if !write {
		attrs = attrSystem
	}
	if err := t.set(attrs, false); err != nil {
		return -1, fmt.Errorf("mounting %s: %w", m.Path, err)
	}
	err = t.idmap(swap(m.OwnerUID, uid), swap(m.group(), gid))
	if errors.Is(err, unix.EINVAL) && !write {
		return t, nil
	}
	if errors.Is(err, unix.EINVAL) {
		err = fmt.Errorf("%w: its file system cannot map owners, so the agent could not write as you; "+
			"use a directory on ext4, xfs, btrfs or tmpfs, or --repo, which copies", err)
	}
	if err != nil {
		return -1, fmt.Errorf("mounting %s: %w", m.Path, err)
	}
	return t, nil
}

// group is the group whose rights the agent gets below the directory. It is
// never taken from the directory itself: an operator can name a directory of a
// group that is not theirs.
func (m *Mount) group() uint32 {
	const nogroup = 65534
	if m.OwnerGID == 0 && m.OwnerUID != 0 {
		return nogroup
	}
	return m.OwnerGID
}

// idmap makes the owners of the tree's files appear as mapped.
func (t tree) idmap(uids, gids []syscall.SysProcIDMap) error {
	userns, err := mappingNamespace(uids, gids)
	if err != nil {
		return err
	}
	defer userns.Close()
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(userns.Fd())}
	if err := unix.MountSetattr(int(t), "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return fmt.Errorf("mapping owners: %w", needKernel(err, "5.12"))
	}
	return nil
}

// swap maps owner a to b and b to a, and every other id to itself. A map that
// is one to one keeps every file usable: files of an unmapped owner could not
// even be deleted.
func swap(a, b uint32) []syscall.SysProcIDMap {
	const end = math.MaxUint32 // the last id stands for none
	lo, hi := int(min(a, b)), int(max(a, b))
	if lo == hi {
		return []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: end}}
	}
	var m []syscall.SysProcIDMap
	add := func(inside, outside, size int) {
		if size > 0 {
			m = append(m, syscall.SysProcIDMap{ContainerID: inside, HostID: outside, Size: size})
		}
	}
	add(0, 0, lo)
	add(lo, hi, 1)
	add(lo+1, lo+1, hi-lo-1)
	add(hi, lo, 1)
	add(hi+1, hi+1, end-hi-1)
	return m
}

// mappingNamespace makes a user namespace that carries the maps and holds no
// process: the one that it was made with is stopped before its first
// instruction, and killed.
func mappingNamespace(uids, gids []syscall.SysProcIDMap) (*os.File, error) {
	runtime.LockOSThread() // a traced process answers to one thread
	defer runtime.UnlockOSThread()
	p, err := os.StartProcess("/proc/self/exe", []string{"bawn"}, &os.ProcAttr{
		Sys: &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER,
			UidMappings: uids,
			GidMappings: gids,
			Pdeathsig:   syscall.SIGKILL,
			Ptrace:      true,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("making a user namespace to map owners (see sysctl user.max_user_namespaces): %w", err)
	}
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", p.Pid))
	p.Kill()
	p.Wait()
	if err != nil {
		return nil, fmt.Errorf("opening the user namespace that maps owners: %w", err)
	}
	return ns, nil
}
