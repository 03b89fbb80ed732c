// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"bawn/internal/secret"
)

// maxFile bounds a file of the operator's.
const maxFile = 1 << 20

// readFile reads a file that nobody but root can have written and, if it is
// private, nobody else can read. Links are followed: it is what they lead to
// that counts.
func readFile(path string, private bool) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := fit(info, private); err != nil {
		return nil, fmt.Errorf("%s %w", path, err)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s has more than %d bytes", path, maxFile)
	}
	return text, err
}

func fit(info fs.FileInfo, private bool) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	mode := info.Mode()
	switch {
	case !mode.IsRegular():
		return errors.New("is not a file")
	case !ok:
		return errors.New("has an owner that cannot be read")
	case st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return fmt.Errorf("belongs to uid %d: chown root it", st.Uid)
	case private && mode.Perm()&0o077 != 0:
		return fmt.Errorf("may be used by others than root (its mode is %04o): chmod 600 it", mode.Perm())
	case mode.Perm()&0o022 != 0:
		return fmt.Errorf("may be written by others than root (its mode is %04o): chmod go-w it", mode.Perm())
	}
	return nil
}

// readPassword reads the one line of a file.
func readPassword(path string) (secret.Text, error) {
	text, err := readFile(path, true)
	if err != nil {
		return secret.Text{}, err
	}
	line := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	if line == "" || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return secret.Text{}, fmt.Errorf("%s is not one line with a password", path)
	}
	return secret.New(line), nil
}
