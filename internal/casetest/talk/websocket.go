// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package talk

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"bawn/internal/httpwire"
	"bawn/internal/wswire"
)

// A Frame is what a client of a WebSocket sends next: a text message, or exact
// bytes.
type Frame struct {
	Message string
	Raw     []byte // instead of the message
}

// A Message is what a server of a WebSocket got.
type Message struct {
	Binary bool
	Data   []byte
}

// Notation gives a message as a line of a case file: a text as it is, what does
// not show on a line as a Go string behind the word text or binary.
func (m Message) Notation() string {
	text := string(m.Data)
	switch {
	case m.Binary:
		return "binary " + strconv.Quote(text)
	case strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "text " + strconv.Quote(text)
	}
	return text
}

// A Farewell is how a WebSocket ended, as its client heard it.
type Farewell struct {
	Status int    // of the close frame; 0 for none
	Reason string // of the close frame
	Fault  string // what a client would not take; "" for none
}

// Upgraded checks the answer to an opening handshake whose key was given, and
// returns what was agreed on about compression.
func Upgraded(p *httpwire.Response, key string) (wswire.Params, error) {
	accept, _ := p.Fields.Get("sec-websocket-accept")
	if accept != wswire.Accept(key) {
		return wswire.Params{}, fmt.Errorf("the agent's 101 has the accept value %q", accept)
	}
	extensions, ok := wswire.ParseExtensions(p.Fields.Values("sec-websocket-extensions"))
	if !ok || len(extensions) > 1 {
		return wswire.Params{}, errors.New("the agent's 101 has a list of extensions that is malformed")
	}
	return wswire.Params{Deflate: len(extensions) == 1}, nil
}

// WebSocket sends frames and reads what comes back until the other end closes. A
// client that ends with a message says goodbye; one that ends with exact bytes
// says nothing more.
func WebSocket(c Conn, r *bufio.Reader, agreed wswire.Params, frames []Frame) Farewell {
	w := bufio.NewWriter(c)
	var out wswire.Writer
	out.Reset(w, wswire.Client, agreed)
	bye := true
	for _, f := range frames {
		if f.Raw != nil {
			w.Write(f.Raw) //nolint:errcheck // reading sees the end
			bye = false
			continue
		}
		out.Begin(wswire.Text, true)
		out.Write([]byte(f.Message), true) //nolint:errcheck // the same
		bye = true
	}
	if bye {
		out.Close(wswire.StatusNormal, "") //nolint:errcheck // the same
	}
	w.Flush()      //nolint:errcheck // the same
	c.CloseWrite() //nolint:errcheck // the same
	return farewell(r, agreed)
}

// farewell reads to the end.
func farewell(r *bufio.Reader, agreed wswire.Params) (f Farewell) {
	defer io.Copy(io.Discard, r) //nolint:errcheck // until the other end is done
	err := messages(r, wswire.Server, agreed.Deflate, nil, func(Message) {})
	if closed, ok := errors.AsType[*wswire.Closed](err); ok {
		f.Status, f.Reason = int(closed.Status), closed.Reason
	}
	if bad, ok := errors.AsType[*wswire.Error](err); ok {
		f.Fault = "frames that are malformed: " + bad.Error()
	}
	return f
}

// messages reads messages to the end of a stream.
func messages(r *bufio.Reader, from wswire.Role, deflate bool, control func(wswire.Opcode, []byte) error, keep func(Message)) error {
	in := wswire.Reader{Control: control}
	in.Reset(r, from, deflate, wswire.Limits{})
	for {
		op, _, err := in.Next()
		if err != nil {
			return err
		}
		data, err := in.Whole(nil)
		if err != nil {
			return err
		}
		keep(Message{Binary: op == wswire.Binary, Data: data})
	}
}

// A WebSocketServer is what ServeWebSocket tells of.
type WebSocketServer struct {
	Keep  func(Message)
	Fault func(fault string) // what a strict server would not take
}

// ServeWebSocket reads the frames of a client until it ends, and says goodbye
// when the client does. Given the bytes that a server got and a w that nobody
// reads, it tells what the server was sent.
func ServeWebSocket(r *bufio.Reader, w io.Writer, deflate bool, s WebSocketServer) {
	buf := bufio.NewWriter(w)
	var out wswire.Writer
	out.Reset(buf, wswire.Server, wswire.Params{})
	err := messages(r, wswire.Client, deflate, func(op wswire.Opcode, payload []byte) error {
		if op == wswire.Ping {
			out.Control(wswire.Pong, payload) //nolint:errcheck // reading sees the end
			return buf.Flush()
		}
		return nil
	}, s.Keep)
	closed, bye := errors.AsType[*wswire.Closed](err)
	bad, broken := errors.AsType[*wswire.Error](err)
	switch {
	case broken:
		s.Fault("what was forwarded is no clear WebSocket: " + bad.Error())
	case bye && closed.Status.Sendable():
		out.Close(closed.Status, "") //nolint:errcheck // who is gone needs no goodbye
	case bye:
		out.Control(wswire.Close, nil) //nolint:errcheck // the same
	}
	buf.Flush() //nolint:errcheck // the same
}

// IsUpgrade reports whether a head asks for a WebSocket, as far as it can be
// read.
func IsUpgrade(head []byte) (key string, ok bool) {
	q, err := httpwire.ReadRequest(bufio.NewReader(bytes.NewReader(head)), httpwire.Limits{})
	if err != nil || !strings.Contains(strings.ToLower(q.Upgrade), "websocket") {
		return "", false
	}
	key, _ = q.Fields.Get("sec-websocket-key")
	return key, true
}

// Switch makes a server's answer to an opening handshake with that key: the
// accept value is right for it, whatever the answer has or has not, but for the
// word "wrong". deflate says whether the answer accepts compression.
func Switch(answer []byte, key string) (head []byte, deflate bool) {
	lines := strings.Split(strings.TrimRight(string(answer), "\r\n"), "\r\n")
	kept, accept := lines[:1:1], "Sec-WebSocket-Accept: "+wswire.Accept(key)
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ":")
		switch {
		case !strings.EqualFold(name, "Sec-WebSocket-Accept"):
			kept = append(kept, line)
			deflate = deflate || strings.EqualFold(name, "Sec-WebSocket-Extensions") && strings.Contains(strings.ToLower(value), "permessage-deflate")
		case strings.TrimSpace(value) == "wrong":
			accept = "Sec-WebSocket-Accept: " + wswire.Accept("another key")
		}
	}
	return []byte(strings.Join(append(kept, accept), "\r\n") + "\r\n\r\n"), deflate
}
