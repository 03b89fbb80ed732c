// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"bawn/internal/config"
	"bawn/internal/store"
)

// restoredName is the file that tells admin of a restore, so that it puts it on
// record.
const restoredName = "restored.json"

// Restored is what that file says.
type Restored struct {
	At      time.Time `json:"at"`
	Made    time.Time `json:"made"` // of the archive
	Version string    `json:"version"`
	SHA256  string    `json:"sha256"` // of the archive
	Record  bool      `json:"record"` // whether the record came from the archive
	By      Caller    `json:"by"`
}

// A Caller is who runs a restore.
type Caller struct {
	UID uint32 `json:"uid"`
	PID int32  `json:"pid"`
	// Login is the uid that the session logged in with, as far as it is known:
	// "kernel=1000", or "sudo=1000" where only sudo says so.
	Login string `json:"login,omitempty"`
}

// Took reads and removes what the last restore left for admin; nil if there was
// none.
func Took(p config.Paths) (*Restored, error) {
	path := filepath.Join(p.State("admin"), restoredName)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	r := new(Restored)
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return r, nil
}

// Told removes the file that Took has read, once it is on record.
func Told(p config.Paths) error { return os.Remove(filepath.Join(p.State("admin"), restoredName)) }

// A Restore brings an archive back. The fields are set by who calls Run.
type Restore struct {
	Paths    config.Paths
	Manifest *Manifest // from Verify
	SHA256   string    // of the archive
	Now      time.Time
	// IDs gives the numbers of an account, by its name, on this host.
	Owner func(name string) (uid, gid int, err error)
	Said  func(string)
	By    Caller
}

// Record reports whether the archive's record would be put back: only where the
// host has none, and the archive has one.
func (r *Restore) Record() (bool, error) {
	bare, err := r.bare()
	return bare && r.Manifest.Journals, err
}

// bare reports whether the host has no record, or had none when a restore began
// that was interrupted.
func (r *Restore) bare() (bool, error) {
	if p := r.begun(); p != nil {
		return p.Bare, nil
	}
	for _, plane := range []string{"admin", "proxy"} {
		entries, err := os.ReadDir(r.Paths.Journal(plane))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, fmt.Errorf("looking at the record: %w", err)
		}
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), ".jsonl") {
				return false, nil
			}
		}
	}
	return true, nil
}

// ofRecord reports whether a member is part of the record.
func ofRecord(name string) bool {
	return strings.HasPrefix(name, partJournal) || name == partAdmin+"audit.key" || name == partAdmin+"checkpoints" || strings.HasPrefix(name, partAdmin+"checkpoints/")
}

// counted reports whether the member is what an agent has used up. This host's own
// counts stay: an archive of the morning would give an agent the day's budget
// again.
func counted(name string) bool {
	for _, dir := range []string{"budgets", "labels"} {
		if name == partProxy+dir || strings.HasPrefix(name, partProxy+dir+"/") {
			return true
		}
	}
	return false
}

func there(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// straight refuses a place that a link leads out of: accounts that own a directory
// could have put one there, and what is moved is moved by root.
func (r *Restore) straight(to string) error {
	for dir := filepath.Dir(to); strings.HasPrefix(dir, r.Paths.Lib()+"/"); dir = filepath.Dir(dir) {
		if info, err := os.Lstat(dir); err == nil && !info.IsDir() {
			return fmt.Errorf("%s is no directory but %v: remove it", dir, info.Mode().Type())
		}
	}
	return nil
}

// place is where a member goes.
func (r *Restore) place(name string) string {
	for part, dir := range map[string]string{
		partAdmin: r.Paths.State("admin"), partProxy: r.Paths.State("proxy"), partEtc: r.Paths.Etc(),
		partJournal + "admin/": r.Paths.Journal("admin"), partJournal + "proxy/": r.Paths.Journal("proxy"),
		partAgents: r.Paths.Agents(),
	} {
		if rest, ok := strings.CutPrefix(name, part); ok {
			return filepath.Join(dir, rest)
		}
	}
	return "" // checkName allows no other
}

// Stage unpacks the archive, with owners and modes, into a directory of its own on
// each file system that it goes to, where nothing is in use yet. Every sum is
// checked once more: the file may have been exchanged since it was verified.
func (r *Restore) Stage(archive io.Reader) error {
	if err := r.movable(); err != nil {
		return err
	}
	if err := r.clean(); err != nil {
		return fmt.Errorf("unpacking: %w", err)
	}
	if err := r.unpackAll(archive); err != nil {
		return fmt.Errorf("unpacking: %w", errors.Join(err, r.clean()))
	}
	return nil
}

// stages are the open directories that members are unpacked to, by their bases.
type stages struct {
	r     *Restore
	roots map[string]*os.Root
	units map[string]*os.Root // the same, by what is moved at once
}

func (s stages) of(name string) (*os.Root, error) {
	unit := s.r.unit(name)
	if root := s.units[unit]; root != nil {
		return root, nil
	}
	base, err := s.r.base(name)
	if err != nil {
		return nil, err
	}
	if s.roots[base] == nil {
		dir := filepath.Join(base, stageName)
		if err := ownDirectory(dir); err != nil {
			return nil, err
		}
		if s.roots[base], err = os.OpenRoot(dir); err != nil {
			return nil, err
		}
	}
	s.units[unit] = s.roots[base]
	return s.roots[base], nil
}

func (s stages) close() {
	for _, root := range s.roots {
		root.Close()
	}
}

func (r *Restore) unpackAll(archive io.Reader) error {
	s := stages{r, map[string]*os.Root{}, map[string]*os.Root{}}
	defer s.close()
	var links, dirs []Member
	err := eachMember(archive, r.Manifest, func(m Member, content io.Reader) error {
		root, err := s.of(m.Name)
		switch {
		case err != nil:
			return err
		case m.Kind == Link:
			links = append(links, m) // last, so that nothing is written behind one
			return nil
		case m.Kind == Directory:
			dirs = append(dirs, m) // modes last, so that files can be written
			return root.MkdirAll(m.Name, 0o700)
		}
		return r.unpack(root, m, content)
	})
	if err != nil {
		return err
	}
	for _, m := range links {
		root, err := s.of(m.Name)
		if err == nil {
			err = r.link(root, m)
		}
		if err != nil {
			return err
		}
	}
	for _, m := range slices.Backward(dirs) {
		root, err := s.of(m.Name)
		if err == nil {
			err = r.own(root, m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *Restore) unpack(root *os.Root, m Member, content io.Reader) error {
	if err := root.MkdirAll(path.Dir(m.Name), 0o700); err != nil {
		return err
	}
	f, err := root.OpenFile(m.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(f, sum), content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != m.SHA256 {
		return fmt.Errorf("member %q was changed since it was checked", m.Name)
	}
	return r.own(root, m)
}

func (r *Restore) link(root *os.Root, m Member) error {
	if err := root.MkdirAll(path.Dir(m.Name), 0o700); err != nil {
		return err
	}
	if err := root.Symlink(m.Target, m.Name); err != nil {
		return err
	}
	uid, gid, err := r.ids(m)
	if err != nil {
		return err
	}
	return root.Lchown(m.Name, uid, gid)
}

func (r *Restore) own(root *os.Root, m Member) error {
	uid, gid, err := r.ids(m)
	if err != nil {
		return err
	}
	if err := root.Lchown(m.Name, uid, gid); err != nil {
		return err
	}
	return root.Chmod(m.Name, fs.FileMode(m.Mode).Perm())
}

func (r *Restore) ids(m Member) (uid, gid int, err error) {
	if uid, _, err = r.Owner(m.Owner); err != nil {
		return 0, 0, err
	}
	_, gid, err = r.Owner(m.Group)
	return uid, gid, err
}

// eachMember calls visit with each member of an archive that was checked, as
// the manifest has it.
func eachMember(archive io.Reader, manifest *Manifest, visit func(Member, io.Reader) error) error {
	next := 0
	return each(archive, func(h *tar.Header, content io.Reader) error {
		if h.Name == manifestName {
			return nil
		}
		m, err := memberOf(h)
		if err != nil {
			return err
		}
		if next >= len(manifest.Members) || manifest.Members[next].Name != m.Name || manifest.Members[next].Kind != m.Kind {
			return errors.New("the archive was exchanged since it was checked")
		}
		m.SHA256 = manifest.Members[next].SHA256
		next++
		return visit(m, content)
	})
}

// Database unpacks the database alone to a new file: what it says of agents is
// needed before anything else.
func Database(archive io.Reader, m *Manifest, to string) error {
	const name = partAdmin + "bawn.db"
	if !m.Has(name) {
		return errors.New("unpacking: the archive has no database")
	}
	err := eachMember(archive, m, func(x Member, content io.Reader) error {
		if x.Name != name {
			return nil
		}
		f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, content)
		return errors.Join(err, f.Close())
	})
	if err != nil {
		return fmt.Errorf("unpacking: %w", err)
	}
	return nil
}

// Floor is from where numbers go on: beyond those of the host and of the
// archive. On the host of the backup its own floor is exact. On another, what
// was handed out since the backup is not known: then it is beyond what can have
// been, at ten starts of admin and one revision a second.
func (r *Restore) Floor() (store.Floor, error) {
	host, err := store.ReadFloor(r.Paths.Database())
	if err != nil {
		return host, err
	}
	db, err := r.staged(partAdmin + "bawn.db")
	if err != nil {
		return host, err
	}
	then, err := store.ReadFloor(db)
	if err != nil {
		return then, err
	}
	if !r.sameHost() {
		since := uint64(max(0, r.Now.Sub(r.Manifest.Made)/time.Second)) + 1
		then.Epoch += 10 * since
		then.Revision += since
	}
	return store.Floor{Epoch: max(host.Epoch, then.Epoch), Revision: max(host.Revision, then.Revision)}, nil
}

// staged is where a member was unpacked to.
func (r *Restore) staged(name string) (string, error) {
	base, err := r.base(name)
	return filepath.Join(base, stageName, name), err
}

// sameHost reports whether the host is the one of the backup, or one that it was
// restored to: then it has the same CA.
func (r *Restore) sameHost() bool {
	here, err := os.ReadFile(filepath.Join(r.Paths.State("admin"), "ca.crt"))
	if err != nil {
		return false
	}
	staged, err := r.staged(partAdmin + "ca.crt")
	if err != nil {
		return false
	}
	there, err := os.ReadFile(staged)
	return err == nil && string(here) == string(there)
}

// Place puts what was staged where it belongs, and what was there before into
// directories that it returns, one on each file system. While it works, and if it
// is interrupted, nothing of Bawn starts ([Interrupted]); it can be done again from
// the start, and then goes on with the same directories.
func (r *Restore) Place(ctx context.Context) (before []string, err error) {
	floor, err := r.Floor()
	if err != nil {
		return nil, err
	}
	record, err := r.Record()
	if err != nil {
		return nil, err
	}
	p, err := r.begin()
	if err != nil {
		return nil, fmt.Errorf("restoring: %w", err)
	}
	if err := store.RaiseFloor(r.Paths.Database(), floor); err != nil {
		return nil, fmt.Errorf("restoring: %w", err)
	}
	for _, name := range r.units(record) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		base, err := r.base(name)
		if err != nil {
			return nil, fmt.Errorf("restoring %s: %w", name, err)
		}
		keep := r.keeps(base, p.Before)
		if err := r.move(filepath.Join(base, stageName), keep, name); err != nil {
			return nil, fmt.Errorf("restoring %s: %w", name, err)
		}
		if !slices.Contains(before, keep) {
			before = append(before, keep)
		}
	}
	if err := r.tell(record); err != nil {
		return nil, fmt.Errorf("restoring: %w", err)
	}
	syscall.Sync()
	return before, errors.Join(r.clean(), os.Remove(marker(r.Paths)))
}

// unit is what a member is moved with: see units.
func (r *Restore) unit(name string) string {
	depth := 2
	parts := strings.Split(name, "/")
	switch {
	case strings.HasPrefix(name, partAgents), strings.HasPrefix(name, partJournal):
		depth = 3
	case counted(name) && there(r.place(strings.Join(parts[:2], "/"))):
		depth = 3 // beside the host's own
	}
	return strings.Join(parts[:min(depth, len(parts))], "/")
}

// units are what is moved at once: files of admin's, directories of the
// proxy's, an agent's home. The floor is not among them: it was raised.
func (r *Restore) units(record bool) []string {
	var list []string
	seen := map[string]bool{}
	for _, m := range r.Manifest.Members {
		name := m.Name
		if ofRecord(name) && !record || name == partAdmin+"bawn.db.floor" {
			continue
		}
		if counted(name) && there(r.place(name)) {
			continue
		}
		if unit := r.unit(name); !seen[unit] {
			seen[unit] = true
			list = append(list, unit)
		}
	}
	return list
}

func (r *Restore) move(staged, before, name string) error {
	to := r.place(name)
	if err := r.straight(to); err != nil {
		return err
	}
	sides := []string{""}
	if name == partAdmin+"bawn.db" {
		// An old log of SQLite's must not be applied to the new file.
		sides = []string{"-wal", "-shm", ""}
	}
	for _, side := range sides {
		old := filepath.Join(before, name+side)
		if err := ownDirectory(before); err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(old), 0o700); err != nil {
			return err
		}
		if _, err := os.Lstat(old); err == nil {
			continue // saved by the try that was interrupted
		}
		if err := os.Rename(to+side, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if strings.HasPrefix(name, partJournal+"admin/") { // made by admin at its first start
		uid, gid, err := r.Owner(config.AdminAccount)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(to), 0o700)
		}
		if err = errors.Join(err, os.Lchown(filepath.Dir(to), uid, gid)); err != nil {
			return err
		}
	}
	return os.Rename(filepath.Join(staged, name), to)
}

func (r *Restore) tell(record bool) error {
	text, err := json.Marshal(Restored{At: r.Now.UTC(), Made: r.Manifest.Made, Version: r.Manifest.Version, SHA256: r.SHA256, Record: record, By: r.By})
	if err != nil {
		return err
	}
	uid, gid, err := r.Owner(config.AdminAccount)
	if err != nil {
		return err
	}
	path := filepath.Join(r.Paths.State("admin"), restoredName)
	floor := store.FloorFile(r.Paths.Database())
	// Whatever the directory's owner has put there is not written through.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Chown(uid, gid), f.Close(), os.Lchown(floor, uid, gid))
}

func marker(p config.Paths) string { return filepath.Join(p.Lib(), "restore.interrupted") }

// Interrupted says why nothing may start, if a restore did not come to its end.
func Interrupted(p config.Paths) error {
	if _, err := os.Lstat(marker(p)); err == nil {
		return fmt.Errorf("a restore was interrupted (%s): run \"bawn restore FILE\" again", marker(p))
	}
	return nil
}
