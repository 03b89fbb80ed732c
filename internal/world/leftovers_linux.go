// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Where the files of worlds lie, and how their directories and cgroups begin.
const (
	baseDir   = "/var/tmp"
	dirPrefix = "bawn-world-"
)

// ownerTag names this process so that it is not taken for a later one with the
// same number.
func ownerTag() string {
	return strconv.Itoa(os.Getpid()) + "-" + startTime(os.Getpid())
}

// startTime reads field 22 of /proc/PID/stat; it is empty if there is none.
func startTime(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	w := strings.Fields(rest)
	if len(w) < 20 {
		return ""
	}
	return w[19]
}

// sweep removes the files and cgroups of worlds whose program was killed. What
// does not carry the mark, or whose owner lives, is not touched.
func sweep() error {
	old, err := filepath.Glob(filepath.Join(baseDir, dirPrefix+"*"))
	if err != nil {
		return fmt.Errorf("looking for old worlds: %w", err)
	}
	var errs []error
	for _, dir := range old {
		tag := strings.Split(strings.TrimPrefix(filepath.Base(dir), dirPrefix), "-")
		if len(tag) != 3 {
			continue
		}
		pid, err := strconv.Atoi(tag[0])
		if err != nil || startTime(pid) == tag[1] {
			continue
		}
		mounts, err := findCgroups(filepath.Base(dir))
		errs = append(errs, err, removeCgroups(mounts), os.RemoveAll(dir))
	}
	return errors.Join(errs...)
}

// pin holds the namespaces of the process open. The kernel gives the number of
// a namespace that is gone to the next one; while it is held it is nobody
// else's.
func (c *child) pin() ([]*os.File, error) {
	var out []*os.File
	for _, kind := range []string{"net", "mnt", "pid", "ipc", "uts"} {
		f, err := c.namespace(kind)
		if err != nil {
			return out, err
		}
		out = append(out, f)
	}
	return out, nil
}

// leftovers looks for anything of a closed world.
func (w *World) leftovers() error {
	var errs []error
	if _, err := os.Lstat(w.dir); err == nil {
		errs = append(errs, fmt.Errorf("files left: %s", w.dir))
	}
	for _, m := range w.cgroups {
		if _, err := os.Lstat(m.Dir); err == nil {
			errs = append(errs, fmt.Errorf("cgroup left: %s", m.Dir))
		}
	}
	if mounts, err := os.ReadFile("/proc/self/mounts"); err != nil || strings.Contains(string(mounts), w.dir) {
		errs = append(errs, fmt.Errorf("mounts left below %s (%v)", w.dir, err))
	}
	return errors.Join(append(errs, w.leftInProcesses()...)...)
}

// leftInProcesses looks at every other process of the machine for a namespace
// of this world, entered or held open, and then lets go of them.
func (w *World) leftInProcesses() []error {
	ours := map[string]bool{}
	for _, f := range w.spaces {
		if name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd())); err == nil {
			ours[name] = true
		}
		defer f.Close()
	}
	own := fmt.Sprintf("/proc/%d/", os.Getpid())
	var errs []error
	for _, pattern := range []string{"/proc/[0-9]*/ns/*", "/proc/[0-9]*/fd/*"} {
		links, err := filepath.Glob(pattern)
		if err != nil {
			return append(errs, err)
		}
		for _, l := range links {
			if strings.HasPrefix(l, own) {
				continue
			}
			if to, err := os.Readlink(l); err == nil && ours[to] {
				errs = append(errs, fmt.Errorf("namespace left: %s is %s", l, to))
			}
		}
	}
	return errs
}
