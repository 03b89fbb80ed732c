// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netdapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"bawn/internal/fdpass"
	"bawn/internal/wirejson"
)

// The bounds of one packet. Larger ones are refused by both ends.
const (
	MaxPacket = 272 << 10 // bytes of JSON
	MaxFiles  = 32        // descriptors
)

// A Request is what a client sends. Args is the verb's argument type.
type Request struct {
	ID   uint64          `json:"id"`
	Verb Verb            `json:"verb"`
	Args json.RawMessage `json:"args,omitempty"`
}

// A Message is what netd sends: the reply to the request with the same ID, or
// an event, which has no ID.
type Message struct {
	ID     uint64          `json:"id,omitempty"`
	Error  *Error          `json:"error,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Event  string          `json:"event,omitempty"`
	Body   json.RawMessage `json:"body,omitempty"`
}

// A Conn is one end of netd.sock. One goroutine may receive while any number
// send.
type Conn struct {
	c  *net.UnixConn
	mu sync.Mutex // one sender at a time
}

// NewConn takes over c, which must be a SOCK_SEQPACKET socket.
func NewConn(c *net.UnixConn) *Conn {
	c.SetWriteBuffer(MaxPacket) // the kernel doubles it; too small a limit shows as EMSGSIZE on Send
	return &Conn{c: c}
}

// Close ends the connection; a blocked Receive returns.
func (c *Conn) Close() error { return c.c.Close() }

// Unwrap gives the socket, for deadlines and peer credentials.
func (c *Conn) Unwrap() *net.UnixConn { return c.c }

// sendPatience is how long a peer may leave its packets unread before it counts
// as gone.
const sendPatience = 5 * time.Second

// Send writes one packet. The files stay open here.
func (c *Conn) Send(v any, files ...*os.File) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding packet: %w", err)
	}
	if len(data) > MaxPacket || len(files) > MaxFiles {
		return fmt.Errorf("sending packet: %d bytes and %d descriptors are more than %d and %d",
			len(data), len(files), MaxPacket, MaxFiles)
	}
	oob, err := fdpass.Rights(files)
	if err != nil {
		return fmt.Errorf("sending packet: %w", err)
	}
	defer runtime.KeepAlive(files)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.c.SetWriteDeadline(time.Now().Add(sendPatience)); err != nil {
		return fmt.Errorf("sending packet: %w", err)
	}
	if _, _, err := c.c.WriteMsgUnix(data, oob, nil); err != nil {
		return fmt.Errorf("sending packet: %w", err)
	}
	return nil
}

// Receive reads one packet into v. The descriptors that came with it are the
// caller's to close; on an error they are closed already. It returns io.EOF
// when the peer has closed.
func (c *Conn) Receive(v any) ([]*os.File, error) {
	buf := make([]byte, MaxPacket+1)
	oob := make([]byte, syscall.CmsgSpace(4*MaxFiles))
	n, oobn, flags, _, err := c.c.ReadMsgUnix(buf, oob)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("receiving packet: %w", err)
	}
	files, ferr := fdpass.Parse(oob[:oobn])
	switch {
	case err != nil || n == 0:
		CloseAll(files)
		return nil, io.EOF
	case ferr != nil:
		err = ferr
	case flags&syscall.MSG_TRUNC != 0 || n > MaxPacket:
		err = fmt.Errorf("receiving packet: more than %d bytes", MaxPacket)
	case flags&syscall.MSG_CTRUNC != 0:
		err = fmt.Errorf("receiving packet: more than %d descriptors", MaxFiles)
	default:
		err = Decode(buf[:n], v)
	}
	if err != nil {
		CloseAll(files)
		return nil, err
	}
	return files, nil
}

// Decode reads one message strictly; see [wirejson.Decode].
func Decode(data []byte, v any) error { return wirejson.Decode(data, v) }

// CloseAll closes files; nil entries are skipped.
func CloseAll(files []*os.File) { fdpass.CloseAll(files) }
