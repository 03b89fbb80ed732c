// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// keptCopies is how many copies of older versions stay beside the database.
const keptCopies = 2

// copyName is where the copy of a version lies.
func copyName(path string, version int) string { return path + ".v" + strconv.Itoa(version) }

// copyOld keeps a file of an older version as it is before it is brought up to
// date, so that there is a way back to the older program.
func (s *Store) copyOld(ctx context.Context) error {
	version, err := versionOf(ctx, s.writer)
	if err != nil || version == 0 || version >= len(migrations) {
		return err
	}
	name := copyName(s.path, version)
	if err := copyTo(ctx, s.writer, name, version); err != nil && !errors.Is(err, errVersion) {
		return fmt.Errorf("copying it to %s before it is brought from version %d to %d: %w", name, version, len(migrations), err)
	}
	return removeOldCopies(s.path)
}

func versionOf(ctx context.Context, db *sql.DB) (version int, err error) {
	return version, db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version)
}

// errVersion says that a copy has another version than was asked for.
var errVersion = errors.New("its version changed meanwhile")

// copyTo makes a whole copy of the database under a name, or none. want is the
// version that the copy must have: another process may come first, and then
// there is nothing left to copy.
func copyTo(ctx context.Context, db *sql.DB, name string, want int) error {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".part-*") // mode 0600
	if err != nil {
		return err
	}
	part := f.Name()
	defer os.Remove(part) // fails once it has its name
	if err := f.Close(); err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, "VACUUM INTO ?", part); err != nil {
		return err
	}
	copied, err := sql.Open("sqlite", dsn(part, "_pragma=query_only(1)"))
	if err != nil {
		return err
	}
	got, err := versionOf(ctx, copied)
	if err = errors.Join(err, copied.Close()); err != nil {
		return err
	}
	if got != want {
		return errVersion
	}
	return settle(part, name)
}

// settle brings a written file to the disk and gives it its name.
func settle(part, name string) error {
	f, err := os.Open(part)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close(), os.Rename(part, name)); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// copies are the versions of which there is a copy, newest first.
func copies(path string) (versions []int, err error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		number, ok := strings.CutPrefix(e.Name(), filepath.Base(path)+".v")
		if v, err := strconv.Atoi(number); ok && err == nil && strconv.Itoa(v) == number && v > 0 {
			versions = append(versions, v)
		}
	}
	slices.Sort(versions)
	slices.Reverse(versions)
	return versions, nil
}

func removeOldCopies(path string) error {
	versions, err := copies(path)
	if err != nil {
		return err
	}
	for _, v := range versions[min(keptCopies, len(versions)):] {
		if err := os.Remove(copyName(path, v)); err != nil {
			return err
		}
	}
	return nil
}

// wayBack says which copy this program could use in the place of a file that
// it cannot.
func wayBack(path string) string {
	if path == "" {
		return ""
	}
	versions, err := copies(path)
	if err != nil {
		return ""
	}
	for _, v := range versions {
		if v <= len(migrations) {
			return fmt.Sprintf("; %s is a copy that this program can use: to go back to it, and lose what came after, move %s away, with -wal and -shm, and the copy to its place",
				copyName(path, v), path)
		}
	}
	return ""
}

// CopyTo writes a consistent copy of the open database to a new file, which
// belongs to the caller alone. Writes may go on meanwhile.
func (s *Store) CopyTo(ctx context.Context, name string) error {
	db, err := sql.Open("sqlite", dsn(s.path, "_txlock=deferred"))
	if err == nil {
		err = errors.Join(copyTo(ctx, db, name, len(migrations)), db.Close())
	}
	if err != nil {
		return fmt.Errorf("copying database %s: %w", s.path, err)
	}
	return nil
}
