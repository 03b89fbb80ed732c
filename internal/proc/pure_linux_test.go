// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proc_test

import (
	"math"
	"slices"
	"testing"

	"bawn/internal/proc"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func judge(t *testing.T, arch, number uint32, args ...uint64) uint32 {
	t.Helper()
	var a [6]uint64
	copy(a[:], args)
	got, err := proc.Judge(arch, number, a)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestI12EveryCallNumberHasItsAnswer(t *testing.T) {
	allowed, refused, checked := proc.Listed()
	listed := slices.Concat(allowed, refused, checked)
	slices.Sort(listed)
	if n := len(slices.Compact(slices.Clone(listed))); n != len(listed) {
		t.Errorf("%d numbers are in more than one list", len(listed)-n)
	}
	for nr := range uint32(1000) {
		want := uint32(proc.Unknown)
		switch {
		case slices.Contains(allowed, nr):
			want = proc.Allow
		case slices.Contains(refused, nr):
			want = proc.Refused
		case slices.Contains(checked, nr):
			continue
		}
		if got := judge(t, proc.Arch, nr); got != want {
			t.Errorf("call %d: %#x, want %#x", nr, got, want)
		}
	}
	for _, nr := range []uint32{0x40000000, 0x40000000 | unix.SYS_READ, 0x7fffffff, math.MaxUint32} {
		if got := judge(t, proc.Arch, nr); got != proc.Unknown {
			t.Errorf("call %#x: %#x", nr, got)
		}
	}
}

func TestOtherArchitecturesAreKilled(t *testing.T) {
	for _, arch := range []uint32{unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_ARM, unix.AUDIT_ARCH_PPC64, 0, math.MaxUint32} {
		for _, nr := range []uint32{unix.SYS_READ, unix.SYS_EXIT_GROUP, 1000} {
			if got := judge(t, arch, nr); got != proc.Kill {
				t.Errorf("architecture %#x, call %d: %#x", arch, nr, got)
			}
		}
	}
}

func TestChecksOfArguments(t *testing.T) {
	const errno = 0x00050000
	none, unsupported := uint32(errno|unix.EAFNOSUPPORT), uint32(errno|unix.EPROTONOSUPPORT)
	noOption := uint32(errno | unix.ENOPROTOOPT)
	for name, c := range map[string]struct {
		number uint32
		args   []uint64
		want   uint32
	}{
		"unix":                  {unix.SYS_SOCKET, []uint64{unix.AF_UNIX, unix.SOCK_RAW}, proc.Allow},
		"tcp with flags":        {unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_STREAM | unix.SOCK_NONBLOCK | unix.SOCK_CLOEXEC, 6}, proc.Allow},
		"raw with flags":        {unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_RAW | unix.SOCK_CLOEXEC, 6}, proc.Refused},
		"dccp":                  {unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_DCCP}, proc.Refused},
		"packet type":           {unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_PACKET}, proc.Refused},
		"udp over a stream":     {unix.SYS_SOCKET, []uint64{unix.AF_INET6, unix.SOCK_STREAM, unix.IPPROTO_UDP}, unsupported},
		"no family":             {unix.SYS_SOCKET, []uint64{0}, none},
		"negative family":       {unix.SYS_SOCKET, []uint64{math.MaxUint64}, none},
		"pair":                  {unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX}, proc.Allow},
		"an option":             {unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.SO_REUSEADDR}, proc.Allow},
		"a number of a join":    {unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.IP_ADD_MEMBERSHIP}, proc.Allow},
		"join, bits above":      {unix.SYS_SETSOCKOPT, []uint64{3, 1 << 32, 1<<32 | unix.IP_ADD_MEMBERSHIP}, noOption},
		"join a source":         {unix.SYS_SETSOCKOPT, []uint64{3, unix.IPPROTO_IP, unix.IP_ADD_SOURCE_MEMBERSHIP}, noOption},
		"join, either family":   {unix.SYS_SETSOCKOPT, []uint64{3, unix.IPPROTO_IP, 42}, noOption},
		"join, IPv6":            {unix.SYS_SETSOCKOPT, []uint64{3, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP}, noOption},
		"join a source, IPv6":   {unix.SYS_SETSOCKOPT, []uint64{3, unix.IPPROTO_IPV6, 46}, noOption},
		"one family alone":      {unix.SYS_SETSOCKOPT, []uint64{3, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY}, proc.Allow},
		"terminal size":         {unix.SYS_IOCTL, []uint64{0, unix.TIOCGWINSZ}, proc.Allow},
		"line discipline":       {unix.SYS_IOCTL, []uint64{0, unix.TIOCSETD}, proc.Refused},
		"fork":                  {unix.SYS_CLONE, []uint64{uint64(unix.SIGCHLD)}, proc.Allow},
		"thread":                {unix.SYS_CLONE, []uint64{unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_THREAD | unix.CLONE_SYSVSEM | unix.CLONE_SETTLS | unix.CLONE_PARENT_SETTID | unix.CLONE_CHILD_CLEARTID}, proc.Allow},
		"exit signal 0x80":      {unix.SYS_CLONE, []uint64{0x80}, proc.Allow}, // CLONE_NEWTIME is part of the signal here
		"one namespace":         {unix.SYS_CLONE, []uint64{unix.CLONE_THREAD | unix.CLONE_NEWUTS}, proc.Refused},
		"unshare nothing":       {unix.SYS_UNSHARE, []uint64{0}, proc.Allow},
		"unshare time":          {unix.SYS_UNSHARE, []uint64{unix.CLONE_NEWTIME}, proc.Refused},
		"plain mode":            {unix.SYS_FCHMODAT, []uint64{0, 0, 0o1777}, proc.Allow},
		"set-gid mode":          {unix.SYS_FCHMODAT, []uint64{0, 0, 0o2000}, proc.Refused},
		"set-uid, bits above":   {unix.SYS_FCHMOD, []uint64{0, 1<<40 | 0o4755}, proc.Refused},
		"open, making":          {unix.SYS_OPENAT, []uint64{0, 0, unix.O_CREAT | unix.O_RDWR, 0o644}, proc.Allow},
		"open, making set-uid":  {unix.SYS_OPENAT, []uint64{0, 0, unix.O_CREAT | unix.O_RDWR, 0o4644}, proc.Refused},
		"open, tmpfile":         {unix.SYS_OPENAT, []uint64{0, 0, unix.O_TMPFILE | unix.O_RDWR, 0o600}, proc.Allow},
		"open, tmpfile set-gid": {unix.SYS_OPENAT, []uint64{0, 0, unix.O_TMPFILE | unix.O_RDWR, 0o2600}, proc.Refused},
		"open a directory":      {unix.SYS_OPENAT, []uint64{0, 0, unix.O_DIRECTORY, math.MaxUint64}, proc.Allow},
		"personality":           {unix.SYS_PERSONALITY, []uint64{0x40000}, proc.Allow},
		"executable reads":      {unix.SYS_PERSONALITY, []uint64{0x400000}, proc.Refused},
	} {
		if got := judge(t, proc.Arch, c.number, c.args...); got != c.want {
			t.Errorf("%s: %#x, want %#x", name, got, c.want)
		}
	}
}

func FuzzFilterEnds(f *testing.F) {
	f.Add(uint32(proc.Arch), uint32(unix.SYS_SOCKET), uint64(unix.AF_INET), uint64(unix.SOCK_RAW), uint64(0))
	f.Fuzz(func(t *testing.T, arch, number uint32, a, b, c uint64) {
		got, err := proc.Judge(arch, number, [6]uint64{a, b, c, a, b, c})
		if err != nil {
			t.Fatal(err)
		}
		if arch != proc.Arch && got != proc.Kill {
			t.Errorf("%#x %d: %#x", arch, number, got)
		}
		// Oracle: the families, said the other way round.
		if arch == proc.Arch && number == unix.SYS_SOCKET && got == proc.Allow {
			family, kind := uint32(a), uint32(b)&0xf
			local := family == unix.AF_UNIX
			netlink := family == unix.AF_NETLINK && uint32(c) == 0
			internet := (family == unix.AF_INET || family == unix.AF_INET6) && (kind == unix.SOCK_STREAM || kind == unix.SOCK_DGRAM)
			if !local && !netlink && !internet {
				t.Errorf("socket(%d, %d, %d) allowed", family, kind, uint32(c))
			}
		}
	})
}

func TestOwnersAreSwappedOneToOne(t *testing.T) {
	for _, c := range [][2]uint32{{1000, 1900000001}, {1900000001, 1000}, {0, 1900000001}, {5, 6}, {7, 7}, {0, math.MaxUint32 - 1}} {
		m := proc.SwapIDs(c[0], c[1])
		if len(m) > 5 {
			t.Errorf("%v: %d extents", c, len(m))
		}
		look := func(id uint32) int {
			for _, e := range m {
				if int(id) >= e.ContainerID && int(id) < e.ContainerID+e.Size {
					return e.HostID + int(id) - e.ContainerID
				}
			}
			return -1
		}
		total := 0
		for _, e := range m {
			total += e.Size
		}
		if total != math.MaxUint32 || look(c[0]) != int(c[1]) || look(c[1]) != int(c[0]) {
			t.Errorf("%v: %v", c, m)
		}
		for _, other := range []uint32{1, 999, 1001, 65534, 1900000000, 1900000002, math.MaxUint32 - 2} {
			if other != c[0] && other != c[1] && look(other) != int(other) {
				t.Errorf("%v maps %d to %d", c, other, look(other))
			}
		}
	}
}

func TestHierarchiesOfCommonHosts(t *testing.T) {
	for name, c := range map[string]struct {
		mountinfo string
		want      []string
	}{
		"version 2 alone": {`31 23 0:28 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot
`, []string{"v2 /sys/fs/cgroup []"}},
		"both": {`31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
36 31 0:33 / /sys/fs/cgroup/devices rw,relatime - cgroup cgroup rw,devices
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
`, []string{"v1 /sys/fs/cgroup/cpu,cpuacct [cpu]", "v1 /sys/fs/cgroup/memory [memory]", "v2 /sys/fs/cgroup/unified []"}},
		"mounted twice, and in part": {`31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw
99 23 0:28 / /run/other\040place rw - cgroup2 cgroup2 rw
98 23 0:29 /docker/1 /somewhere rw - cgroup cgroup rw,pids
`, []string{"v2 /sys/fs/cgroup []"}},
		"a place with a space": {`99 23 0:28 / /run/other\040place rw - cgroup2 cgroup2 rw
`, []string{"v2 /run/other place []"}},
		"nonsense": {"\n - \nx - cgroup2\n1 2 3 / / rw - ext4 /dev/sda rw", nil},
	} {
		if diff := cmp.Diff(c.want, proc.Hierarchies(c.mountinfo)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestLimitsAreWrittenWhereTheControllerIs(t *testing.T) {
	l := proc.Limits{PIDs: 10, MemoryBytes: 1 << 20, CPUPercent: 150}
	all := []string{"cpu", "memory", "pids"}
	for name, c := range map[string]struct {
		unified     bool
		controllers []string
		limits      proc.Limits
		want        [][2]string
	}{
		"version 2":           {true, all, l, [][2]string{{"pids.max", "10"}, {"memory.max", "1048576"}, {"cpu.max", "150000 100000"}}},
		"version 1":           {false, all, l, [][2]string{{"pids.max", "10"}, {"memory.limit_in_bytes", "1048576"}, {"cpu.cfs_quota_us", "150000"}}},
		"without controllers": {true, nil, l, nil},
		"one controller":      {false, []string{"memory"}, l, [][2]string{{"memory.limit_in_bytes", "1048576"}}},
		"without limits":      {true, all, proc.Limits{}, nil},
	} {
		if diff := cmp.Diff(c.want, proc.Settings(c.unified, c.controllers, c.limits)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestTheAgentsEntryReplacesTheHosts(t *testing.T) {
	s := proc.Spec{Agent: "dev", UID: 1900000001, GID: 1900000001}
	const own = "bawn-dev:x:1900000001:1900000001:Bawn agent dev:/home/dev:/bin/sh\n"
	const root = "root:x:0:0:root:/root:/bin/bash\n"
	for name, host := range map[string]string{
		"new":             root,
		"there":           root + "bawn-dev:x:1900000001:1900000001::/var/lib/bawn/agents/dev/home:/usr/sbin/nologin\n",
		"another id":      root + "bawn-dev:x:5:5::/x:/x\n",
		"another name":    root + "mallory:x:1900000001:0::/x:/x",
		"no last newline": root[:len(root)-1],
	} {
		if got := s.Passwd(host); got != root+own {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := s.Group("root:x:0:\nbawn-dev:x:7:\n"); got != "root:x:0:\nbawn-dev:x:1900000001:\n" {
		t.Errorf("%q", got)
	}
	if got := s.ResolvConf(); got == "" || got[0] != '#' {
		t.Errorf("%q", got)
	}
}
