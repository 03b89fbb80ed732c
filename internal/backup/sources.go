// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"bawn/internal/config"
)

// A Copier writes a consistent copy of the database to a new file.
type Copier func(ctx context.Context, name string) error

// AddAdmin writes admin's own part: database, keys, checkpoints and, on demand,
// its journal. It needs admin's account, or root. A file of the copy lies in
// dir for a moment.
func AddAdmin(ctx context.Context, w *Writer, p config.Paths, copyDB Copier, dir string) error {
	scratch, err := os.MkdirTemp(dir, "backup-")
	if err != nil {
		return fmt.Errorf("copying the database: %w", err)
	}
	defer os.RemoveAll(scratch)
	db := filepath.Join(scratch, "bawn.db")
	if err := copyDB(ctx, db); err != nil {
		return err
	}
	if err := addFile(w, db, partAdmin+"bawn.db", config.AdminAccount); err != nil {
		return err
	}
	// The files after the database: what it says of them is there.
	if err := addTree(w, p.State("admin"), partAdmin, "", notAdmins); err != nil {
		return err
	}
	if !w.manifest.Journals {
		return nil
	}
	return addTree(w, p.Journal("admin"), partJournal+"admin/", "", notJournals)
}

// AddRest writes what admin cannot read: the proxy's files, the configuration
// and, on demand, the proxy's journal and agents' files. It needs root. said
// tells what had to be left out.
func AddRest(w *Writer, p config.Paths, said func(string)) error {
	if err := addTree(w, p.State("proxy"), partProxy, "", notProxys); err != nil {
		return err
	}
	err := addFile(w, p.ConfigFile(), partEtc+"config.yaml", "root")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if w.manifest.Journals {
		if err := addTree(w, p.Journal("proxy"), partJournal+"proxy/", "", notJournals); err != nil {
			return err
		}
	}
	if w.manifest.Homes {
		return addHomes(w, p, said)
	}
	return nil
}

func addHomes(w *Writer, p config.Paths, said func(string)) error {
	agents, err := os.ReadDir(p.Agents())
	if err != nil {
		return fmt.Errorf("reading agents' files: %w", err)
	}
	for _, a := range agents {
		if strings.HasPrefix(a.Name(), ".") {
			continue // what a restore has kept there
		}
		for _, dir := range []string{"home", "work"} {
			part := partAgents + a.Name() + "/" + dir + "/"
			if _, ok := agentOf(part); !ok {
				said(fmt.Sprintf("%s is no agent's", a.Name()))
				continue
			}
			left := 0
			skip := func(name string, t fs.FileMode) bool {
				odd := checkName(part+name) != nil || t != 0 && t != fs.ModeDir && t != fs.ModeSymlink
				if odd {
					left++
				}
				return odd
			}
			if err := addTree(w, filepath.Join(p.Agents(), a.Name(), dir), part, "bawn-"+a.Name(), skip); err != nil {
				return err
			}
			if left > 0 {
				said(fmt.Sprintf("%d sockets, pipes, devices or odd names of agent %s, in %s", left, a.Name(), dir))
			}
		}
	}
	return nil
}

// The files that no archive has: side files of databases, older copies, locks,
// and the index, which is made again from the journals.
func notAdmins(name string, t fs.FileMode) bool {
	top, _, _ := strings.Cut(name, "/")
	db := strings.HasPrefix(top, "bawn.db") && top != "bawn.db.floor"
	return db || strings.HasPrefix(top, "index.db") || strings.HasPrefix(top, "backup-") || top == "journal" || top == restoredName || notPlain(name, t)
}

func notProxys(name string, t fs.FileMode) bool {
	top, _, _ := strings.Cut(name, "/")
	return top == "journal" || notPlain(name, t)
}

func notJournals(name string, t fs.FileMode) bool { return t.IsDir() || notPlain(name, t) }

func notPlain(name string, t fs.FileMode) bool {
	base := path.Base(name)
	return t != 0 && t != fs.ModeDir || strings.HasSuffix(base, ".lock") || base == "lock" || strings.HasPrefix(base, ".")
}

// addTree writes what is below dir, without leaving it. skip is asked for each
// entry, by its path below dir. Everything belongs to owner; without one, to
// whom the host says.
func addTree(w *Writer, dir, part, owner string, skip func(string, fs.FileMode) bool) error {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", dir, err)
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // gone meanwhile
		case err != nil:
			return fmt.Errorf("reading %s: %w", filepath.Join(dir, name), err)
		case name == "." && owner == "":
			return nil
		case name == ".":
			return addEntry(w, root, name, strings.TrimSuffix(part, "/"), owner)
		case skip(name, d.Type()) && d.IsDir():
			return fs.SkipDir
		case skip(name, d.Type()):
			return nil
		}
		err = addEntry(w, root, name, part+name, owner)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", filepath.Join(dir, name), err)
		}
		return nil
	})
}

func addEntry(w *Writer, root *os.Root, name, as, owner string) error {
	info, err := root.Lstat(name)
	if err != nil {
		return err
	}
	switch {
	case info.IsDir():
		m, err := memberOfInfo(info, as, Directory, owner)
		if err != nil {
			return err
		}
		return w.Add(m, nil)
	case info.Mode()&fs.ModeSymlink != 0:
		m, err := memberOfInfo(info, as, Link, owner)
		if err == nil {
			m.Target, err = root.Readlink(name)
		}
		if err != nil {
			return err
		}
		return w.Add(m, nil)
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return addOpen(w, f, as, owner)
}

// addFile writes one file that lies in a directory of a trusted account.
func addFile(w *Writer, from, as, owner string) error {
	f, err := os.OpenFile(from, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("reading: %w", err)
	}
	defer f.Close()
	return addOpen(w, f, as, owner)
}

// addOpen writes as much of a file as it has now: it may grow meanwhile.
func addOpen(w *Writer, f *os.File, as, owner string) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a file", f.Name())
	}
	m, err := memberOfInfo(info, as, File, owner)
	if err != nil {
		return err
	}
	m.Size = info.Size()
	return w.Add(m, io.LimitReader(f, m.Size))
}

func memberOfInfo(info fs.FileInfo, as string, kind Kind, owner string) (Member, error) {
	m := Member{Name: as, Kind: kind, Owner: owner, Group: owner, Mode: uint32(info.Mode().Perm())}
	if owner != "" {
		return m, nil
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return m, errors.New("it has an owner that cannot be read")
	}
	u, err := user.LookupId(strconv.Itoa(int(st.Uid)))
	if err != nil {
		return m, err
	}
	g, err := user.LookupGroupId(strconv.Itoa(int(st.Gid)))
	if err != nil {
		return m, err
	}
	m.Owner, m.Group = u.Username, g.Name
	return m, nil
}

// Merge writes the members of a whole archive, which was checked, into w.
func Merge(w *Writer, r io.Reader, m *Manifest) error {
	return eachMember(r, m, w.Add)
}
