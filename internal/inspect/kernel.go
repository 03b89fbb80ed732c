// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"bawn/internal/doctor"
)

func (h Host) cgroups() doctor.Finding {
	var problems []problem
	group := filepath.Join(h.Cgroups, h.Mark)
	for _, name := range []string{"cgroup.procs", "cgroup.kill", "cgroup.freeze"} {
		if _, err := os.Stat(filepath.Join(group, name)); err != nil {
			problems = append(problems, problem{seen: err.Error()})
		}
	}
	return found(doctor.Cgroups, "", problems)
}

func (h Host) limits() doctor.Finding {
	var problems []problem
	for _, l := range h.Limits {
		problems = append(problems, problem{seen: l})
	}
	return found(doctor.Limits, "", problems)
}

func (h Host) seccomp() doctor.Finding {
	text, err := os.ReadFile(h.sysctl("kernel.seccomp.actions_avail"))
	var problems []problem
	if err != nil {
		problems = []problem{{seen: err.Error()}}
	}
	have := strings.Fields(string(text))
	for _, action := range []string{"kill_process", "errno", "allow"} {
		if err == nil && !slices.Contains(have, action) {
			problems = append(problems, problem{seen: "the kernel has no action " + action})
		}
	}
	return found(doctor.Seccomp, "", problems)
}

func (h Host) namespaces() doctor.Finding {
	var problems []problem
	for ns, count := range map[string]string{"net": "net", "mnt": "mnt", "pid": "pid", "ipc": "ipc", "uts": "uts", "user": "user"} {
		if _, err := os.Lstat(filepath.Join(h.Proc, "self", "ns", ns)); err != nil {
			problems = append(problems, problem{seen: err.Error()})
			continue
		}
		key := "user.max_" + count + "_namespaces"
		if n, err := h.number(key); err == nil && n < 16 {
			problems = append(problems, problem{fmt.Sprintf("%s is %d", key, n), "sysctl -w " + key + "=4096"})
		}
	}
	slices.SortFunc(problems, func(a, b problem) int { return strings.Compare(a.seen, b.seen) })
	return found(doctor.Namespaces, "", problems)
}

// advice looks at settings that bind every account of the host. No agent
// depends on them.
func (h Host) advice() (list []doctor.Finding) {
	for _, a := range []struct {
		name doctor.Name
		key  string
		good func(int) bool
		also string // another setting that does as well, if it is 0
	}{
		{doctor.UserNS, "kernel.unprivileged_userns_clone", func(n int) bool { return n == 0 }, "user.max_user_namespaces"},
		{doctor.IOUring, "kernel.io_uring_disabled", func(n int) bool { return n > 0 }, ""},
		{doctor.Dmesg, "kernel.dmesg_restrict", func(n int) bool { return n > 0 }, ""},
		{doctor.BPF, "kernel.unprivileged_bpf_disabled", func(n int) bool { return n > 0 }, ""},
	} {
		n, err := h.number(a.key)
		other, otherErr := 1, error(nil)
		if a.also != "" {
			other, otherErr = h.number(a.also)
		}
		switch {
		case err == nil && a.good(n):
			list = append(list, doctor.Finding{Name: a.name, State: doctor.OK, Seen: fmt.Sprintf("%s is %d", a.key, n)})
		case a.also != "" && otherErr == nil && other == 0:
			list = append(list, doctor.Finding{Name: a.name, State: doctor.OK, Seen: a.also + " is 0"})
		case err == nil:
			list = append(list, doctor.Finding{Name: a.name, State: doctor.Warn, Seen: fmt.Sprintf("%s is %d", a.key, n)})
		case a.also != "" && otherErr == nil:
			list = append(list, doctor.Finding{Name: a.name, State: doctor.Warn, Seen: fmt.Sprintf("%s is %d", a.also, other)})
		default:
			list = append(list, none(a.name, "this kernel has no "+a.key))
		}
	}
	return list
}

func (h Host) sysctl(key string) string {
	return filepath.Join(h.Sysctl, strings.ReplaceAll(key, ".", "/"))
}

func (h Host) number(key string) (int, error) {
	text, err := os.ReadFile(h.sysctl(key))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}
