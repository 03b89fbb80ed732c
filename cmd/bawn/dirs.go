// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"

	"golang.org/x/sys/unix"

	"bawn/internal/apitype"
	"bawn/internal/lending"
)

// prove signs for the directories that are lent; work says which of them is the
// workspace, if any.
func prove(dirs []*os.File, work *apitype.Directory) (*os.File, error) {
	loans := make([]lending.Loan, len(dirs))
	for i, d := range dirs {
		var err error
		if loans[i], err = lending.Of(d, work != nil && i == work.File); err != nil {
			return nil, err
		}
	}
	return lending.Sign(loans)
}

// openDir opens a directory as the operator: that it can be opened is the
// proof that the operator may read it.
func openDir(dir string) (apitype.Directory, *os.File, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return apitype.Directory{}, nil, err
	}
	f, err := os.OpenFile(abs, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return apitype.Directory{}, nil, err
	}
	return apitype.Directory{Path: abs}, f, nil
}

// leads says where a directory that was opened really is, if a link on its way
// leads elsewhere. In a workspace the link may be an agent's.
func leads(dir *os.File) (to string, elsewhere bool) {
	to, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()))
	return to, err == nil && filepath.IsAbs(to) && to != dir.Name()
}

// openRepo opens what git clones from: of a checkout its .git directory, and
// nothing of what lies beside it. The clone has what was committed; a file with
// tokens that was not is none of the agent's business.
func openRepo(dir string) (apitype.Directory, *os.File, error) {
	d, top, err := openDir(dir)
	if err != nil {
		return d, nil, err
	}
	if err := isRepo(d.Path); err != nil {
		top.Close()
		return d, nil, err
	}
	inner, err := os.OpenFile(filepath.Join(d.Path, ".git"), os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return d, top, nil // a bare one
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		err = fmt.Errorf("%s: its .git leads to another directory, as in a worktree or a submodule: name the repository that it belongs to", d.Path)
	}
	top.Close()
	return d, inner, err
}

// notHome refuses the operator's home, or what holds it, as a workspace: what an
// agent writes there, the operator's shell and tools read as their settings.
func notHome(dir string) error {
	u, err := user.Current()
	if err != nil {
		return nil // an account without an entry has no home to protect
	}
	for _, home := range []string{u.HomeDir, os.Getenv("HOME")} {
		for at := filepath.Clean(home); home != "" && at != "/"; at = filepath.Dir(at) {
			if same(at, dir) {
				return fmt.Errorf("%s holds your home: your shell and your tools would run what the agent writes there; name a directory in it", dir)
			}
		}
	}
	return nil
}

func same(a, b string) bool {
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}

// isRepo reports why git could not clone dir.
func isRepo(dir string) error {
	if isTop(dir) {
		return nil
	}
	for at := filepath.Dir(dir); ; at = filepath.Dir(at) {
		if isTop(at) {
			return fmt.Errorf("%s is within the git repository %s: name that", dir, at)
		}
		if at == filepath.Dir(at) {
			return fmt.Errorf("%s is not a git repository", dir)
		}
	}
}

// isTop reports whether dir is the top of a checkout, or a bare repository
// (gitrepository-layout(5)).
func isTop(dir string) bool {
	if _, err := os.Stat(filepath.Join(dir, ".git")); err == nil {
		return true
	}
	for _, name := range []string{"HEAD", "objects", "refs"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}
