// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"net/netip"
	"time"

	"golang.org/x/net/http2"

	"bawn/internal/h2conn"
	"bawn/internal/httpwire"
)

// An h2Upstream is one HTTP/2 connection to a server, which requests of one
// lease, rule, name and port share.
type h2Upstream struct {
	pool   *pool
	key    poolKey
	client *h2conn.Client
	sock   socket
	addr   netip.Addr
	name   string // address and port, for the record
	local  string // of our end, likewise
	cert   string // SHA-256 of the server's certificate, likewise

	// Guarded by pool.mu.
	revision uint64 // by which the address was vetted last
	uses     int
	retired  bool          // opened under a policy that is not in force any more
	since    time.Duration // nothing has used it
}

// close closes the connection, after a farewell if the server takes it soon. It
// does not wait for that.
func (up *h2Upstream) close() { up.client.Close() }

// open begins a request on the connection; nil if it can carry no more, or if
// the request has been cut: the head goes from here.
func (up *h2Upstream) open(x *exchange) *h2Request {
	if x.flow.wasCut() != nil {
		return nil
	}
	r := &h2Request{up: up, whole: !x.q.Framing.HasBody()}
	if x.grpc {
		// For one connection only, and so taken out before; servers of gRPC
		// ask for it (the gRPC HTTP/2 protocol).
		x.q.Fields = append(x.q.Fields, httpwire.Field{Name: "te", Value: "trailers"})
	}
	var err error
	if r.st, err = up.client.Open(&x.q, scheme(x.c.plain), x.path+x.query, r.whole); err != nil {
		x.q.Fields.Del("te")
		return nil
	}
	return r
}

// An h2Request is a request on a stream of HTTP/2 to a server.
type h2Request struct {
	up    *h2Upstream
	st    *h2conn.ClientStream
	whole bool // nothing of the request is left to write
	freed bool
}

var _ upstreamLeg = (*h2Request)(nil)

func (r *h2Request) address() netip.Addr { return r.up.addr }

// head has gone with the opening of the stream.
func (r *h2Request) head(q *httpwire.Request, pathQuery string) (int, error) {
	return headSize(q.Fields) + len(q.Method) + len(pathQuery), nil
}

func (r *h2Request) write(p []byte) (int, error) { return r.st.Write(p) }

func (r *h2Request) flush() error { return r.st.Flush() }

func (r *h2Request) end(trailers httpwire.Fields) error {
	if r.whole {
		return nil
	}
	r.whole = true
	return r.st.End(trailers)
}

func (r *h2Request) answered() bool { return r.st.Answered() }

func (r *h2Request) readHead(p *httpwire.Response, _ string) error { return r.st.ReadHead(p) }

func (r *h2Request) body(httpwire.Framing) bodyReader { return r.st.Body() }

// settle ends the stream; the connection carries on. What is not through on
// either side is not wanted any more.
func (r *h2Request) settle(bool) { r.drop() }

func (r *h2Request) drop() {
	r.st.Reset(http2.ErrCodeCancel)
	if !r.freed {
		r.freed = true
		r.up.pool.free(r.up)
	}
}

func (r *h2Request) abort() { r.st.Reset(http2.ErrCodeCancel) }
