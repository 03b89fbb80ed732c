// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"bufio"
	"errors"
	"net"
	"net/netip"
	"os"
	"time"

	"bawn/internal/httpwire"
)

// An h1Upstream is one HTTP/1.1 connection to a server. It carries one request
// at a time.
type h1Upstream struct {
	s        *Server
	pool     *pool
	key      poolKey
	conn     net.Conn // the TLS, where there is TLS
	sock     socket   // under it
	r        *bufio.Reader
	addr     netip.Addr
	name     string // address and port, for the record
	local    string // of our end, likewise
	cert     string // SHA-256 of the server's certificate, likewise
	revision uint64 // by which the address was vetted last
	since    time.Duration

	// Of the request at hand.
	in  httpwire.Body
	out httpwire.BodyWriter
	w   *bufio.Writer
}

var _ upstreamLeg = (*h1Upstream)(nil)

func (up *h1Upstream) address() netip.Addr { return up.addr }

func (up *h1Upstream) head(q *httpwire.Request, pathQuery string) (int, error) {
	up.w = up.s.writers.Get().(*bufio.Writer)
	up.w.Reset(up.conn)
	if q.Framing.Kind == httpwire.Chunked {
		q.SetFraming(q.Framing) // the agent's version of HTTP may frame without a field
	}
	up.out.Reset(up.w, q.Framing)
	return up.w.Write(httpwire.AppendRequest(up.w.AvailableBuffer(), q, pathQuery))
}

func (up *h1Upstream) write(p []byte) (int, error) { return up.out.Write(p) }

func (up *h1Upstream) flush() error { return up.w.Flush() }

func (up *h1Upstream) end(trailers httpwire.Fields) error { return up.out.Close(trailers) }

// answered is false: nothing is read of a connection that cannot be written to.
func (up *h1Upstream) answered() bool { return false }

func (up *h1Upstream) readHead(p *httpwire.Response, method string) error {
	return p.Read(up.r, method, up.s.lim.Wire)
}

func (up *h1Upstream) body(f httpwire.Framing) bodyReader {
	up.in.Reset(up.r, f, up.s.lim.Wire)
	return &up.in
}

// settle gives the connection back to the pool, unless the server has said more
// than it was asked for.
func (up *h1Upstream) settle(reuse bool) {
	up.release()
	if reuse && up.r.Buffered() == 0 {
		up.pool.put(up)
		return
	}
	up.close()
}

func (up *h1Upstream) drop() {
	up.release()
	up.close()
}

func (up *h1Upstream) release() {
	if up.w != nil {
		up.w.Reset(nil)
		up.s.writers.Put(up.w)
		up.w = nil
	}
}

// close closes the connection without a farewell, which could block.
func (up *h1Upstream) close() { up.sock.conn.Close() }

func (up *h1Upstream) abort() { reset(up.sock.conn) }

// quiet reports whether the connection is open and the server has said nothing
// since its last response. What came in one segment with that response is in
// neither the buffer nor the kernel: TLS has it, and would give it out as the
// answer to the next request.
func (up *h1Upstream) quiet() bool {
	if up.r.Buffered() > 0 || !up.sock.usable() {
		return false
	}
	if up.conn == up.sock.conn {
		return true
	}
	up.conn.SetReadDeadline(time.Unix(1, 0))   //nolint:errcheck // shows in the read
	defer up.conn.SetReadDeadline(time.Time{}) //nolint:errcheck // shows in the next read
	_, err := up.r.Peek(1)
	return errors.Is(err, os.ErrDeadlineExceeded)
}
