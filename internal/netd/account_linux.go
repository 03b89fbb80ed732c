// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"bawn/internal/ids"
	"bawn/internal/netd/netdapi"
	"bawn/internal/netplan"
	"bawn/internal/proc"
	"bawn/internal/undo"
)

// accountPrefix marks the accounts of agents.
const accountPrefix = "bawn-"

// maxAccountName is what the distribution's account tools take.
const maxAccountName = 32

// noLogin is the shell of an account that nobody logs in with.
const noLogin = "/usr/sbin/nologin"

// accountName checks an agent's name and uid and gives its account's name.
func accountName(agent string, uid uint32) (string, error) {
	if err := ids.CheckName(agent); err != nil {
		return "", netdapi.Errorf(netdapi.CodeBadRequest, "agent: %v", err)
	}
	name := accountPrefix + agent
	if len(name) > maxAccountName {
		return "", netdapi.Errorf(netdapi.CodeBadRequest, "agent %s: its account %s would be longer than the %d characters that Linux tools take",
			agent, name, maxAccountName)
	}
	if !netplan.IsAgentUID(uid) {
		return "", netdapi.Errorf(netdapi.CodeNotPermitted, "agent %s: uid %d is not from %d to %d", agent, uid, netplan.FirstUID, netplan.LastUID)
	}
	return name, nil
}

// checkOwnAccount makes sure that the uid is that of the agent's own account.
func checkOwnAccount(agent string, uid uint32) error {
	name, err := accountName(agent, uid)
	if err != nil {
		return err
	}
	have, err := lookUp(passwdFile, name, uid)
	switch {
	case err != nil:
		return err
	case have.named == nil:
		return netdapi.Errorf(netdapi.CodeNotFound, "agent %s: it has no account %s", agent, name)
	case have.named.id != uid || have.numbered.name != name:
		return netdapi.Errorf(netdapi.CodeNotPermitted, "agent %s: uid %d is not that of account %s", agent, uid, name)
	}
	return nil
}

// The account files (passwd(5), group(5)).
const (
	passwdFile = "/etc/passwd"
	groupFile  = "/etc/group"
)

// An entry is one line of an account file.
type entry struct {
	name string
	id   uint32
}

// entries are what a file says about a name and about a number.
type entries struct{ named, numbered *entry }

// lookUp reads an account file. Both have the name first and the number third.
func lookUp(file, name string, id uint32) (entries, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return entries{}, fmt.Errorf("looking up account %s: %w", name, err)
	}
	var found entries
	for line := range strings.Lines(string(text)) {
		fields := strings.Split(strings.TrimRight(line, "\n"), ":")
		if len(fields) < 3 {
			continue
		}
		n, err := strconv.ParseUint(fields[2], 10, 32)
		if err != nil {
			continue
		}
		e := entry{fields[0], uint32(n)}
		if e.name == name && found.named == nil {
			found.named = &e
		}
		if e.id == id && found.numbered == nil {
			found.numbered = &e
		}
	}
	return found, nil
}

// vacant reports whether name and number are both free in the file; both taken
// by one entry is no error, since a crash may have left it.
func vacant(file, what, name string, id uint32) (free bool, err error) {
	have, err := lookUp(file, name, id)
	switch {
	case err != nil:
		return false, err
	case have.named == nil && have.numbered == nil:
		return true, nil
	case have.named != nil && have.named.id != id:
		return false, netdapi.Errorf(netdapi.CodeExists, "%s %s exists and is not this agent's: its number is %d, not %d%s", what, name, have.named.id, id, leftBehind(name))
	case have.numbered.name != name:
		return false, netdapi.Errorf(netdapi.CodeExists, "number %d is taken by %s %s%s", id, what, have.numbered.name, leftBehind(have.numbered.name))
	}
	return false, nil
}

// leftBehind says how to go on where a database was lost and its agents'
// accounts were not.
func leftBehind(name string) string {
	if !strings.HasPrefix(name, "bawn-") {
		return ""
	}
	return fmt.Sprintf(" (if it is left of an installation that is gone: userdel %[1]s; groupdel %[1]s)", name)
}

// createAccount makes an agent's group, account and directories, or none of
// them. What an interrupted try has left is taken over.
func (s *Server) createAccount(ctx context.Context, _ *caller, a netdapi.Account) (reply, error) {
	name, err := accountName(a.Agent, a.UID)
	if err != nil {
		return reply{}, err
	}
	s.accounts.Lock()
	defer s.accounts.Unlock()
	var made undo.Stack
	steps := []struct {
		name string
		do   func() error
	}{
		{"group", func() error { return makeGroup(ctx, &made, name, a.UID) }},
		{"user", func() error { return makeUser(ctx, &made, name, a) }},
		{"directories", func() error { return s.makeDirectories(&made, a) }},
		{"last look", func() error { return checkOwnAccount(a.Agent, a.UID) }},
	}
	for _, step := range steps {
		err := s.o.check(step.name)
		if err == nil {
			err = step.do()
		}
		if err != nil {
			return reply{}, errors.Join(fmt.Errorf("making account %s: %s: %w", name, step.name, err), made.Run(ctx))
		}
	}
	return reply{}, nil
}

// EnsureAccount makes an agent's group, account and directories below the state
// directory, as far as they are missing, for an installation that comes back
// from a backup. Nothing may run meanwhile.
func EnsureAccount(ctx context.Context, state string, a netdapi.Account) error {
	s := &Server{o: Options{State: state, check: func(string) error { return nil }}}
	_, err := s.createAccount(ctx, nil, a)
	return err
}

func makeGroup(ctx context.Context, made *undo.Stack, name string, gid uint32) error {
	free, err := vacant(groupFile, "group", name, gid)
	if err != nil || !free {
		return err
	}
	made.Push("group", func(ctx context.Context) error { return removeGroup(ctx, name) })
	return tool(ctx, "groupadd", "--gid", fmt.Sprint(gid), name)
}

func makeUser(ctx context.Context, made *undo.Stack, name string, a netdapi.Account) error {
	free, err := vacant(passwdFile, "account", name, a.UID)
	if err != nil || !free {
		return err
	}
	made.Push("user", func(ctx context.Context) error { return removeUser(ctx, name) })
	uid := fmt.Sprint(a.UID)
	return tool(ctx, "useradd",
		"--system",      // no subordinate uids, no aging
		"--no-log-init", // lastlog is indexed by uid: it would seem to be 500 GB large
		"--no-create-home", "--home-dir", "/home/"+a.Agent,
		"--uid", uid, "--gid", uid, "--no-user-group",
		"--shell", noLogin, "--comment", "Bawn agent "+a.Agent, name)
}

// removeUser and removeGroup take away what is there, and nothing else.
func removeUser(ctx context.Context, name string) error {
	have, err := lookUp(passwdFile, name, 0)
	if err != nil || have.named == nil {
		return err
	}
	return tool(ctx, "userdel", name)
}

func removeGroup(ctx context.Context, name string) error {
	have, err := lookUp(groupFile, name, 0)
	if err != nil || have.named == nil {
		return err // userdel takes a group of the same name with it
	}
	return tool(ctx, "groupdel", name)
}

// toolTime bounds one of the account tools; they wait for one another.
const toolTime = 30 * time.Second

// tool runs one of the distribution's account tools.
func tool(ctx context.Context, name string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, toolTime)
	defer cancel()
	path := ""
	for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/bin"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.Mode().IsRegular() {
			path = filepath.Join(dir, name)
			break
		}
	}
	if path == "" {
		return netdapi.Errorf(netdapi.CodeUnavailable, "running %s: it is not installed (package passwd or shadow-utils)", name)
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = []string{"PATH=/usr/sbin:/sbin:/usr/bin:/bin", "LC_ALL=C"}
	cmd.Dir = "/"
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("running %s: %w: %s", name, err, bytes.TrimSpace(out))
	}
	return nil
}

// The directories of an agent, below State/agents/NAME, which stays root's:
// the agent can put nothing beside or in place of them.
var agentDirectories = []struct {
	name string
	own  bool // the agent's; otherwise root's
}{
	{"home", true},
	{"work", true},
	{"tmp", false}, // holds the sessions' temporary directories
}

// makeDirectories makes the agent's directories. One that exists must be what
// would have been made.
func (s *Server) makeDirectories(made *undo.Stack, a netdapi.Account) error {
	root, err := os.OpenRoot(filepath.Join(s.o.State, "agents"))
	if err != nil {
		return err
	}
	defer root.Close()
	if err := makeDirectory(root, a.Agent, 0, 0o711); err != nil {
		return err
	}
	made.Push("directories", func(context.Context) error { return s.removeDirectories(a.Agent) })
	for _, d := range agentDirectories {
		uid := uint32(0)
		if d.own {
			uid = a.UID
		}
		if err := makeDirectory(root, filepath.Join(a.Agent, d.name), uid, 0o700); err != nil {
			return err
		}
	}
	return nil
}

// makeDirectory makes one directory below root and gives it away. Everything
// above it is root's, so that nobody can exchange it in between.
func makeDirectory(root *os.Root, name string, uid uint32, mode os.FileMode) error {
	err := root.Mkdir(name, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return expectDirectory(root, name, uid)
	}
	if err == nil {
		err = root.Chmod(name, mode)
	}
	if err == nil {
		err = root.Lchown(name, int(uid), int(uid))
	}
	return err
}

func expectDirectory(root *os.Root, name string, uid uint32) error {
	info, err := root.Lstat(name)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || st.Uid != uid {
		return netdapi.Errorf(netdapi.CodeExists, "%s exists and is not a directory of uid %d; move it away", filepath.Join(root.Name(), name), uid)
	}
	return nil
}

// removeDirectories deletes everything that the agent had. No link in it is
// followed out of it.
func (s *Server) removeDirectories(agent string) error {
	agents, err := os.Open(filepath.Join(s.o.State, "agents"))
	if err != nil {
		return err
	}
	defer agents.Close()
	return proc.RemoveTree(context.Background(), agents, agent)
}

// removeAccount removes what createAccount made, as far as it is there. An
// account in use stays.
func (s *Server) removeAccount(ctx context.Context, _ *caller, a netdapi.Account) (reply, error) {
	name, err := accountName(a.Agent, a.UID)
	if err != nil {
		return reply{}, err
	}
	s.accounts.Lock()
	defer s.accounts.Unlock()
	for _, f := range []struct{ file, what string }{{passwdFile, "account"}, {groupFile, "group"}} {
		if _, err := vacant(f.file, f.what, name, a.UID); err != nil {
			return reply{}, fmt.Errorf("removing account %s: %w", name, err)
		}
	}
	if err := s.idle(a); err != nil {
		return reply{}, fmt.Errorf("removing account %s: %w", name, err)
	}
	// The account first: from then on nothing can be started for the agent.
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"user", func() error { return removeUser(ctx, name) }},
		{"group", func() error { return removeGroup(ctx, name) }},
		{"directories", func() error { return s.removeDirectories(a.Agent) }},
	} {
		if err := step.do(); err != nil {
			return reply{}, fmt.Errorf("removing account %s: %s: %w", name, step.name, err)
		}
	}
	return reply{}, nil
}

// idle refuses while a session of the agent runs.
func (s *Server) idle(a netdapi.Account) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.sessions {
		if r.spec.UID == a.UID || r.spec.Identity.Agent == a.Agent {
			return netdapi.Errorf(netdapi.CodeExists, "session %s of the agent runs; stop it first", r.spec.Identity.Session)
		}
	}
	return nil
}
