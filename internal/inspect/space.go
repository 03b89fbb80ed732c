// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"bawn/internal/doctor"
)

// The bounds. Below the first nothing is left soon, below the second somebody
// should look.
const (
	fewBytes, someBytes   = 64 << 20, 1 << 30
	fewInodes, someInodes = 1000, 10000
	enoughPart            = 20 // with more than one twentieth left nobody has to look
)

// stores are the directories that grow.
func (h Host) stores() []string {
	return []string{filepath.Join(h.state("proxy"), "journal"), h.state("admin")}
}

func (h Host) blocks() doctor.Finding {
	return h.room(doctor.Blocks, func(st unix.Statfs_t) (left, all uint64) {
		return st.Bavail * uint64(st.Bsize), st.Blocks * uint64(st.Bsize)
	}, fewBytes, someBytes, func(n uint64) string { return fmt.Sprintf("%d MiB left", n>>20) })
}

func (h Host) inodes() doctor.Finding {
	return h.room(doctor.Inodes, func(st unix.Statfs_t) (left, all uint64) {
		return st.Ffree, st.Files
	}, fewInodes, someInodes, func(n uint64) string { return fmt.Sprintf("%d inodes left", n) })
}

// room looks at the file systems of all stores. One that counts none of what is
// asked for, as some do with inodes, has enough.
func (h Host) room(name doctor.Name, measure func(unix.Statfs_t) (left, all uint64), few, some uint64, say func(uint64) string) doctor.Finding {
	f := doctor.Finding{Name: name, State: doctor.OK}
	for _, dir := range h.stores() {
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err != nil {
			return doctor.Finding{Name: name, State: doctor.Fail, Seen: (&os.PathError{Op: "statfs", Path: dir, Err: err}).Error()}
		}
		left, all := measure(st)
		switch {
		case all == 0:
			continue
		case left < few:
			return doctor.Finding{Name: name, State: doctor.Fail, Seen: dir + ": " + say(left)}
		case left < some && left < all/enoughPart:
			f = doctor.Finding{Name: name, State: doctor.Warn, Seen: dir + ": " + say(left)}
		case f.Seen == "":
			f.Seen = say(left)
		}
	}
	return f
}
