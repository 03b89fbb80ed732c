// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"bawn/internal/apitype"
	"bawn/internal/ids"
	"bawn/internal/netd/netdapi"
	"bawn/internal/peercred"
	"bawn/internal/store"
)

// choose finds the agent that was named, or the only one.
func (m *Manager) choose(ctx context.Context, name string) (store.Agent, error) {
	agents, err := m.o.Registry.Agents(ctx)
	if err != nil {
		return store.Agent{}, err
	}
	var listed []store.Agent
	for _, a := range agents {
		if a.Name == Doctor {
			continue
		}
		if a.Name == name {
			return a, nil
		}
		listed = append(listed, a)
	}
	switch {
	case name != "":
		return store.Agent{}, &apitype.Error{Status: 404, Message: fmt.Sprintf("there is no agent %q", name), Hint: `"bawn agent list" shows those that there are`}
	case len(listed) == 1:
		return listed[0], nil
	case len(listed) == 0:
		return store.Agent{}, &apitype.Error{Status: 404, Message: "there is no agent yet", Hint: `"bawn agent create NAME --user USER" makes one`}
	}
	return store.Agent{}, &apitype.Error{Status: 400, Message: fmt.Sprintf("there are %d agents", len(listed)), Hint: "say which with --agent NAME"}
}

// bounds of what a caller may ask for; the kernel's own limit on one argument
// is 128 KiB.
const (
	maxArgs  = 4096
	maxBytes = 96 << 10 // arguments and environment together, in bytes
	maxLends = 16
	maxPorts = 16
)

func checkStart(s apitype.StartSession, files int) error {
	size := 0
	for _, a := range append(append([]string{}, s.Argv...), s.Env...) {
		size += len(a) + 1
	}
	switch {
	case len(s.Argv) == 0 || s.Argv[0] == "":
		return bad("no command")
	case len(s.Argv)+len(s.Env) > maxArgs || size > maxBytes:
		return bad("arguments and environment are %d bytes in %d parts; at most %d in %d are taken", size, len(s.Argv)+len(s.Env), maxBytes, maxArgs)
	case len(s.Lends) > maxLends:
		return bad("%d directories to lend; at most %d are taken", len(s.Lends), maxLends)
	case len(s.Ports) > maxPorts:
		return bad("%d ports to publish; at most %d are taken", len(s.Ports), maxPorts)
	case s.Work != nil && s.Repo != nil:
		return bad("a workspace is either a directory of yours or a clone, not both")
	}
	paths := map[string]bool{}
	seen := map[int]bool{}
	if s.Proof != nil {
		seen[*s.Proof] = true
	}
	for _, d := range directories(s) {
		if d.File < 0 || d.File >= files || seen[d.File] {
			return bad("directory %s refers to descriptor %d of %d", d.Path, d.File, files)
		}
		if paths[d.Path] {
			return bad("directory %s is named twice", d.Path)
		}
		seen[d.File], paths[d.Path] = true, true
	}
	return nil
}

func directories(s apitype.StartSession) []apitype.Directory {
	list := append([]apitype.Directory{}, s.Lends...)
	if s.Work != nil {
		list = append(list, *s.Work)
	}
	if s.Repo != nil {
		list = append(list, *s.Repo)
	}
	return list
}

func bad(format string, args ...any) error {
	return &apitype.Error{Status: 400, Message: fmt.Sprintf(format, args...)}
}

// mount checks that the caller opened d for reading, so that nobody can lend
// what is not theirs to read, and that it is a directory. Within it the
// caller's own files become the agent's; those of others stay what they are.
func mount(caller peercred.Peer, d apitype.Directory, files []*os.File, writable bool) (*netdapi.Mount, error) {
	fd := int(files[d.File].Fd())
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_PATH != 0 {
		return nil, bad("directory %s was not opened for reading", d.Path)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil, bad("%s is not a directory", d.Path)
	}
	if writable && st.Uid != caller.UID {
		return nil, &apitype.Error{Status: 403, Message: fmt.Sprintf("directory %s belongs to uid %d, not to you", d.Path, st.Uid), Hint: "only a directory of your own can be a workspace; --repo clones instead"}
	}
	return &netdapi.Mount{FD: d.File, Path: d.Path, OwnerUID: caller.UID}, nil
}

// placementOf is what was asked for, or the agent's own.
func placementOf(s apitype.StartSession, a store.Agent) (ids.Placement, error) {
	if s.Placement == "" {
		return a.Placement, nil
	}
	p, err := ids.ParsePlacement(string(s.Placement))
	if err != nil {
		return "", bad("%v", err)
	}
	return p, nil
}
