// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

// Default fills in the places of the system.
func Default() Host {
	return Host{Proc: "/proc", Sysctl: "/proc/sys", Cgroups: "/sys/fs/cgroup", System: "/"}
}
