// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netd

import (
	"errors"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"

	"golang.org/x/sys/unix"

	"bawn/internal/ids"
	"bawn/internal/lending"
	"bawn/internal/netd/netdapi"
	"bawn/internal/netplan"
	"bawn/internal/peercred"
)

var sessionForm = regexp.MustCompile(`^s-[0-9a-f]{1,32}$`)

// maxWords bounds arguments and environment each; their size is bounded by the
// packet's.
const maxWords = 8192

// checkSpec refuses what must not be started, whoever asks. proc checks once
// more what the program's view is made of.
func (s *Server) checkSpec(spec *netdapi.StartSpec, files []*os.File) error {
	bad := func(format string, args ...any) error {
		return netdapi.Errorf(netdapi.CodeBadRequest, "starting session: "+format, args...)
	}
	id := spec.Identity
	if !sessionForm.MatchString(id.Session) {
		return bad("session %q: not s- and hex digits", id.Session)
	}
	if err := netplan.CheckSlot(id.Slot); err != nil {
		return bad("%v", err)
	}
	if id.Gen.IsZero() {
		return bad("slot %d has no generation", id.Slot)
	}
	if _, err := ids.ParsePlacement(string(spec.Placement)); err != nil {
		return bad("%v", err)
	}
	if (len(spec.Argv) == 0) == (len(spec.Exec) == 0) {
		return bad("needs a command, and one only")
	}
	if len(spec.Argv) > maxWords || len(spec.Exec) > maxWords || len(spec.Env) > maxWords {
		return bad("more than %d arguments or variables", maxWords)
	}
	if l := spec.Limits; l.PIDs < 0 || l.MemoryBytes < 0 || l.CPUPercent < 0 {
		return bad("limits %+v: below zero", l)
	}
	if err := checkOwnAccount(id.Agent, spec.UID); err != nil {
		return err
	}
	return s.checkMounts(spec, files)
}

// checkMounts makes sure that each directory is one that an operator may lend,
// whatever admin believes: root's system directories, and Bawn's own, never
// are.
func (s *Server) checkMounts(spec *netdapi.StartSpec, files []*os.File) error {
	var mounts []*netdapi.Mount
	for i := range spec.Lends {
		mounts = append(mounts, &spec.Lends[i])
	}
	for _, m := range []*netdapi.Mount{spec.Work, spec.Repo} {
		if m != nil {
			mounts = append(mounts, m)
		}
	}
	used := map[int]bool{}
	operator, loans, err := s.operator(spec, files, len(mounts))
	if err != nil {
		return err
	}
	if spec.Operator != nil {
		used[*spec.Operator] = true
	}
	if len(mounts)+len(used) != len(files) {
		return netdapi.Errorf(netdapi.CodeBadRequest, "starting session: %d descriptors for %d directories", len(files), len(mounts))
	}
	for _, m := range mounts {
		if m.FD < 0 || m.FD >= len(files) || used[m.FD] {
			return netdapi.Errorf(netdapi.CodeBadRequest, "starting session: directory %s: descriptor %d is not its own", m.Path, m.FD)
		}
		used[m.FD] = true
		write := spec.Work != nil && m.FD == spec.Work.FD
		if err := s.checkMount(m, operator.UID, loans, files[m.FD], write); err != nil {
			return netdapi.Errorf(netdapi.CodeNotPermitted, "starting session: directory %s: %v", m.Path, err)
		}
		m.OwnerGID = s.ownGroup(operator, m.OwnerUID)
	}
	return nil
}

func (s *Server) checkMount(m *netdapi.Mount, operator uint32, loans []lending.Loan, dir *os.File, write bool) error {
	if netplan.IsAgentUID(m.OwnerUID) {
		return fmt.Errorf("its owner, uid %d, is an agent", m.OwnerUID)
	}
	if operator != 0 && operator != m.OwnerUID {
		return fmt.Errorf("uid %d asks, and cannot lend what is uid %d's", operator, m.OwnerUID)
	}
	want, err := lending.Of(dir, write)
	if err != nil {
		return err
	}
	if !lending.Covers(loans, want) {
		return fmt.Errorf("uid %d has not lent it, or not for this", operator)
	}
	return s.checkLendable(dir)
}

// ownGroup is the group that the owner of a directory works in, if it is the owner
// who lends it, so that what an agent makes there has it. The group of operators is
// nothing that an agent is lent, whoever works in it.
func (s *Server) ownGroup(operator peercred.Peer, owner uint32) uint32 {
	if operator.UID != owner || operator.GID == s.o.OperatorGID {
		return 0
	}
	return operator.GID
}

// operator finds the account that stands behind the directories, and which it
// has lent: the kernel names the one on the socket that came along, and keeps
// the other in it.
func (s *Server) operator(spec *netdapi.StartSpec, files []*os.File, mounts int) (peer peercred.Peer, loans []lending.Loan, err error) {
	if spec.Operator == nil {
		if mounts > 0 {
			return peer, nil, netdapi.Errorf(netdapi.CodeBadRequest, "starting session: directories need the operator's socket")
		}
		return peer, nil, nil
	}
	if n := *spec.Operator; n < 0 || n >= len(files) {
		return peer, nil, netdapi.Errorf(netdapi.CodeBadRequest, "starting session: the operator's socket is descriptor %d of %d", n, len(files))
	}
	peer, err = peercred.OfFile(files[*spec.Operator])
	if err != nil {
		return peer, nil, netdapi.Errorf(netdapi.CodeBadRequest, "starting session: the operator's socket: %v", err)
	}
	if peer.UID != 0 && !peer.InGroup(s.o.OperatorGID) {
		return peer, nil, netdapi.Errorf(netdapi.CodeNotPermitted, "starting session: uid %d is no operator", peer.UID)
	}
	loans, err = lending.Read(files[*spec.Operator])
	if err != nil {
		return peer, nil, netdapi.Errorf(netdapi.CodeBadRequest, "starting session: the operator's socket: %v", err)
	}
	return peer, loans, nil
}

// A place is a directory as the kernel knows it, whatever its path.
type place struct{ dev, ino uint64 }

func placeOf(fd int, name string) (place, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(fd, name, &st, unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return place{}, os.NewSyscallError("stat", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return place{}, errors.New("not a directory")
	}
	return place{uint64(st.Dev), st.Ino}, nil
}

// kept are the directories that no agent gets to see through a descriptor:
// not they, not what lies in them, and not what they lie in.
func (s *Server) kept() []string {
	return []string{"/etc", "/usr", "/boot", "/proc", "/sys", "/dev", "/run", "/var/lib", "/var/run", "/bin", "/sbin", "/lib", "/lib64", s.o.State}
}

// checkLendable compares the directory and all above it with the kept ones,
// and those and all above them with the directory.
func (s *Server) checkLendable(dir *os.File) error {
	raw, err := dir.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = raw.Control(func(fd uintptr) { inner = s.checkPlace(int(fd)) })
	return errors.Join(err, inner)
}

func (s *Server) checkPlace(fd int) error {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return os.NewSyscallError("fcntl", err)
	}
	if flags&unix.O_PATH != 0 {
		return errors.New("it was not opened for reading")
	}
	self, err := placeOf(fd, "")
	if err != nil {
		return err
	}
	above, err := ancestors(fd)
	if err != nil {
		return err
	}
	for _, name := range s.kept() {
		keep, err := unix.Open(name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return fmt.Errorf("looking at %s: %w", name, err)
		}
		err = apart(self, above, keep, path.Clean(name))
		unix.Close(keep)
		if err != nil {
			return err
		}
	}
	return nil
}

// apart reports whether the directory self, with above above it, and the kept
// one share anything.
func apart(self place, above []place, keep int, name string) error {
	kept, err := placeOf(keep, "")
	if err != nil {
		return err
	}
	if slices.Contains(above, kept) {
		return fmt.Errorf("it is %s or lies in it, which is not an operator's to lend", name)
	}
	over, err := ancestors(keep)
	if err != nil {
		return err
	}
	if slices.Contains(over, self) {
		return fmt.Errorf("%s lies in it, which is not an operator's to lend", name)
	}
	return nil
}

// maxDepth bounds the climb to the root directory.
const maxDepth = 256

// ancestors lists the directory itself and every one above it.
func ancestors(fd int) ([]place, error) {
	at, err := unix.Openat(fd, ".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("open", err)
	}
	defer func() { unix.Close(at) }()
	var list []place
	for range maxDepth {
		p, err := placeOf(at, "")
		if err != nil {
			return nil, err
		}
		if len(list) > 0 && list[len(list)-1] == p {
			return list, nil // the root is its own parent
		}
		list = append(list, p)
		up, err := unix.Openat(at, "..", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, os.NewSyscallError("open", err)
		}
		unix.Close(at)
		at = up
	}
	return nil, fmt.Errorf("it lies deeper than %d directories", maxDepth)
}
