// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"bawn/internal/config"
)

// Parts of an installation may be file systems of their own: /etc, agents' files,
// the record. What is moved is moved within one, since nothing else is done at
// once; so each mount has its own directory where things are unpacked, and its own
// where what was there is kept.

// stageName is where an archive is unpacked, below the base of each member.
const stageName = ".restore"

// A mount tells one mounted file system from another, and from a second mount of
// the same.
type mount struct {
	major, minor uint32
	id           uint64
}

// mountOf says what a path, or the nearest directory above it that there is, lies
// on, and whether the path is where that is mounted.
func mountOf(path string) (m mount, top bool, err error) {
	var st unix.Statx_t
	err = unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_MNT_ID, &st)
	if errors.Is(err, fs.ErrNotExist) && path != filepath.Dir(path) {
		m, _, err = mountOf(filepath.Dir(path))
		return m, false, err
	}
	if err != nil {
		return m, false, fmt.Errorf("looking where %s is mounted: %w", path, err)
	}
	return mount{st.Dev_major, st.Dev_minor, st.Mnt_id}, st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
}

// base is the directory that holds what is unpacked, and what is kept, of a
// member: the state directory, or the highest of Bawn's on the mount of the
// member's place.
func (r *Restore) base(name string) (string, error) {
	return r.baseOf(filepath.Dir(r.place(r.unit(name))))
}

func (r *Restore) baseOf(dir string) (string, error) {
	lib := r.Paths.Lib()
	main, _, err := mountOf(lib)
	if err != nil {
		return "", err
	}
	here, _, err := mountOf(dir)
	if err != nil || here == main {
		return lib, err
	}
	for dir != lib && dir != r.Paths.Etc() {
		above, _, err := mountOf(filepath.Dir(dir))
		if err != nil {
			return "", err
		}
		if above != here {
			break
		}
		dir = filepath.Dir(dir)
	}
	return dir, nil
}

// Bases are the directories that a restore unpacks to: one for each file system
// that parts of the installation lie on, the state directory first.
func Bases(p config.Paths) ([]string, error) {
	r := &Restore{Paths: p}
	list := []string{p.Lib()}
	for _, dir := range []string{p.Etc(), p.State("admin"), p.Journal("admin"), p.State("proxy"), p.Journal("proxy"), p.Agents()} {
		base, err := r.baseOf(dir)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(list, base) {
			list = append(list, base)
		}
	}
	return list, nil
}

// movable refuses what cannot be moved as one: a place that is itself where
// something is mounted.
func (r *Restore) movable() error {
	record, err := r.Record()
	if err != nil {
		return err
	}
	for _, name := range r.units(record) {
		if _, top, err := mountOf(r.place(name)); err != nil {
			return err
		} else if top {
			return fmt.Errorf("%s is a file system of its own, and cannot be set aside: unmount it first, or mount a directory above it", r.place(name))
		}
	}
	return nil
}

// ownDirectory makes a directory that nobody else looks into. One that is there
// must be such a one: whoever owns the directory above could have put another.
func ownDirectory(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	err := os.Mkdir(dir, 0o700)
	if err == nil || !errors.Is(err, fs.ErrExist) {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Mode&0o077 != 0 || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is there already, and is no directory of root's alone: remove it", dir)
	}
	return nil
}

// progress is what the marker holds, so that a restore that is done once more
// ends what the first began.
type progress struct {
	What   string `json:"what"`
	Before string `json:"before"` // where what was there is kept; see keeps
	Bare   bool   `json:"bare"`   // the host had no record when it began
}

var beforeForm = regexp.MustCompile(`^before-restore-[0-9]{8}-[0-9]{6}$`)

// begun is what a restore that was interrupted said of itself; nil if there was
// none.
func (r *Restore) begun() *progress {
	var p progress
	text, err := os.ReadFile(marker(r.Paths))
	if err != nil || json.Unmarshal(text, &p) != nil || !beforeForm.MatchString(p.Before) {
		return nil
	}
	return &p
}

// begin puts the marker, on the disk before anything is moved: without it, what is
// half moved would be started.
func (r *Restore) begin() (*progress, error) {
	if p := r.begun(); p != nil {
		return p, nil
	}
	bare, err := r.bare()
	if err != nil {
		return nil, err
	}
	p := &progress{What: "bawn restore was interrupted", Before: "before-restore-" + r.Now.UTC().Format("20060102-150405"), Bare: bare}
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	path := marker(r.Paths)
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, err
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(path+".new", path)
	}
	return p, errors.Join(err, syncDir(filepath.Dir(path)))
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// keeps is the directory below a base where what was there is kept. Outside of the
// state directory its name begins with a dot: others look through these.
func (r *Restore) keeps(base, before string) string {
	if base != r.Paths.Lib() {
		before = "." + before
	}
	return filepath.Join(base, before)
}

// clean removes what was unpacked.
func (r *Restore) clean() error {
	bases, err := Bases(r.Paths)
	if err != nil {
		return err
	}
	seen := ""
	for _, m := range r.Manifest.Members {
		unit := r.unit(m.Name)
		if !strings.HasPrefix(unit, partAgents) || unit == seen {
			continue // the others are among these
		}
		seen = unit
		base, err := r.base(m.Name)
		if err != nil {
			return err
		}
		if !slices.Contains(bases, base) {
			bases = append(bases, base)
		}
	}
	for _, base := range bases {
		err = errors.Join(err, os.RemoveAll(filepath.Join(base, stageName)))
	}
	return err
}
