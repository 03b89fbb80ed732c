// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netdapi

import (
	"bytes"
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
)

// The bounds of one packet. Larger ones are refused by both ends.
const (
	MaxPacket = 272 << 10 // bytes of JSON
	MaxFiles  = 32        // descriptors
	maxDepth  = 8         // nesting of JSON values
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
	var oob []byte
	if len(files) > 0 {
		fds, err := descriptors(files)
		if err != nil {
			return fmt.Errorf("sending packet: %w", err)
		}
		oob = syscall.UnixRights(fds...)
		defer runtime.KeepAlive(files)
	}
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

// descriptors gives the numbers of open files without changing their mode.
func descriptors(files []*os.File) ([]int, error) {
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
	return fds, nil
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
	files, ferr := rights(oob[:oobn])
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

// rights takes the descriptors out of control messages. They are closed on
// exec already: the net package asks for MSG_CMSG_CLOEXEC.
func rights(oob []byte) ([]*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	messages, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("reading control message: %w", err)
	}
	var files []*os.File
	for i := range messages {
		fds, err := syscall.ParseUnixRights(&messages[i])
		if err != nil {
			continue // credentials, not descriptors: nothing to close
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "passed"))
		}
	}
	return files, nil
}

// Decode reads exactly one JSON object into v. It refuses what encoding/json
// would let pass: keys that v does not have or that differ in case, doubled
// keys, trailing data and deep nesting.
func Decode(data []byte, v any) error {
	if err := checkKeys(data); err != nil {
		return fmt.Errorf("reading packet: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return fmt.Errorf("reading packet: %w", err)
	}
	return nil
}

// checkKeys walks over one JSON object and refuses what Decode promises to
// refuse and a struct decoder does not see.
func checkKeys(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	first, err := dec.Token()
	if err != nil {
		return err
	}
	if first != json.Delim('{') {
		return errors.New("not a JSON object")
	}
	if err := walkObject(dec, 1); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value")
	}
	return nil
}

func walkObject(dec *json.Decoder, depth int) error {
	seen := map[string]bool{}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return err
		}
		key, _ := token.(string)
		if !plainKey(key) {
			return fmt.Errorf("key %q: not of a-z, 0-9 and '_'", key)
		}
		if seen[key] {
			return fmt.Errorf("key %q: twice", key)
		}
		seen[key] = true
		if err := walkValue(dec, depth); err != nil {
			return err
		}
	}
	_, err := dec.Token() // the closing brace
	return err
}

func walkValue(dec *json.Decoder, depth int) error {
	token, err := dec.Token()
	if err != nil {
		return err
	}
	delim, nested := token.(json.Delim)
	if !nested {
		return nil
	}
	if depth >= maxDepth {
		return fmt.Errorf("nested deeper than %d", maxDepth)
	}
	if delim == '{' {
		return walkObject(dec, depth+1)
	}
	for dec.More() {
		if err := walkValue(dec, depth+1); err != nil {
			return err
		}
	}
	_, err = dec.Token() // the closing bracket
	return err
}

// plainKey reports whether every key of this API could be spelled like s. It
// closes the gap that encoding/json matches keys without regard to case.
func plainKey(s string) bool {
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_' {
			return false
		}
	}
	return s != ""
}

// CloseAll closes files; nil entries are skipped.
func CloseAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}
