// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package h2conn

import (
	"io"
	"net"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"bawn/internal/h2head"
	"bawn/internal/httpwire"
)

// A Client sends requests on one connection.
type Client struct {
	c    *conn
	done chan struct{}
	err  error // after done
}

// NewClient begins HTTP/2 on a connection that has agreed on it, and of which
// nothing has been read or written. What it says first goes with the first
// request, or when the server has said something. The connection is the
// client's to close.
func NewClient(nc net.Conn, lim Limits) (*Client, error) {
	k := &Client{c: newConn(nc, lim, nil), done: make(chan struct{})}
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	o := k.c.buffer()
	o.b = append(o.b, http2.ClientPreface...)
	k.c.begin()
	go k.run()
	return k, nil
}

func (k *Client) run() {
	defer close(k.done)
	k.err = k.c.run()
}

// Usable reports whether Open would open a stream now.
func (k *Client) Usable() bool {
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	return k.usable() == nil
}

// maxStream is the highest number that a client's stream can have.
const maxStream = 1<<31 - 1

func (k *Client) usable() error {
	c := k.c
	switch {
	case c.err != nil || c.draining || c.lastID >= maxStream:
		return ErrGone
	case len(c.streams) >= c.peerStreams, c.out != nil && len(c.out.b) >= maxHeads:
		return ErrFull
	}
	return nil
}

// Streams returns how many streams are open.
func (k *Client) Streams() int {
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	return len(k.c.streams)
}

// Close ends the connection and everything on it. It does not wait.
func (k *Client) Close() { k.c.close() }

// Done returns a channel that is closed when the connection has ended.
func (k *Client) Done() <-chan struct{} { return k.done }

// Err returns why the connection ended, as [Server.Serve] does. It is for after
// Done.
func (k *Client) Err() error { return k.err }

// A ClientStream is one request and its response.
type ClientStream struct {
	stream
	method string

	// conn.mu guards these.
	heads  []httpwire.Response // that wait to be read
	first  [1]httpwire.Response
	octets int   // of the lists of heads
	headed bool  // the final head has come; the reader's alone
	final  bool  // the final head was read
	err    error // why no more heads come
}

// Open sends the head of a request. Without end it goes with the body, or by a
// Flush. Nothing was sent after an error: [ErrFull], or [ErrGone].
func (k *Client) Open(q *httpwire.Request, scheme, path string, end bool) (*ClientStream, error) {
	c := k.c
	s := &ClientStream{method: q.Method}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := k.usable(); err != nil {
		return nil, err
	}
	id := c.lastID + 2
	if c.lastID == 0 {
		id = 1
	}
	c.lastID = id
	s.init(c, id)
	s.ofUs, s.heads = s, s.first[:0]
	c.streams = append(c.streams, &s.stream)
	withList(func(list []hpack.HeaderField) []hpack.HeaderField {
		list = h2head.AppendRequest(list, q, scheme, path)
		c.headers(&s.stream, list, end)
		return list
	})
	if end {
		s.stream.end()
	}
	return s, nil
}

// ReadHead waits for the next head of the response, an interim or the final
// one. Errors are an [*httpwire.Error] for a head that is refused, a
// [*ResetError], [ErrGone] if the server did not look at the request, or why the
// connection ended.
func (s *ClientStream) ReadHead(p *httpwire.Response) error {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(s.heads) == 0 {
		switch {
		case s.final:
			return io.EOF
		case s.err != nil:
			return s.err
		}
		s.body.reads.Wait()
	}
	*p = s.heads[0]
	s.heads = s.heads[1:]
	if len(s.heads) == 0 {
		s.first[0] = httpwire.Response{}
		s.heads, s.octets = s.first[:0], 0
	}
	s.final = p.Status >= 200
	return nil
}

// Answered reports whether a head has come, read or not. A server that has
// answered may end the stream while the request is still under way.
func (s *ClientStream) Answered() bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.final || len(s.heads) > 0
}

// fail ends the waiting for heads.
func (s *ClientStream) fail(why error) {
	if s.err == nil {
		s.err = why
	}
}

// headIn takes the head of a response that the reader has read.
func (s *ClientStream) headIn(list []hpack.HeaderField) error {
	c := s.c
	var p httpwire.Response
	err := tooLarge(c.block.tooLarge)
	if err == nil {
		p, err = h2head.Response(list, c.block.end, s.method, c.lim.Wire)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case s.aborted:
		return nil
	case c.block.selfish:
		return c.blame(s.id, http2.ErrCodeProtocol, "a stream that depends on itself")
	case err != nil:
		return s.malformed(wireError(err), c.block.end)
	case p.Status < 200:
		if err := c.idleFrame("interim responses"); err != nil {
			return err
		}
	default:
		c.useful()
		s.headed = true
		s.body.declare(p.Framing)
	}
	if s.octets += c.block.size; len(s.heads) > 0 && s.octets > c.lim.Wire.Head {
		return c.blame(s.id, http2.ErrCodeEnhanceYourCalm, "interim responses that nobody reads")
	}
	s.heads = append(s.heads, p)
	s.body.reads.Broadcast()
	if c.block.end {
		return s.body.end(nil)
	}
	return nil
}
