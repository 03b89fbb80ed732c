// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"bawn/internal/ids"
)

// Places in the view, the same for every agent.
const (
	// WorkPath is the workspace, unless the operator's directory has its own path.
	WorkPath = "/work"
	// RepoPath is where the repository of [Spec.Repo] lies, read-only.
	RepoPath = "/run/bawn/repo"
	// PublicPath is where Bawn's public files lie, read-only: the certificate
	// of its root and the bundles made from it.
	PublicPath = "/run/bawn/public"
	// HomeRoot is the parent of the agent's home; the home is HomeRoot/AGENT.
	HomeRoot = "/home"
)

// Names of the files below PublicPath, which is STATE/public on the host.
const (
	CAFile     = "ca.crt"      // Bawn's root alone, PEM
	BundleFile = "bundle.crt"  // the system's roots, the operator's and Bawn's, PEM
	JavaFile   = "cacerts.jks" // the same as a Java key store, password "changeit"; may be absent
)

// Exit statuses for a command that never ran. [Exit.Fault] tells them from the
// same numbers given by a command.
const (
	StatusFault      = 125 // Bawn could not start it
	StatusNoExec     = 126 // it is there and cannot be executed
	StatusNotFound   = 127 // it is not in the agent's view
	statusSignalBase = 128 // a command that died of signal n ends with 128+n
)

// A Spec says what runs as whom, and what it sees. It holds no secrets: the
// agent's own process 1 has read it.
type Spec struct {
	Session string // names the temporary directory
	Agent   string // names home and host name; [ids.CheckName] holds
	UID     uint32 // the agent's account
	GID     uint32 // its group

	Argv []string // the command, looked up in the view with the agent's PATH
	Exec []string // if set: Bawn's own binary with these arguments, instead of Argv
	Env  []string // KEY=VALUE: the whole environment
	Dir  string   // working directory in the view; empty: the workspace

	TTY        bool // a terminal of its own rather than three pipes
	Rows, Cols uint16

	// Nameservers fills resolv.conf; none: every look-up fails at once.
	Nameservers []string

	// State is Bawn's state directory on the host, for example /var/lib/bawn.
	// agents/AGENT/{home,work} and public below it exist; Start makes
	// agents/AGENT/tmp/SESSION and removes it at the end.
	State string

	// Hide names directories of the host that must not be seen, should they
	// lie within something shown: Bawn's configuration and sockets. State is
	// hidden always.
	Hide []string

	// Work is the operator's directory, mounted read-write. Nil: the agent's
	// own agents/AGENT/work at WorkPath.
	Work *Mount
	// Repo is mounted read-only at RepoPath and cloned into the workspace
	// before the command starts. Its Path is the operator's path: its last
	// element names the clone.
	Repo *Mount
	// Lends are mounted read-only at their own paths.
	Lends []Mount
}

// A Mount is a directory of the operator, given as a descriptor, so that no
// path is looked up again on the way. Its owner's files appear as the agent's
// own, and what the agent makes there belongs to the owner.
type Mount struct {
	Dir      *os.File `json:"-"`
	Path     string   // where it appears in the view: absolute and clean; empty for Work: WorkPath
	OwnerUID uint32   // whose files become the agent's
	OwnerGID uint32   // the owner's primary group; 0 with a non-zero OwnerUID: not known, and none is used
}

// Home is the agent's home in the view.
func (s *Spec) Home() string { return path.Join(HomeRoot, s.Agent) }

// workPath is where the workspace appears.
func (s *Spec) workPath() string {
	if s.Work != nil && s.Work.Path != "" {
		return s.Work.Path
	}
	return WorkPath
}

// MaxLends bounds the directories that one session may borrow.
const MaxLends = 64

// check reports what is wrong with s, all of it.
func (s *Spec) check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if err := ids.CheckName(s.Agent); err != nil {
		bad("agent: %w", err)
	}
	if s.Session == "" || strings.ContainsAny(s.Session, "/.") {
		bad("session %q: not a plain name", s.Session)
	}
	if s.UID == 0 || s.GID == 0 {
		bad("uid %d, gid %d: an agent is never root", s.UID, s.GID)
	}
	if len(s.Argv) == 0 && len(s.Exec) == 0 {
		bad("no command")
	}
	if !path.IsAbs(s.State) {
		bad("state directory %q: not absolute", s.State)
	}
	if s.Dir != "" && !path.IsAbs(s.Dir) {
		bad("working directory %q: not absolute", s.Dir)
	}
	for _, a := range append(append(append([]string{s.Dir}, s.Argv...), s.Exec...), s.Env...) {
		if strings.IndexByte(a, 0) >= 0 {
			bad("%q: holds a NUL byte", a)
		}
	}
	if len(s.Lends) > MaxLends {
		bad("%d lent directories: at most %d", len(s.Lends), MaxLends)
	}
	return errors.Join(append(errs, s.checkPaths())...)
}
