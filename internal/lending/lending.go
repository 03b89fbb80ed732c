// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lending lets an operator say which directories an agent may have, in
// a way that nobody between the operator and netd can change.
//
// The note is one packet in a socket pair, of which the writing end is closed:
// whoever holds the other end can hand it on and read it, and can add nothing.
// The kernel says which account made the pair (see package peercred). So admin,
// through which it goes, can lend again what an operator lent once, and cannot
// make another directory of it, nor a workspace of what was lent to be read.
package lending

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Loan is one directory, as the kernel knows it.
type Loan struct {
	Dev   uint64 `json:"dev"`
	Ino   uint64 `json:"ino"`
	Write bool   `json:"write"` // as a workspace
}

// Of is the loan of an open directory.
func Of(dir *os.File, write bool) (Loan, error) {
	var st unix.Stat_t
	raw, err := dir.SyscallConn()
	if err == nil {
		inner := raw.Control(func(fd uintptr) { err = unix.Fstat(int(fd), &st) })
		err = errors.Join(err, inner)
	}
	if err != nil {
		return Loan{}, fmt.Errorf("looking at a directory to lend: %w", err)
	}
	return Loan{Dev: uint64(st.Dev), Ino: st.Ino, Write: write}, nil
}

// Covers reports whether one of the loans is of the same directory, for the
// same use or more.
func Covers(loans []Loan, want Loan) bool {
	return slices.ContainsFunc(loans, func(l Loan) bool {
		return l.Dev == want.Dev && l.Ino == want.Ino && (l.Write || !want.Write)
	})
}

// maxNote bounds a note, in bytes.
const maxNote = 16 << 10

// note is the packet.
type note struct {
	Lend []Loan `json:"lend"`
}

// Sign writes the loans into a socket pair of the calling account and returns
// the end to hand on.
func Sign(loans []Loan) (*os.File, error) {
	packet, err := json.Marshal(note{loans})
	if err != nil || len(packet) > maxNote {
		return nil, fmt.Errorf("signing %d loans: %d bytes: %w", len(loans), len(packet), err)
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("signing loans: %w", os.NewSyscallError("socketpair", err))
	}
	err = unix.Send(fds[1], packet, unix.MSG_NOSIGNAL)
	unix.Close(fds[1])
	if err != nil {
		unix.Close(fds[0])
		return nil, fmt.Errorf("signing loans: %w", os.NewSyscallError("send", err))
	}
	return os.NewFile(uintptr(fds[0]), "loans"), nil
}

// Read gives the loans that were signed. It leaves them in the socket.
func Read(f *os.File) (loans []Loan, err error) {
	raw, err := f.SyscallConn()
	if err == nil {
		inner := raw.Control(func(fd uintptr) { loans, err = read(int(fd)) })
		err = errors.Join(err, inner)
	}
	if err != nil {
		return nil, fmt.Errorf("reading loans: %w", err)
	}
	return loans, nil
}

var (
	errNoPair = errors.New("not an end of a socket pair that keeps packets apart")
	errOpen   = errors.New("the other end is open")
)

func read(fd int) ([]Loan, error) {
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || kind != unix.SOCK_SEQPACKET || !unnamed(fd, unix.SYS_GETSOCKNAME) || !unnamed(fd, unix.SYS_GETPEERNAME) {
		return nil, errors.Join(errNoPair, err)
	}
	ends := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if _, err := unix.Poll(ends, 0); err != nil || ends[0].Revents&unix.POLLHUP == 0 {
		return nil, errors.Join(errOpen, err)
	}
	packet := make([]byte, maxNote+1)
	n, _, err := unix.Recvfrom(fd, packet, unix.MSG_PEEK|unix.MSG_DONTWAIT)
	if err != nil {
		return nil, os.NewSyscallError("recv", err)
	}
	if n > maxNote {
		return nil, fmt.Errorf("more than %d bytes", maxNote)
	}
	dec := json.NewDecoder(bytes.NewReader(packet[:n]))
	dec.DisallowUnknownFields()
	var said note
	if err := dec.Decode(&said); err != nil {
		return nil, err
	}
	if dec.More() {
		return nil, errors.New("more than one value")
	}
	return said.Lend, nil
}

// unnamed reports whether what the call says of a socket is an address without
// a name, as both ends of a pair have: whoever connected, or was connected to,
// has one on one side.
func unnamed(fd int, call uintptr) bool {
	var sa unix.RawSockaddrUnix
	size := uint32(unsafe.Sizeof(sa))
	_, _, errno := unix.Syscall(call, uintptr(fd), uintptr(unsafe.Pointer(&sa)), uintptr(unsafe.Pointer(&size)))
	return errno == 0 && sa.Family == unix.AF_UNIX && size == uint32(unsafe.Sizeof(sa.Family))
}
