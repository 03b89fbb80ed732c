// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fdpass sends framed messages with open descriptors over a Unix
// stream socket.
//
// A descriptor is a proof as well as a handle: who can pass a directory's
// descriptor could open the directory. Each message is a length of 4 bytes,
// big-endian, and that many bytes of JSON; descriptors ride with the length. A
// [Conn] may be used by one reader and any number of writers at once.
package fdpass

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"bawn/internal/wirejson"
)

// The bounds of one message. A peer that sends more is cut off.
const (
	MaxMessage = 256 << 10 // bytes of JSON
	MaxFiles   = 32        // descriptors
)

// A Conn is a stream socket with message framing on top.
type Conn struct {
	c  *net.UnixConn
	mu sync.Mutex // one writer at a time
}

// New takes over c. Nothing may have been read ahead from c, since descriptors
// that came with the bytes read would be lost.
func New(c *net.UnixConn) *Conn { return &Conn{c: c} }

// Close ends the connection.
func (c *Conn) Close() error { return c.c.Close() }

// Send writes one message and the descriptors of files, which stay open here.
func (c *Conn) Send(message any, files ...*os.File) error {
	body, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("encoding message: %w", err)
	}
	if len(body) > MaxMessage || len(files) > MaxFiles {
		return fmt.Errorf("sending message: %d bytes and %d descriptors are more than %d and %d", len(body), len(files), MaxMessage, MaxFiles)
	}
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body)))
	frame = append(frame, body...)
	oob, err := Rights(files)
	if err != nil {
		return fmt.Errorf("sending message: %w", err)
	}
	defer runtime.KeepAlive(files)
	return c.write(frame, oob)
}

// Rights is the control message that carries files, or nil for none. Their
// descriptors keep their mode. The caller keeps files alive until it is sent.
func Rights(files []*os.File) ([]byte, error) {
	if len(files) == 0 {
		return nil, nil
	}
	fds := make([]int, len(files))
	for i, f := range files {
		raw, err := f.SyscallConn()
		if err == nil {
			err = raw.Control(func(fd uintptr) { fds[i] = int(fd) })
		}
		if err != nil {
			return nil, fmt.Errorf("descriptor %d: %w", i, err)
		}
	}
	return unix.UnixRights(fds...), nil
}

func (c *Conn) write(frame, oob []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, _, err := c.c.WriteMsgUnix(frame, oob, nil)
	if err != nil {
		return fmt.Errorf("sending message: %w", err)
	}
	for n < len(frame) { // the rights went with the first byte
		m, err := c.c.Write(frame[n:])
		if err != nil {
			return fmt.Errorf("sending message: %w", err)
		}
		n += m
	}
	return nil
}

// Receive reads one message into into and returns the descriptors that came
// with it, which are the caller's to close. It returns io.EOF when the peer
// has closed between messages.
func (c *Conn) Receive(into any) ([]*os.File, error) {
	head, files, err := c.readHead()
	if err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > MaxMessage {
		CloseAll(files)
		return nil, fmt.Errorf("receiving message: %d bytes are more than %d", size, MaxMessage)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(c.c, body); err != nil {
		CloseAll(files)
		return nil, fmt.Errorf("receiving message: %w", err)
	}
	if err := wirejson.Decode(body, into); err != nil {
		CloseAll(files)
		return nil, err
	}
	return files, nil
}

func (c *Conn) readHead() (head [4]byte, files []*os.File, err error) {
	oob := make([]byte, unix.CmsgSpace(4*MaxFiles))
	n, oobn, flags, _, err := c.c.ReadMsgUnix(head[:], oob)
	if n == 0 && (err == nil || errors.Is(err, io.EOF)) {
		return head, nil, io.EOF
	}
	if err != nil {
		return head, nil, fmt.Errorf("receiving message: %w", err)
	}
	files, err = Parse(oob[:oobn])
	if err == nil && flags&unix.MSG_CTRUNC != 0 {
		err = errors.New("receiving message: more descriptors than allowed")
	}
	if err == nil && n < len(head) {
		_, err = io.ReadFull(c.c, head[n:])
	}
	if err != nil {
		CloseAll(files)
		return head, nil, err
	}
	return head, files, nil
}

// Parse takes the descriptors out of control messages; they are the caller's to
// close. They are closed on exec already: the net package asks for that.
func Parse(oob []byte) ([]*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("reading control message: %w", err)
	}
	var files []*os.File
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue // not rights: nothing to close
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "passed"))
		}
	}
	return files, nil
}

// CloseAll closes files; nil entries are skipped.
func CloseAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

// ClearDeadline lifts the deadline of the connection's reads.
func (c *Conn) ClearDeadline() { c.c.SetReadDeadline(time.Time{}) }
