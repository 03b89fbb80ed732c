// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A view is an agent's file system under construction, in a mount namespace
// of its own.
type view struct {
	spec  *Spec
	root  root
	files files
}

// files are the detached mounts that the starting process made, since only it
// stands in the mount namespace of the operator's directories.
type files struct {
	work, repo tree // -1: none
	lends      []tree
}

// build makes the view and enters it. The order counts: a later part may lie
// within an earlier one, and what hides comes last.
func (v *view) build() error {
	if err := v.newRoot(); err != nil {
		return fmt.Errorf("building the agent's view: new root: %w", err)
	}
	parts := []struct {
		name string
		make func() error
	}{
		{"system directories", v.system},
		{"/etc", v.etc},
		{"/var", v.variable},
		{"/run", v.run},
		{"certificates", v.certificates},
		{"/dev", v.dev},
		{"/proc", v.proc},
		{"/sys", v.sys},
		{"home", v.home},
		{"temporary directories", v.temp},
		{"workspace and lent directories", v.operator},
		{"what stays hidden", v.hide},
	}
	for _, p := range parts {
		if err := p.make(); err != nil {
			return fmt.Errorf("building the agent's view: %s: %w", p.name, err)
		}
	}
	return v.enter()
}

// newRoot cuts the namespace off from the host's and puts an empty file system
// at a place that nothing below needs. It becomes the root in enter.
func (v *view) newRoot() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	t, err := newMount("tmpfs", attrShared, [2]string{"mode", "0755"}, [2]string{"size", "16m"})
	if err != nil {
		return err
	}
	if err := unix.MoveMount(int(t), "", unix.AT_FDCWD, "/proc", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mounting: %w", err)
	}
	v.root = root(t)
	for _, dir := range []string{"etc", "dev", "proc", "sys", "run", "tmp", "var", "home", "root", v.spec.Home(), WorkPath} {
		if err := v.root.mkdir(dir); err != nil {
			return err
		}
	}
	return unix.Fchmodat(int(v.root), "root", 0o700, 0)
}

// enter makes the new root the root and lets go of the host's.
func (v *view) enter() error {
	if err := tree(v.root).set(attrSystem, false); err != nil {
		return err
	}
	if err := unix.Fchdir(int(v.root)); err != nil {
		return fmt.Errorf("entering the view: %w", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("entering the view: changing root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("entering the view: leaving the host's root: %w", err)
	}
	unix.Close(int(v.root))
	return unix.Chdir("/")
}

// system shows the host's programs and libraries, read-only, with everything
// that is mounted within.
func (v *view) system() error {
	for _, dir := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix", "/gnu"} {
		if err := v.show(dir); err != nil {
			return err
		}
	}
	return nil
}

// show puts the host's p at the same place, read-only; a symbolic link stays
// one. What the host does not have is left out, and so is what is neither
// file nor directory.
func (v *view) show(p string) error {
	st, err := os.Lstat(p)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	switch {
	case st.Mode()&os.ModeSymlink != 0:
		target, err := os.Readlink(p)
		if err != nil {
			return err
		}
		return v.root.symlink(target, p)
	case st.IsDir():
		err = unix.Mkdirat(int(v.root), rel(p), 0o755)
	case st.Mode().IsRegular():
		err = v.root.write(p, "")
	default:
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "making", Path: p, Err: err}
	}
	return v.bind(p, p)
}

// bind puts the host's from at the place to, read-only. It is for the parts
// made from the host's own directories, before anything of an agent's is in
// the view: to is looked up as it stands.
func (v *view) bind(from, to string) error {
	t, err := openTree(unix.AT_FDCWD, from, unix.AT_RECURSIVE|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return err
	}
	defer t.close()
	if err := t.set(attrSystem, true); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	if err := unix.MoveMount(int(t), "", int(v.root), rel(to), unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mounting %s: %w", to, err)
	}
	return nil
}

// variable makes a /var with the package manager's records and nothing of the
// host's services.
func (v *view) variable() error {
	for _, dir := range []string{"var/tmp", "var/cache", "var/lib", "var/log", "var/opt", "var/spool"} {
		if err := v.root.mkdir(dir); err != nil {
			return err
		}
	}
	for _, dir := range []string{"/var/lib/dpkg", "/var/lib/rpm", "/var/lib/pacman", "/var/lib/ca-certificates"} {
		if err := v.show(dir); err != nil {
			return err
		}
	}
	return errors.Join(v.root.symlink("/run", "var/run"), v.root.symlink("/run/lock", "var/lock"))
}

// run makes an empty /run: no socket of the host's services is in it.
func (v *view) run() error {
	t, err := newMount("tmpfs", attrShared, [2]string{"mode", "0755"}, [2]string{"size", "64m"})
	if err != nil {
		return err
	}
	if err := v.root.attach(t, "run"); err != nil {
		return err
	}
	user := v.spec.runtimeDir()
	for _, dir := range []string{"run/lock", "run/user", user, PublicPath, RepoPath} {
		if err := v.root.mkdir(dir); err != nil {
			return err
		}
	}
	if err := v.root.write(gitConfigPath, "[safe]\n\tdirectory = "+RepoPath+"\n\tdirectory = "+RepoPath+"/.git\n"); err != nil {
		return err
	}
	return errors.Join(
		unix.Fchmodat(int(v.root), "run/lock", 0o1777, 0),
		unix.Fchmodat(int(v.root), rel(user), 0o700, 0),
		unix.Fchownat(int(v.root), rel(user), int(v.spec.UID), int(v.spec.GID), unix.AT_SYMLINK_NOFOLLOW),
	)
}

// runtimeDir is the directory that XDG_RUNTIME_DIR names.
func (s *Spec) runtimeDir() string { return "/run/user/" + strconv.Itoa(int(s.UID)) }

// home shows the agent's home, which stays between sessions.
func (v *view) home() error { return v.own("home", v.spec.Home()) }

// own puts the agent's directory name at the place to, writable. The directory
// must be the agent's, so that a mistake in the state directory does not lend
// it somebody else's.
func (v *view) own(name, to string) error {
	dir, err := openOwn(v.spec, name)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	t, err := openTree(dir, "", unix.AT_EMPTY_PATH)
	if err != nil {
		return err
	}
	if err := t.set(attrShared, false); err != nil {
		t.close()
		return err
	}
	return v.root.attach(t, to)
}

// openOwn opens the directory name of the agent below the state directory,
// following no symbolic link below it.
func openOwn(s *Spec, name string) (int, error) {
	state, err := unix.Open(s.State, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "opening", Path: s.State, Err: err}
	}
	defer unix.Close(state)
	full := path.Join("agents", s.Agent, name)
	fd, err := unix.Openat2(state, full, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return -1, &os.PathError{Op: "opening", Path: path.Join(s.State, full), Err: needKernel(err, "5.6")}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Uid != s.UID {
		unix.Close(fd)
		return -1, fmt.Errorf("opening %s: belongs to uid %d, not to the agent's %d", path.Join(s.State, full), st.Uid, s.UID)
	}
	return fd, nil
}

// temp shows the session's own temporary directories.
func (v *view) temp() error {
	return errors.Join(
		v.own(path.Join("tmp", v.spec.Session, "tmp"), "tmp"),
		v.own(path.Join("tmp", v.spec.Session, "var"), "var/tmp"),
	)
}

// operator shows the workspace, the repository and the lent directories, outer
// ones first, so that one may lie within another.
func (v *view) operator() error {
	type place struct {
		path string
		tree tree
	}
	var places []place
	if v.spec.Work != nil {
		places = append(places, place{v.spec.workPath(), v.files.work})
	} else if err := v.own("work", WorkPath); err != nil {
		return err
	}
	if v.spec.Repo != nil {
		places = append(places, place{RepoPath, v.files.repo})
	}
	for i, l := range v.spec.Lends {
		places = append(places, place{l.Path, v.files.lends[i]})
	}
	slices.SortFunc(places, func(a, b place) int { return strings.Compare(a.path, b.path) })
	for _, p := range places {
		if err := v.place(p.path); err != nil {
			p.tree.close()
			return err
		}
		if err := v.root.attach(p.tree, p.path); err != nil {
			return err
		}
	}
	return nil
}

// place makes sure that there is a directory to mount on. Within a read-only
// mount it must exist already.
func (v *view) place(p string) error {
	if fd, err := v.root.open(p, false); err == nil {
		return unix.Close(fd)
	}
	return v.root.mkdir(p)
}

// hide covers Bawn's own directories where they happen to lie within something
// shown. Their permissions hold too; this is the second lock.
func (v *view) hide() error {
	for _, p := range append(slices.Clone(v.spec.Hide), v.spec.State) {
		at, err := v.root.open(p, true)
		if err != nil {
			continue // not in the view at all
		}
		err = v.mask(at)
		unix.Close(at)
		if err != nil {
			return fmt.Errorf("hiding %s: %w", p, err)
		}
	}
	return nil
}

// mask covers the directory or file at names with an empty one.
func (v *view) mask(at int) error {
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		t, err := openTree(int(v.root), "dev/null", 0)
		if err != nil {
			return err
		}
		return t.attach(at)
	}
	t, err := newMount("tmpfs", attrSystem, [2]string{"mode", "0555"}, [2]string{"size", "4k"})
	if err != nil {
		return err
	}
	return t.attach(at)
}
