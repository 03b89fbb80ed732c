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

// Mount attributes of the view. Nothing in it may lend a set-id bit or a
// device, whoever put it there.
const (
	attrShared = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV // what agents may write
	attrSystem = attrShared | unix.MOUNT_ATTR_RDONLY            // what they may only read
	attrKernel = attrShared | unix.MOUNT_ATTR_NOEXEC            // proc and sysfs
)

// A tree is a detached mount: nobody can reach it until it is attached, and
// closing it unattached unmounts it.
type tree int

// openTree makes a detached copy of the mount at p below dir. flags may hold
// AT_RECURSIVE, AT_EMPTY_PATH and AT_SYMLINK_NOFOLLOW.
func openTree(dir int, p string, flags uint) (tree, error) {
	fd, err := unix.OpenTree(dir, p, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|flags)
	if err != nil {
		return -1, fmt.Errorf("copying the mount of %s: %w", p, needKernel(err, "5.2"))
	}
	return tree(fd), nil
}

// newMount makes a detached mount of a file system of its own. Each option is
// KEY or KEY=VALUE.
func newMount(kind string, attrs int, options ...[2]string) (tree, error) {
	fs, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("opening file system %s: %w", kind, needKernel(err, "5.2"))
	}
	defer unix.Close(fs)
	for _, o := range options {
		if err := setOption(fs, o); err != nil {
			return -1, fmt.Errorf("setting %s=%s of %s: %w", o[0], o[1], kind, err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("making a %s: %w", kind, err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attrs)
	if err != nil {
		return -1, fmt.Errorf("mounting %s: %w", kind, err)
	}
	return tree(fd), nil
}

func setOption(fs int, o [2]string) error {
	if o[1] == "" {
		return unix.FsconfigSetFlag(fs, o[0])
	}
	return unix.FsconfigSetString(fs, o[0], o[1])
}

// set adds attributes to the tree and, if recursive, to all mounts within.
func (t tree) set(attrs uint64, recursive bool) error {
	flags := uint(unix.AT_EMPTY_PATH)
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	attr := unix.MountAttr{Attr_set: attrs}
	if err := unix.MountSetattr(int(t), "", flags, &attr); err != nil {
		return fmt.Errorf("setting mount attributes: %w", needKernel(err, "5.12"))
	}
	return nil
}

// attach puts the tree on the directory or file that the descriptor at names,
// and closes it.
func (t tree) attach(at int) error {
	defer t.close()
	const both = unix.MOVE_MOUNT_F_EMPTY_PATH | unix.MOVE_MOUNT_T_EMPTY_PATH
	return unix.MoveMount(int(t), "", at, "", both)
}

func (t tree) close() {
	if t >= 0 {
		unix.Close(int(t))
	}
}

// A root is the new root directory while it is built. Its paths are relative
// and never leave it: whatever symbolic links lie in it, they are followed
// inside.
type root int

// open opens p for use as a place. follow says whether symbolic links are.
func (r root) open(p string, follow bool) (int, error) {
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	}
	if !follow {
		how.Resolve |= unix.RESOLVE_NO_SYMLINKS
	}
	fd, err := unix.Openat2(int(r), rel(p), &how)
	if err != nil {
		return -1, &os.PathError{Op: "opening", Path: p, Err: needKernel(err, "5.6")}
	}
	return fd, nil
}

// attach puts t on p, which exists and is reached without a symbolic link.
func (r root) attach(t tree, p string) error {
	at, err := r.open(p, false)
	if err != nil {
		t.close()
		return err
	}
	defer unix.Close(at)
	if err := t.attach(at); err != nil {
		return fmt.Errorf("mounting on %s: %w", p, err)
	}
	return nil
}

// mkdir makes p and its missing parents, mode 0755, root's.
func (r root) mkdir(p string) error {
	p = rel(p)
	if p == "." {
		return nil
	}
	if err := r.mkdir(path.Dir(p)); err != nil {
		return err
	}
	parent, err := r.open(path.Dir(p), false)
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	err = unix.Mkdirat(parent, path.Base(p), 0o755)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return &os.PathError{Op: "making", Path: p, Err: err}
	}
	return nil
}

// symlink makes p a symbolic link to target.
func (r root) symlink(target, p string) error {
	if err := unix.Symlinkat(target, int(r), rel(p)); err != nil {
		return &os.PathError{Op: "linking", Path: p, Err: err}
	}
	return nil
}

// write makes the file p with the text given, readable by all.
func (r root) write(p, text string) error {
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_CLOEXEC | unix.O_NOFOLLOW
	fd, err := unix.Openat(int(r), rel(p), flags, 0o644)
	if err != nil {
		return &os.PathError{Op: "making", Path: p, Err: err}
	}
	defer unix.Close(fd)
	for rest := []byte(text); len(rest) > 0; {
		n, err := unix.Write(fd, rest)
		if err != nil {
			return &os.PathError{Op: "writing", Path: p, Err: err}
		}
		rest = rest[n:]
	}
	return nil
}

// rel makes an absolute path relative, as the *at calls need it.
func rel(p string) string {
	p = path.Clean("/" + p)[1:]
	if p == "" {
		return "."
	}
	return p
}

// needKernel explains an error that old kernels give for a call they lack.
func needKernel(err error, version string) error {
	if errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("%w: Linux %s or newer is needed", err, version)
	}
	return err
}
