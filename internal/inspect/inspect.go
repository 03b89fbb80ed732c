// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inspect looks at the host from outside an agent's place, for `bawn
// doctor`: owners and modes of what Bawn keeps, its processes and units, the
// accounts of its agents, the kernel, tables of others, and room on disk.
//
// It runs in netd, as root, since nobody else may see all of that. It changes
// nothing, follows no link where an agent could have put one, and reads no
// secret: of files that hold one it looks at owner and mode.
package inspect

import (
	"fmt"
	"path/filepath"

	"bawn/internal/doctor"
)

// A Host says where to look. [Default] is a host's usual places.
type Host struct {
	// Bawn's own directories.
	Etc, Lib, Run string
	Binary        string   // the program
	Secrets       []string // files that the configuration names and that only root may read

	Admin, Proxy Account
	Operators    int // gid

	Processes []Process
	Mark      string // of Bawn's cgroup, below Cgroups

	// Those of the system.
	Proc, Sysctl, Cgroups string
	System                string // holds etc, var, run and usr
	Limits                []string
}

// An Account is one of Bawn's own.
type Account struct{ UID, GID int }

// A Process is one of Bawn's own that holds keys.
type Process struct {
	Name string
	PID  int
	UID  int
}

// state is the private directory of one process.
func (h Host) state(process string) string { return filepath.Join(h.Lib, process) }

// All makes every check of [doctor.Outside] but those of the firewall, which
// netd knows itself.
func (h Host) All() []doctor.Finding {
	list := []doctor.Finding{
		h.caKey(), h.auditKey(), h.databases(), h.configuration(), h.sockets(), h.stateDirectories(), h.journals(), h.public(), h.homes(), h.binary(),
		h.dumps(), h.privileges(), h.units(),
		h.uidRange(), h.logins(),
		h.cgroups(), h.limits(), h.seccomp(), h.namespaces(),
		h.blocks(), h.inodes(),
	}
	return append(list, h.advice()...)
}

// found makes a finding of the problems of one check: none is OK.
func found(name doctor.Name, ok string, problems []problem) doctor.Finding {
	f := doctor.Finding{Name: name, State: doctor.OK, Seen: ok}
	if len(problems) == 0 {
		return f
	}
	f.State = "" // the worst that the catalogue has for it
	var seen, fixes []string
	for _, p := range problems {
		seen = append(seen, p.seen)
		if p.fix != "" {
			fixes = append(fixes, p.fix)
		}
	}
	f.Seen, f.Fix = doctor.Summary(seen), doctor.Summary(fixes)
	return f
}

// none is the finding of a check that there is nothing for on this host.
func none(name doctor.Name, why string) doctor.Finding {
	return doctor.Finding{Name: name, State: doctor.NotApplicable, Seen: why}
}

// count says how many things there are.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// A problem is one thing that is not as it should be, and what mends it.
type problem struct{ seen, fix string }
