// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cgroupMount is one mounted hierarchy, with the directory in it that becomes
// the root of the host's own view.
type cgroupMount struct {
	Point string // where it is mounted
	Kind  string // cgroup or cgroup2
	Opts  string // controllers or name= of a version 1 hierarchy
	Dir   string // the world's directory, as the machine sees it
	Procs string // directory for the host's own processes
}

// findCgroups lists the mounted hierarchies and the world's directory in each.
// In version 1 it lies below the caller's own group, so that the caller's
// limits hold; in version 2 below the root, since a group that has processes
// can pass no controllers on.
func findCgroups(name string) ([]cgroupMount, error) {
	own, err := ownCgroups()
	if err != nil {
		return nil, err
	}
	f, err := os.Open("/proc/self/mounts")
	if err != nil {
		return nil, fmt.Errorf("listing mounts: %w", err)
	}
	defer f.Close()
	var out []cgroupMount
	seen := map[string]bool{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		w := strings.Fields(lines.Text())
		if len(w) < 4 || w[2] != "cgroup" && w[2] != "cgroup2" || seen[w[1]] {
			continue
		}
		seen[w[1]] = true
		m := cgroupMount{Point: w[1], Kind: w[2]}
		m.Dir = filepath.Join(m.Point, name)
		if m.Kind == "cgroup" {
			m.Opts = hierarchy(w[3])
			m.Dir = filepath.Join(m.Point, own[m.Opts], name)
		}
		m.Procs = m.Dir
		out = append(out, m)
	}
	return out, nil
}

// hierarchy picks out of mount options what names a hierarchy.
func hierarchy(opts string) string {
	plain := map[string]bool{
		"rw": true, "ro": true, "nosuid": true, "nodev": true, "noexec": true, "relatime": true, "noatime": true,
		"xattr": true, "clone_children": true, "noprefix": true, "seclabel": true,
	}
	var keep []string
	for o := range strings.SplitSeq(opts, ",") {
		if !plain[o] && !strings.HasPrefix(o, "release_agent=") {
			keep = append(keep, o)
		}
	}
	return strings.Join(keep, ",")
}

// ownCgroups tells the caller's group in each version 1 hierarchy.
func ownCgroups() (map[string]string, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("reading own cgroups: %w", err)
	}
	own := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if w := strings.SplitN(strings.TrimSpace(line), ":", 3); len(w) == 3 {
			own[w[1]] = w[2]
		}
	}
	return own, nil
}

// makeCgroups makes the world's directory in each hierarchy and sets Procs. In
// version 2 that is one step below, where there are controllers to pass on.
func makeCgroups(mounts []cgroupMount) error {
	for i := range mounts {
		m := &mounts[i]
		if err := os.Mkdir(m.Dir, 0o755); err != nil {
			return fmt.Errorf("making cgroup: %w", err)
		}
		if all, err := m.controllers(); err != nil {
			return err
		} else if len(all) > 0 {
			m.Procs = filepath.Join(m.Dir, "init")
			if err := os.Mkdir(m.Procs, 0o755); err != nil {
				return fmt.Errorf("making cgroup: %w", err)
			}
		}
		if strings.Contains(m.Opts, "cpuset") { // empty sets take no process
			for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
				text, err := os.ReadFile(filepath.Join(filepath.Dir(m.Dir), f))
				if err == nil {
					err = os.WriteFile(filepath.Join(m.Dir, f), text, 0)
				}
				if err != nil {
					return fmt.Errorf("making cgroup: %w", err)
				}
			}
		}
	}
	return nil
}

// controllers lists what a version 2 hierarchy has to pass on.
func (m *cgroupMount) controllers() ([]string, error) {
	if m.Kind != "cgroup2" {
		return nil, nil
	}
	text, err := os.ReadFile(filepath.Join(m.Dir, "cgroup.controllers"))
	if err != nil {
		return nil, fmt.Errorf("reading controllers: %w", err)
	}
	return strings.Fields(string(text)), nil
}

// passOn moves the host's first process to where its processes belong and lets
// the groups that the host makes have every controller there is. Before, the
// process had to be in the directory that is the root of its view; after, no
// process may be.
func passOn(mounts []cgroupMount, pid int) error {
	for _, m := range mounts {
		all, err := m.controllers()
		if err != nil {
			return err
		}
		if len(all) == 0 {
			continue
		}
		if err := os.WriteFile(filepath.Join(m.Procs, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			return fmt.Errorf("moving the host's first process: %w", err)
		}
		for _, c := range all {
			if err := os.WriteFile(filepath.Join(m.Dir, "cgroup.subtree_control"), []byte("+"+c), 0); err != nil {
				return fmt.Errorf("passing controller %s on: %w", c, err)
			}
		}
	}
	return nil
}

// joinScript is shell code that moves the shell into the given directories.
func joinScript(dirs []string) string {
	var b strings.Builder
	for _, d := range dirs {
		fmt.Fprintf(&b, "echo 0 >%s/cgroup.procs || exit 125\n", d)
	}
	return b.String()
}

// mountCgroups mounts the hierarchies anew from within the host's cgroup
// namespace, so that the world's directories are their roots.
func mountCgroups(mounts []cgroupMount) error {
	if len(mounts) == 0 {
		return nil
	}
	if mounts[0].Point != "/sys/fs/cgroup" {
		if err := unix.Mount("tmpfs", "/sys/fs/cgroup", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0755"); err != nil {
			return fmt.Errorf("mounting /sys/fs/cgroup: %w", err)
		}
	}
	for _, m := range mounts {
		if err := os.MkdirAll(m.Point, 0o755); err != nil {
			return fmt.Errorf("mounting %s: %w", m.Point, err)
		}
		opts := m.Opts
		if rest, ok := strings.CutPrefix(opts, "name="); ok {
			opts = "none,name=" + rest
		}
		if err := unix.Mount(m.Kind, m.Point, m.Kind, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, opts); err != nil {
			return fmt.Errorf("mounting %s: %w", m.Point, err)
		}
	}
	return nil
}

// removeCgroups removes the directories, deepest first. The kernel may take a
// moment to let a group go after its last process has ended.
func removeCgroups(mounts []cgroupMount) error {
	var errs []error
	for _, m := range mounts {
		err := removeCgroup(m.Dir)
		for range 100 {
			if err == nil || !errors.Is(err, unix.EBUSY) {
				break
			}
			time.Sleep(20 * time.Millisecond)
			err = removeCgroup(m.Dir)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("removing cgroup: %w", err))
		}
	}
	return errors.Join(errs...)
}

func removeCgroup(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeCgroup(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return unix.Rmdir(dir)
}
