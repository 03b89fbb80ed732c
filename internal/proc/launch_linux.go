// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"errors"
	"fmt"
	"os"
	"path"
	"syscall"

	"golang.org/x/sys/unix"
)

// A launch is what process 1 is cloned with.
type launch struct {
	spec    *Spec
	netns   *os.File
	control [2]*os.File // ours, its
	memory  *os.File    // the spec
	mounts  []*os.File  // detached, in the order of inherited
	inner   [3]*os.File // standard input, output and error of process 1
	outer   [3]*os.File // their far ends; nil with a terminal
}

func (l *launch) prepare() error {
	if err := l.detach(); err != nil {
		return err
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("making the control socket: %w", err)
	}
	l.control = [2]*os.File{os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control")}
	if l.memory, err = sealedSpec(l.spec); err != nil {
		return err
	}
	return l.openStdio()
}

// detach makes the mounts of the operator's directories. Only here can it be
// done: the directories' mounts belong to this process's mount namespace.
func (l *launch) detach() error {
	add := func(m *Mount, write bool) error {
		t, err := m.detach(l.spec.UID, l.spec.GID, write)
		if err == nil {
			l.mounts = append(l.mounts, os.NewFile(uintptr(t), m.Path))
		}
		return err
	}
	if l.spec.Work != nil {
		if err := add(l.spec.Work, true); err != nil {
			return err
		}
	}
	if l.spec.Repo != nil {
		if err := add(l.spec.Repo, false); err != nil {
			return err
		}
	}
	for i := range l.spec.Lends {
		if err := add(&l.spec.Lends[i], false); err != nil {
			return err
		}
	}
	return nil
}

func (l *launch) openStdio() (err error) {
	if l.spec.TTY {
		null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		l.inner = [3]*os.File{null, null, null}
		return err
	}
	if l.inner[0], l.outer[0], err = os.Pipe(); err != nil {
		return err
	}
	for i := 1; i < 3; i++ {
		if l.outer[i], l.inner[i], err = os.Pipe(); err != nil {
			return err
		}
	}
	return nil
}

// clone starts process 1. It calls no method of an os.File that could move to
// another thread: it runs on the session's locked one.
func (l *launch) clone() (*os.Process, error) {
	placement := "host"
	if l.netns != nil {
		placement = "netns"
	}
	files := append([]*os.File{l.inner[0], l.inner[1], l.inner[2], l.control[1], l.memory}, l.mounts...)
	return os.StartProcess("/proc/self/exe", []string{"bawn", Verb, halfRoot, placement}, &os.ProcAttr{
		Dir:   "/",
		Env:   []string{"GOMAXPROCS=1"},
		Files: files,
		Sys: &syscall.SysProcAttr{
			Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
			Setsid:     true, // what is typed at netd's terminal is not for agents
			Pdeathsig:  syscall.SIGKILL,
		},
	})
}

// closeInner closes what only process 1 needs. It may be called twice.
func (l *launch) closeInner() {
	for _, f := range append([]*os.File{l.inner[0], l.inner[1], l.inner[2], l.control[1], l.memory}, l.mounts...) {
		if f != nil {
			f.Close()
		}
	}
}

func (l *launch) closeOuter() error {
	for _, f := range []*os.File{l.outer[0], l.outer[1], l.outer[2], l.control[0]} {
		if f != nil {
			f.Close()
		}
	}
	return nil
}

// Temporary directories of sessions.

func tempDir(s *Spec) string { return path.Join(s.State, "agents", s.Agent, "tmp", s.Session) }

// makeTemp makes the session's temporary directories. Their parent is root's,
// so that an agent cannot put something in their place.
func makeTemp(s *Spec) error {
	dir := tempDir(s)
	err := os.MkdirAll(path.Dir(dir), 0o700)
	if err == nil {
		err = os.Mkdir(dir, 0o700) // never another session's
	}
	if err != nil {
		return fmt.Errorf("making a temporary directory: %w", err)
	}
	for _, name := range []string{"tmp", "var"} {
		p := path.Join(dir, name)
		err := os.Mkdir(p, 0o700)
		if err == nil {
			err = os.Chmod(p, 0o777|os.ModeSticky)
		}
		if err == nil {
			err = os.Lchown(p, int(s.UID), int(s.GID))
		}
		if err != nil {
			return errors.Join(fmt.Errorf("making a temporary directory: %w", err), removeTemp(s))
		}
	}
	return nil
}
