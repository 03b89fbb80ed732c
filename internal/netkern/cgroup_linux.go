// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netkern

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// CgroupRoot finds where the version 2 cgroup hierarchy is mounted: at
// /sys/fs/cgroup, at /sys/fs/cgroup/unified beside version 1, or elsewhere.
func CgroupRoot() (string, error) {
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("finding the cgroup hierarchy: %w", err)
	}
	root, ok := findCgroup2(string(info))
	if !ok {
		return "", errors.New("finding the cgroup hierarchy: no file system of type cgroup2 is mounted; " +
			"the uid placement needs one, for example at /sys/fs/cgroup")
	}
	return root, nil
}

// findCgroup2 reads mountinfo (proc(5)): the fields of a mount, a lone "-", the
// type of the file system. Mounts of a part of the hierarchy do not count.
func findCgroup2(mountinfo string) (string, bool) {
	for line := range strings.Lines(mountinfo) {
		mount, fs, ok := strings.Cut(line, " - ")
		fields := strings.Fields(mount)
		if !ok || len(fields) < 5 || !strings.HasPrefix(fs, "cgroup2 ") || fields[3] != "/" {
			continue
		}
		return unescape.Replace(fields[4]), true
	}
	return "", false
}

// unescape undoes the octal escapes of mountinfo.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// cgroupID gives the kernel's number of a cgroup, which is never used again.
func cgroupID(root, path string) (uint64, error) {
	info, err := os.Stat(filepath.Join(root, path))
	if err != nil {
		return 0, fmt.Errorf("looking up cgroup %s: %w", path, err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, fmt.Errorf("looking up cgroup %s: no inode number", path)
	}
	return stat.Ino, nil
}
