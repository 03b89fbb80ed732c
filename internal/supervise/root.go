// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"bawn/internal/config"
)

// checkRoot reports why nothing can be kept under the root directory of p. What
// does not exist yet is made later, as root's.
func checkRoot(p config.Paths) error {
	// One byte of the kernel's field ends the name (unix(7)).
	if n, most := len(p.AdminSock()), len(unix.RawSockaddrUnix{}.Path)-1; n > most {
		return fmt.Errorf("using --root %s: the name of the socket %s has %d bytes, and Linux takes %d: use a shorter directory", p.Root, p.AdminSock(), n, most)
	}
	for dir := filepath.Clean(p.Root); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err == nil {
			err = usable(info)
		} else if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		if err != nil {
			return fmt.Errorf("using --root %s: %s %w", p.Root, dir, err)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

// CheckSelf reports why Bawn's own accounts could not execute its binary.
func CheckSelf(self string) error {
	for at := self; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err != nil {
			return fmt.Errorf("starting: %w", err)
		}
		if info.Mode()&0o001 == 0 {
			return fmt.Errorf("starting: Bawn's own accounts cannot execute %s, since %s is closed to them (its mode is %04o): install the program, for example: install -m 755 %s /usr/local/bin/",
				self, at, info.Mode().Perm(), self)
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

// usable reports why info's directory cannot be on the way to Bawn's files:
// Bawn's own accounts have to pass, and nobody else may put other files in the
// place of Bawn's.
func usable(info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return errors.New("is not a directory")
	case !ok:
		return errors.New("has an owner that cannot be read")
	case st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return fmt.Errorf("belongs to uid %d, who could put other files in the place of Bawn's: use a directory of root's", st.Uid)
	case info.Mode()&0o002 != 0 && info.Mode()&fs.ModeSticky == 0:
		return errors.New("may be written by everybody, who could put other files in the place of Bawn's: chmod o-w it")
	case info.Mode()&0o001 == 0:
		return fmt.Errorf("cannot be entered by Bawn's own accounts (its mode is %04o): chmod o+x it, or use another directory", info.Mode().Perm())
	}
	return nil
}
