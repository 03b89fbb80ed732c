// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package h2conn

import (
	"errors"
	"net"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"bawn/internal/codes"
	"bawn/internal/h2head"
	"bawn/internal/httpwire"
)

// A Server serves the requests of one connection.
type Server struct {
	c       *conn
	handle  func(*ServerStream)
	running int // handlers; conn.mu guards it
	done    sync.WaitGroup
}

// NewServer returns a server for a connection that has agreed on HTTP/2, of
// which nothing has been read. handle is called in a goroutine of its own for
// each request. The connection is the server's to close.
func NewServer(nc net.Conn, lim Limits, handle func(*ServerStream)) *Server {
	v := &Server{handle: handle}
	v.c = newConn(nc, lim, v)
	return v
}

// Serve reads until the connection ends, closes it, and returns when the last
// handler has. The error is nil after an orderly end, a [*ConnError] where the
// client was at fault, and otherwise that of the connection.
func (v *Server) Serve() error {
	v.c.mu.Lock()
	v.c.begin()
	v.c.kick()
	v.c.mu.Unlock()
	err := v.c.run()
	v.done.Wait()
	return err
}

// Shutdown lets the requests that are there come to their end, takes no more,
// and ends the connection after the last. It does not wait.
func (v *Server) Shutdown() {
	v.c.mu.Lock()
	defer v.c.mu.Unlock()
	v.c.drain()
}

// Close ends the connection and everything on it. It does not wait.
func (v *Server) Close() { v.c.close() }

// Streams returns how many requests are under way.
func (v *Server) Streams() int {
	v.c.mu.Lock()
	defer v.c.mu.Unlock()
	return v.running
}

// A ServerStream is one request and its response.
type ServerStream struct {
	stream
	head    httpwire.Request
	headErr *httpwire.Error
}

// Head returns the head of the request. The error is an [*httpwire.Error] that
// says why it is refused; the handler answers it all the same, and the stream
// ends with a protocol error after the answer.
func (s *ServerStream) Head() (*httpwire.Request, error) {
	if s.headErr != nil {
		return &s.head, s.headErr
	}
	return &s.head, nil
}

// OnAbort has f called, in a goroutine of its own, when the client gives up
// before the response has been written to its end: by a reset, or since its
// connection ends. Only the handler may call it, once.
func (s *ServerStream) OnAbort(f func()) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.onAbort = f
	if s.aborted {
		go f()
	}
}

// running twice as many handlers as streams may be open leaves those which have
// answered, or whose client is gone, time to notice.
func (v *Server) crowded() bool { return v.running >= 2*v.c.lim.Streams }

// open begins a request with a header list that the reader has read.
func (v *Server) open(list []hpack.HeaderField) error {
	c := v.c
	s := &ServerStream{}
	err := tooLarge(c.block.tooLarge)
	if err == nil {
		s.head, err = h2head.Request(list, c.block.end, c.lim.Wire)
	}
	s.headErr = wireError(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	if opens, err := v.admit(); !opens {
		return err
	}
	if s.headErr != nil && !c.churn.take(1) {
		return flood("malformed requests")
	}
	s.init(c, c.block.id)
	c.streams = append(c.streams, &s.stream)
	s.body.declare(s.head.Framing)
	s.body.ended = c.block.end
	if s.headErr != nil {
		s.body.refuse(s.headErr)
	}
	v.running++
	v.done.Add(1)
	go s.run()
	return nil
}

// admit decides whether the header block at hand opens a stream.
func (v *Server) admit() (opens bool, err error) {
	c, id := v.c, v.c.block.id
	switch {
	case id%2 == 0:
		return false, violation(http2.ErrCodeProtocol, "a stream with a number that is not a client's")
	case id <= c.lastID && c.excused(id):
		return false, c.idleFrame("header lists for streams that have ended")
	case id <= c.lastID:
		return false, violation(http2.ErrCodeStreamClosed, "a header list for a stream that has ended")
	}
	c.lastID = id
	switch {
	case c.err != nil || c.draining:
		return false, c.idleFrame("streams after the farewell")
	case c.block.selfish:
		return false, v.refuse(http2.ErrCodeProtocol)
	case len(c.streams) >= c.lim.Streams || v.crowded():
		return false, v.refuse(http2.ErrCodeRefusedStream)
	}
	c.useful()
	return true, nil
}

// refuse resets the stream that the header block at hand would open.
func (v *Server) refuse(code http2.ErrCode) error {
	c := v.c
	if !c.churn.take(1) {
		return flood("streams that had to be refused")
	}
	c.rst(c.block.id, code)
	if !c.block.end {
		c.remember(c.block.id)
	}
	return c.polite()
}

func wireError(err error) *httpwire.Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*httpwire.Error](err); ok {
		return e
	}
	return httpwire.Refuse(codes.ProtocolError, err.Error())
}

func (s *ServerStream) run() {
	defer s.finish()
	s.c.server.handle(s)
}

// WriteHead sends the head of a response: any number of interim ones, then the
// final one. Interim ones go at once, and so does one that ends the stream.
func (s *ServerStream) WriteHead(p *httpwire.Response, end bool) error {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := s.makeRoom(); err != nil {
		return err
	}
	withList(func(list []hpack.HeaderField) []hpack.HeaderField {
		list = h2head.AppendResponse(list, p)
		c.headers(&s.stream, list, end)
		return list
	})
	interim := p.Status < 200
	s.body.answered = s.body.answered || !interim
	switch {
	case end:
		s.end()
	case interim:
		c.kick()
	}
	return nil
}

// finish ends what the handler has not ended.
func (s *ServerStream) finish() {
	v, c := s.c.server, s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	defer v.done.Done()
	v.running--
	switch {
	case s.aborted || c.err != nil:
	case !s.ended:
		s.reset(http2.ErrCodeInternal, ErrReset)
	case s.body.refused:
		s.condemn()
	case !s.body.ended:
		s.reset(http2.ErrCodeNo, ErrReset) // RFC 9113 section 8.1
	}
	s.body.discard(errFinished)
	c.maybeOver()
}

var errFinished = truncated(errors.New("the handler has returned"))

// condemn ends a stream whose request was malformed and has been answered.
func (s *ServerStream) condemn() {
	switch {
	case !s.body.ended:
		s.reset(s.body.sentence, ErrReset)
	case s.body.sentence != http2.ErrCodeNo:
		s.c.rst(s.id, s.body.sentence)
		s.c.kick()
	}
}
