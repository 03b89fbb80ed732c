// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package casetest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"bawn/internal/casetest/talk"
	"bawn/internal/codes"
	"bawn/internal/httpwire"
)

// A pretendUpstream is every server of the internet: the proxy dials it for
// whatever address it vetted. It speaks TLS when it is greeted in TLS, keeps
// what reaches it, and answers each request with the response of the case.
type pretendUpstream struct {
	answer    []byte   // response to each request
	opens     bool     // a handshake without an answer of the case gets a 101
	opaque    bool     // keep bytes; they are no HTTP
	raw       bool     // not even TLS is ended, and answer is what the server says first
	protocols []string // that it agrees on, in the order of its preference
	mint      func(*tls.ClientHelloInfo) (*tls.Certificate, error)

	mu       sync.Mutex
	open     sync.WaitGroup
	requests [][]byte       // what was forwarded: requests, or for opaque all bytes of a connection
	parts    [][]byte       // requests that broke off
	messages []talk.Message // that came whole on WebSockets
	faults   []string       // what a strict reader would not take
	dialled  []netip.AddrPort
}

// defaultAnswer is what the pretend upstream says without an upstream section.
const defaultAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

// Dial makes a connection to the pretend upstream after check has seen the
// address, as the real dialler does.
func (u *pretendUpstream) Dial(_ context.Context, to netip.AddrPort, check func(netip.AddrPort) error) (net.Conn, error) {
	if check != nil {
		if err := check(to); err != nil {
			return nil, err
		}
	}
	u.mu.Lock()
	u.dialled = append(u.dialled, to)
	u.mu.Unlock()
	near, far := newConns(netip.MustParseAddrPort("192.0.2.1:40000"), to)
	u.open.Go(func() { u.serve(far) })
	return near, nil
}

func (u *pretendUpstream) serve(c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	if u.raw {
		c.Write(u.answer) //nolint:errcheck // reading sees the end
		u.http(r, c)
		return
	}
	first, err := r.Peek(1)
	if err != nil {
		return
	}
	if first[0] != 0x16 { // no TLS handshake record
		u.http(r, c)
		return
	}
	secure := tls.Server(readFrom{r, c}, &tls.Config{GetCertificate: u.mint, NextProtos: u.protocols})
	if err := secure.Handshake(); err != nil {
		u.fault("TLS to the upstream: %v", err)
		return
	}
	if secure.ConnectionState().NegotiatedProtocol == "h2" {
		talk.ServeH2(secure, secure, talk.Server{
			Answer: u.answer, Keep: u.keep, Part: u.keepPart, Fault: func(what string) { u.fault("%s", what) },
		})
		return
	}
	u.http(secure, secure)
}

// UpstreamProtocols says which protocols the pretend upstream speaks over TLS:
// what its section says in the status line, and without one what the client of
// the case speaks.
func (c *Case) UpstreamProtocols() []string {
	switch {
	case bytes.HasPrefix(c.Upstream, []byte("HTTP/2")), c.Upstream == nil && c.speaksH2():
		return []string{"h2", "http/1.1"}
	}
	return []string{"http/1.1"}
}

// readFrom is a connection whose first bytes are in a buffer.
type readFrom struct {
	r *bufio.Reader
	net.Conn
}

func (c readFrom) Read(b []byte) (int, error) { return c.r.Read(b) }

// A tape keeps what is read through it.
type tape struct {
	r    io.Reader
	kept []byte
}

func (t *tape) Read(b []byte) (int, error) {
	n, err := t.r.Read(b)
	t.kept = append(t.kept, b[:n]...)
	return n, err
}

// http keeps and answers requests until the connection ends.
func (u *pretendUpstream) http(c io.Reader, w io.Writer) {
	t := &tape{r: c}
	r := bufio.NewReader(t)
	if u.opaque {
		io.Copy(io.Discard, r) //nolint:errcheck // what came before an error has come
		u.keep(t.kept)
		return
	}
	for {
		before := len(t.kept) - r.Buffered()
		method, err := readMessage(r)
		raw := bytes.Clone(t.kept[before : len(t.kept)-r.Buffered()])
		if err != nil {
			u.keepPart(raw)
			if !ended(err) {
				u.fault("what was forwarded is not clear HTTP: %v", err)
			}
			return
		}
		key, opens := talk.IsUpgrade(raw)
		if opens {
			raw = HideKey(raw)
		}
		u.keep(raw)
		if opens && u.switches() {
			u.webSocket(r, w, key)
			return
		}
		if !u.respond(w, method) {
			return
		}
	}
}

// switches reports whether the answer of the case is a change of protocol.
func (u *pretendUpstream) switches() bool {
	_, final := talk.SplitAnswer(u.answer)
	return u.opens && u.answer == nil || bytes.HasPrefix(final, []byte("HTTP/1.1 101"))
}

// webSocket answers a handshake and keeps the messages that come.
func (u *pretendUpstream) webSocket(r *bufio.Reader, w io.Writer, key string) {
	answer := u.answer
	if answer == nil {
		answer = []byte(talk.DefaultSwitch)
	}
	first, final := talk.SplitAnswer(answer)
	head, deflate := talk.Switch(final, key)
	if _, err := w.Write(append(bytes.Clone(first), head...)); err != nil {
		return
	}
	talk.ServeWebSocket(r, w, deflate, talk.WebSocketServer{
		Keep: func(m talk.Message) {
			u.mu.Lock()
			defer u.mu.Unlock()
			u.messages = append(u.messages, m)
		},
		Fault: func(what string) { u.fault("%s", what) },
	})
}

// HideKey puts a star in the place of the key of a handshake, which the proxy
// makes anew each time.
func HideKey(raw []byte) []byte {
	lines := bytes.Split(raw, []byte("\r\n"))
	for i, line := range lines {
		if name, _, ok := bytes.Cut(line, []byte(":")); ok && bytes.EqualFold(name, []byte("Sec-WebSocket-Key")) {
			lines[i] = append(bytes.Clone(name), ": *"...)
		}
	}
	return bytes.Join(lines, []byte("\r\n"))
}

// respond writes the response of the case, and reports whether the connection
// can carry another.
func (u *pretendUpstream) respond(w io.Writer, method string) bool {
	answer := u.answer
	if answer == nil {
		answer = []byte(defaultAnswer)
	}
	first, final := talk.SplitAnswer(talk.AsHTTP1(answer))
	head, body, _ := bytes.Cut(final, []byte("\r\n\r\n"))
	if method == "HEAD" {
		body = nil
	}
	text := slices.Concat(first, head, []byte("\r\n\r\n"), body)
	if _, err := w.Write(text); err != nil {
		return false
	}
	lower := strings.ToLower(string(head))
	return strings.Contains(lower, "\r\ncontent-length:") || strings.Contains(lower, "\r\ntransfer-encoding:") || strings.Contains(lower, " 204 ")
}

// readMessage reads one request with its body.
func readMessage(r *bufio.Reader) (method string, err error) {
	q, err := httpwire.ReadRequest(r, httpwire.Limits{})
	if err != nil {
		return "", err
	}
	var body httpwire.Body
	body.Reset(r, q.Framing, httpwire.Limits{})
	_, err = io.Copy(io.Discard, &body)
	return q.Method, err
}

// ended reports whether an error is only the end of a connection.
func ended(err error) bool {
	if e, ok := errors.AsType[*httpwire.Error](err); ok && e.Code == codes.BodyTruncated {
		return true
	}
	return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, errReset)
}

func (u *pretendUpstream) keep(raw []byte) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.requests = append(u.requests, raw)
}

func (u *pretendUpstream) keepPart(raw []byte) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(raw) > 0 {
		u.parts = append(u.parts, raw)
	}
}

func (u *pretendUpstream) fault(format string, args ...any) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.faults = append(u.faults, fmt.Sprintf(format, args...))
}

// seen returns what reached the upstream, once all connections have ended.
func (u *pretendUpstream) seen() (requests, parts [][]byte, messages []talk.Message, faults []string, dialled int) {
	u.open.Wait()
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.requests, u.parts, u.messages, u.faults, len(u.dialled)
}
