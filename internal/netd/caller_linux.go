// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"syscall"

	"bawn/internal/netd/netdapi"
	"bawn/internal/peercred"
)

// A caller is one connection, whose account the kernel has named.
type caller struct {
	s     *Server
	conn  *netdapi.Conn
	peer  peercred.Peer
	admin bool
	proxy bool
}

// A reply is what a verb answers.
type reply struct {
	result any
	files  []*os.File       // sent along, then closed
	after  func(sent error) // called once the reply is sent, or cannot be
}

// maxPending bounds the requests of one connection that are being worked on;
// further ones wait in the socket.
const maxPending = 64

// serve answers one connection until it ends. ctx ends its work.
func (s *Server) serve(ctx context.Context, c *net.UnixConn) {
	conn := netdapi.NewConn(c)
	defer conn.Close()
	peer, err := peercred.Of(c)
	if err != nil {
		s.o.Log.Error("a caller was turned away", "error", err)
		return
	}
	who := &caller{s: s, conn: conn, peer: peer,
		admin: peer.UID == 0 || peer.UID == s.o.AdminUID,
		proxy: peer.UID == 0 || peer.UID == s.o.ProxyUID}
	if !who.admin && !who.proxy {
		s.o.Log.Warn("a caller was turned away: not an account of Bawn's", "uid", peer.UID, "pid", peer.PID)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	defer s.forget(who)
	var working sync.WaitGroup
	defer working.Wait()
	defer cancel() // what is under way for this caller is called off
	if err := who.read(ctx, &working); err != nil && ctx.Err() == nil && !errors.Is(err, io.EOF) {
		s.o.Log.Warn("a caller was cut off", "uid", peer.UID, "pid", peer.PID, "error", err)
	}
}

// read takes requests until the connection ends or one cannot be understood.
func (c *caller) read(ctx context.Context, working *sync.WaitGroup) error {
	room := make(chan struct{}, maxPending)
	for {
		var r netdapi.Request
		files, err := c.conn.Receive(&r)
		if err != nil {
			return err
		}
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			netdapi.CloseAll(files)
			return ctx.Err()
		}
		working.Go(func() {
			defer func() { <-room }()
			defer netdapi.CloseAll(files)
			out, err := c.do(ctx, r, files)
			c.answer(r.ID, out, err)
		})
	}
}

// do carries out one request. A panic is a failure of this request alone.
func (c *caller) do(ctx context.Context, r netdapi.Request, files []*os.File) (out reply, err error) {
	defer func() {
		if p := recover(); p != nil {
			c.s.o.Log.Error("a request panicked", "verb", r.Verb, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			out, err = reply{}, netdapi.Errorf(netdapi.CodeFailed, "carrying out %s: internal error", r.Verb)
		}
	}()
	v, ok := verbs[r.Verb]
	if !ok {
		return reply{}, netdapi.Errorf(netdapi.CodeBadRequest, "verb %q: there is no such verb", r.Verb)
	}
	if !(v.admin && c.admin) && !(v.proxy && c.proxy) {
		return reply{}, netdapi.Errorf(netdapi.CodeNotPermitted, "verb %s: not for uid %d", r.Verb, c.peer.UID)
	}
	if len(files) > 0 && !v.files {
		return reply{}, netdapi.Errorf(netdapi.CodeBadRequest, "verb %s: takes no descriptors", r.Verb)
	}
	return v.do(ctx, c, r.Args, files)
}

func (c *caller) answer(id uint64, out reply, err error) {
	m := netdapi.Message{ID: id}
	if err == nil && out.result != nil {
		m.Result, err = json.Marshal(out.result)
	}
	if err != nil {
		m.Error = wireError(err)
	}
	sent := c.conn.Send(m, out.files...)
	netdapi.CloseAll(out.files)
	if out.after != nil {
		out.after(sent)
	}
	if sent != nil {
		c.conn.Close() // a caller that does not read is as good as gone
	}
}

// wireError gives err the form that goes over the socket. Causes go along: the
// other end is Bawn's own, and shows them to an operator.
func wireError(err error) *netdapi.Error {
	if e, ok := errors.AsType[*netdapi.Error](err); ok {
		return &netdapi.Error{Code: e.Code, Message: err.Error()}
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return netdapi.Errorf(netdapi.CodeAddressTaken, "%v", err)
	}
	return netdapi.Errorf(netdapi.CodeFailed, "%v", err)
}

// decode reads a verb's arguments.
func decode[T any](args json.RawMessage) (T, error) {
	var v T
	if err := netdapi.Decode(args, &v); err != nil {
		return v, netdapi.Errorf(netdapi.CodeBadRequest, "arguments: %v", err)
	}
	return v, nil
}

// event sends an event to this caller.
func (c *caller) event(name string, body any, files ...*os.File) error {
	data, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encoding event %s: %w", name, err)
	}
	return c.conn.Send(netdapi.Message{Event: name, Body: data}, files...)
}

// forget drops what the server keeps about a connection that has ended.
func (s *Server) forget(c *caller) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watchers, c)
	if s.feed != nil && s.feed.caller == c {
		s.feed.close()
		s.feed = nil
	}
}
