// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"bawn/internal/apitype"
	"bawn/internal/backup"
	"bawn/internal/store"
	"bawn/internal/supervise"
)

func (a *app) backupCommand() *cobra.Command {
	var m backup.Manifest
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Write what this installation needs to come back (needs root)",
		Long: "Writes the database with policy and agents, the keys of the CA and of the record, the\n" +
			"checkpoints, the configuration and the names that agents were given into one archive,\n" +
			"while Bawn runs or not. Files that the configuration names are not in it. Whoever has\n" +
			"the archive has the keys.",
		Args: wants("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if os.Geteuid() != 0 {
				return errors.New("this needs root (use sudo): no single account of Bawn's may read all of it")
			}
			if _, err := os.Lstat(a.paths().State("admin")); err != nil {
				return fmt.Errorf("making a backup: there is no installation: %w", err)
			}
			m.Version, m.Made = version, time.Now()
			return a.backup(cmd.Context(), args[0], m)
		},
	}
	cmd.Flags().BoolVar(&m.Journals, "journals", false, "with the record of all that agents and operators did")
	cmd.Flags().BoolVar(&m.Homes, "homes", false, "with agents' homes and workspaces")
	return cmd
}

// backup writes the archive to a new file, which is whole or not there.
func (a *app) backup(ctx context.Context, to string, m backup.Manifest) (err error) {
	f, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if errors.Is(err, os.ErrExist) {
		return &apitype.Error{Message: fmt.Sprintf("making a backup: %s is there already", to), Hint: "a backup replaces no file: name a new one, or remove this one first"}
	}
	if err != nil {
		return fmt.Errorf("making a backup: %w", err)
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			os.Remove(to)
		}
	}()
	w := backup.NewWriter(f, m)
	if err := a.adminPart(ctx, w, filepath.Dir(to), m.Journals); err != nil {
		return err
	}
	left := func(what string) { fmt.Fprintln(a.stderr, "warning: left out: "+what) }
	if err := backup.AddRest(w, a.paths(), left); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("making a backup: %w", err)
	}
	fmt.Fprintf(a.stdout, "%s: %d files and directories, %d bytes; it holds the keys of the CA and of the record\n", to, w.Members(), w.Bytes)
	return nil
}

// adminPart has admin write its part. Where Bawn does not run, root does it.
func (a *app) adminPart(ctx context.Context, w *backup.Writer, scratch string, journals bool) error {
	unlock, running := a.stopped()
	if running == nil {
		defer unlock()
		return backup.AddAdmin(ctx, w, a.paths(), func(ctx context.Context, name string) error {
			return store.CopyOf(ctx, a.paths().Database(), name)
		}, scratch)
	}
	from, err := a.client().Backup(ctx, apitype.MakeBackup{Journals: journals})
	if err != nil {
		return err
	}
	defer from.Close()
	part, err := os.CreateTemp(scratch, ".bawn-backup-*")
	if err != nil {
		return fmt.Errorf("making a backup: %w", err)
	}
	defer func() { part.Close(); os.Remove(part.Name()) }()
	if _, err := io.Copy(part, from); err != nil {
		return fmt.Errorf("making a backup: %w", err)
	}
	m, err := checked(part, 1<<62)
	if err != nil {
		return fmt.Errorf("making a backup: admin's part: %w", err)
	}
	return backup.Merge(w, part, m)
}

// checked verifies an archive and leaves the file at its beginning.
func checked(f *os.File, most int64) (*backup.Manifest, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	m, err := backup.Verify(f, most)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	return m, err
}

// stopped makes sure that nothing of this installation runs and that nothing of
// it starts until unlock is called: it holds the locks of all of them.
func (a *app) stopped() (unlock func(), err error) {
	var held []func()
	unlock = func() {
		for _, u := range held {
			u()
		}
	}
	u, err := supervise.Lock(a.paths())
	if err != nil {
		return nil, err
	}
	held = append(held, u)
	for _, plane := range []string{"admin", "proxy"} {
		f, err := os.Open(filepath.Join(a.paths().Journal(plane), plane+".lock"))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			held = append(held, func() { f.Close() })
			err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		}
		if err != nil {
			unlock()
			return nil, fmt.Errorf("%s runs: stop Bawn first: %w", plane, err)
		}
	}
	return unlock, nil
}

// room is how many bytes can be written below a directory, which may not be
// there yet.
func room(dir string) (int64, error) {
	var st syscall.Statfs_t
	err := syscall.Statfs(dir, &st)
	for ; errors.Is(err, os.ErrNotExist) && dir != "/"; err = syscall.Statfs(dir, &st) {
		dir = filepath.Dir(dir)
	}
	if err != nil {
		return 0, fmt.Errorf("looking for room in %s: %w", dir, err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// accountIDs are the numbers of an account and its group.
func accountIDs(name string) (uid, gid int, err error) {
	if name == "root" {
		return 0, 0, nil
	}
	u, err := uidOf(name)
	if err != nil {
		return 0, 0, err
	}
	g, err := gidOf(name)
	return int(u), int(g), err
}
