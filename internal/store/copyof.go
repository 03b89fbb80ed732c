// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// CopyOf writes a consistent copy of a database that nobody has open to the
// file to, in whatever version it is. The database and its log are left as they
// are: nothing of another account's would be made beside them.
func CopyOf(ctx context.Context, path, to string) error {
	if err := copyOf(ctx, path, to); err != nil {
		return fmt.Errorf("copying database %s: %w", path, err)
	}
	return nil
}

func copyOf(ctx context.Context, path, to string) error {
	dir, err := os.MkdirTemp(filepath.Dir(to), "copy-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	raw := filepath.Join(dir, "bawn.db")
	for _, side := range []string{"", "-wal"} {
		err := copyFile(path+side, raw+side)
		if side != "" && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
	}
	db, err := sql.Open("sqlite", dsn(raw, "_txlock=deferred"))
	if err != nil {
		return err
	}
	version, err := versionOf(ctx, db)
	if err == nil {
		err = copyTo(ctx, db, to, version)
	}
	return errors.Join(err, db.Close())
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
