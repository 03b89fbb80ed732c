// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netkern_test

import (
	"testing"

	"bawn/internal/netkern"
)

func TestFindCgroup2(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"unified": {"25 30 0:23 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n", "/sys/fs/cgroup"},
		"hybrid": {"31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n" +
			"40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n" +
			"41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n", "/sys/fs/cgroup/unified"},
		"a part of it first": {"1 2 0:9 /user.slice /mnt/part rw - cgroup2 none rw\n3 2 0:9 / /cg rw - cgroup2 none rw\n", "/cg"},
		"escaped":            {`1 2 0:9 / /with\040blank rw - cgroup2 none rw`, "/with blank"},
		"none":               {"31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n", ""},
		"type in a name":     {"31 23 0:28 / /cgroup2 rw - tmpfs cgroup2 rw\n", ""},
		"cut off":            {"31 23\n - cgroup2 x rw\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := netkern.FindCgroup2(c.in)
			if got != c.want || ok != (c.want != "") {
				t.Errorf("found %q, %v", got, ok)
			}
		})
	}
}
