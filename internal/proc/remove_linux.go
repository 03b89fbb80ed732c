// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// RemoveTree removes name in the directory parent, with all that is in it. No
// symbolic link is followed, and no mount may lie in it. A name that is not
// there is no error.
//
// An agent chooses how deep its directories nest. A removal that goes down with
// them needs a descriptor for each level, and ends when there are no more. This
// one goes no deeper than two levels: a directory inside of one that is being
// emptied is lifted up to its level first.
func RemoveTree(ctx context.Context, parent *os.File, name string) error {
	if name == "" || name == "." || name == ".." || strings.Contains(name, "/") {
		return fmt.Errorf("removing %q: not the name of an entry", name)
	}
	gone, err := removeOne(parent, name)
	if gone || err != nil {
		return err
	}
	top, err := openBelow(parent, name)
	if err != nil {
		return err
	}
	defer top.Close()
	lifted := 0
	err = drain(ctx, top, func(entry string) error {
		gone, err := removeOne(top, entry)
		if gone || err != nil {
			return err
		}
		return lift(ctx, top, entry, &lifted)
	})
	if err != nil {
		return err
	}
	return removeDir(parent, name)
}

// lift empties the directory entry of top, the directories in it by way of top
// itself, and removes it.
func lift(ctx context.Context, top *os.File, entry string, lifted *int) error {
	dir, err := openBelow(top, entry)
	if err != nil {
		return err
	}
	defer dir.Close()
	err = drain(ctx, dir, func(inner string) error {
		gone, err := removeOne(dir, inner)
		for !gone && err == nil {
			*lifted++
			err = unix.Renameat2(int(dir.Fd()), inner, int(top.Fd()), strconv.Itoa(*lifted), unix.RENAME_NOREPLACE)
			gone = err == nil
			if errors.Is(err, unix.EEXIST) {
				err = nil // the agent's own; the next number
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	return removeDir(top, entry)
}

// perLook is how many entries of a directory are read at a time.
const perLook = 512

// drain calls do, which takes it away, with each entry of dir until none is
// left.
func drain(ctx context.Context, dir *os.File, do func(entry string) error) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if _, err := dir.Seek(0, io.SeekStart); err != nil {
			return err
		}
		entries, err := dir.Readdirnames(perLook)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := do(e); err != nil {
				return fmt.Errorf("removing %.100q: %w", e, err)
			}
		}
	}
}

// removeOne removes a file or an empty directory; gone is false for a directory
// that is not empty.
func removeOne(dir *os.File, name string) (gone bool, err error) {
	err = unix.Unlinkat(int(dir.Fd()), name, 0)
	if errors.Is(err, unix.EISDIR) {
		err = unix.Unlinkat(int(dir.Fd()), name, unix.AT_REMOVEDIR)
	}
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist):
		return true, nil
	case errors.Is(err, unix.ENOTEMPTY):
		return false, nil
	}
	return false, err
}

func removeDir(dir *os.File, name string) error {
	return unix.Unlinkat(int(dir.Fd()), name, unix.AT_REMOVEDIR)
}

func openBelow(dir *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "directory"), nil
}

// removeTemp removes the session's temporary directories. The session has
// ended.
func removeTemp(s *Spec) error {
	return RemoveTemps(context.Background(), []string{tempDir(s)})
}

// LeftTemps lists the temporary directories that a crashed run left below
// state. No session may be running.
func LeftTemps(state string) ([]string, error) {
	agents, err := os.ReadDir(filepath.Join(state, "agents"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("finding left temporary directories: %w", err)
	}
	var left []string
	for _, a := range agents {
		dir := filepath.Join(state, "agents", a.Name(), "tmp")
		sessions, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("finding left temporary directories: %w", err)
		}
		for _, s := range sessions {
			left = append(left, filepath.Join(dir, s.Name()))
		}
	}
	return left, nil
}

// RemoveTemps removes temporary directories of sessions that have ended. How
// long that takes is for those to say who filled them; it stops when ctx is
// done.
func RemoveTemps(ctx context.Context, dirs []string) error {
	var errs []error
	for _, d := range dirs {
		parent, err := os.Open(filepath.Dir(d))
		if err == nil {
			err = RemoveTree(ctx, parent, filepath.Base(d))
			parent.Close()
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("removing the temporary directory %s: %w", d, err))
		}
	}
	return errors.Join(errs...)
}
