// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Descriptors that process 1 inherits. Above them come the detached mounts.
const (
	controlFD = 3 // socket to the process that started the session
	specFD    = 4 // the Spec, in memory
	mountsFD  = 5
)

// A note is one message on the control socket. Down go Go and Signal; up come
// Ready, with the terminal's descriptor, and then one of Fault and Exit. The
// end of the socket is the end of the session, from either side.
type note struct {
	Go     bool   `json:"go,omitempty"`     // the cgroups are joined
	Signal int    `json:"signal,omitempty"` // for the command
	Ready  bool   `json:"ready,omitempty"`  // the view stands, the account is the agent's
	Fault  string `json:"fault,omitempty"`  // the command will not run
	Exit   bool   `json:"exit,omitempty"`   // the command has ended
	Status int    `json:"status,omitempty"` // of Fault and Exit
}

// maxNote bounds a note, in bytes.
const maxNote = 16 << 10

// send writes one note to the socket fd, which keeps message boundaries.
func send(fd int, n note, files ...int) error {
	if len(n.Fault) > maxNote/8 {
		n.Fault = n.Fault[:maxNote/8]
	}
	body, err := json.Marshal(n)
	if err != nil {
		return err
	}
	var rights []byte
	if len(files) > 0 {
		rights = unix.UnixRights(files...)
	}
	for {
		err := unix.Sendmsg(fd, body, rights, nil, unix.MSG_NOSIGNAL)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// receive reads one note and the descriptor that came with it, -1 if none.
// errEnded is the end of the socket.
func receive(fd int) (n note, file int, err error) {
	body, rights := make([]byte, maxNote), make([]byte, unix.CmsgSpace(4))
	var size, rightsSize, flags int
	for {
		size, rightsSize, flags, _, err = unix.Recvmsg(fd, body, rights, unix.MSG_CMSG_CLOEXEC)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return note{}, -1, os.NewSyscallError("recvmsg", err)
	}
	file = descriptor(rights[:rightsSize])
	if size == 0 && file < 0 {
		return note{}, -1, errEnded
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		err = errors.New("message too long")
	} else {
		err = json.Unmarshal(body[:size], &n)
	}
	if err != nil && file >= 0 {
		unix.Close(file)
		file = -1
	}
	return n, file, err
}

// errEnded says that the other side of the control socket is gone.
var errEnded = errors.New("the other side has ended")

func descriptor(rights []byte) int {
	if len(rights) == 0 {
		return -1
	}
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil || len(messages) != 1 {
		return -1
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return -1
	}
	return fds[0]
}

// sealedSpec puts s into memory that nobody can change any more.
func sealedSpec(s *Spec) (*os.File, error) {
	fd, err := unix.MemfdCreate("spec", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "spec")
	if err := json.NewEncoder(f).Encode(s); err != nil {
		f.Close()
		return nil, fmt.Errorf("writing spec: %w", err)
	}
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		f.Close()
		return nil, fmt.Errorf("sealing spec: %w", err)
	}
	return f, nil
}

// readSpec reads what sealedSpec wrote.
func readSpec(fd int) (*Spec, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("reading spec: %w", err)
	}
	body := make([]byte, st.Size)
	if _, err := unix.Pread(fd, body, 0); err != nil {
		return nil, fmt.Errorf("reading spec: %w", err)
	}
	var s Spec
	if err := json.Unmarshal(body, &s); err != nil {
		return nil, fmt.Errorf("reading spec: %w", err)
	}
	return &s, nil
}
