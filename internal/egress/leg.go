// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"io"
	"net/netip"

	"bawn/internal/httpwire"
)

// A bodyReader is the body of a message as it comes.
type bodyReader interface {
	io.Reader
	// Ready reports whether Read returns without waiting for the peer.
	// Whoever passes octets on flushes them when it is not.
	Ready() bool
	// Trailers returns the trailer fields, after Read returned io.EOF.
	Trailers() httpwire.Fields
}

// An agentLeg is where one request comes from and its response goes: an
// HTTP/1.1 connection, or one stream of HTTP/2. What carries a request up and
// its response down does not know which.
//
// The body and the response may be used by two goroutines, one for each.
type agentLeg interface {
	// proto is the version of HTTP, as it is on record.
	proto() string

	// body returns the body of the request, from its beginning.
	body() bodyReader
	// arrived takes the whole body out of what came with the head; false, and
	// nothing is taken, when that is not the whole.
	arrived() ([]byte, bool)
	// soFar judges as much of the body as came with the head, so that one which
	// is malformed from its beginning reaches nobody and asks for no name.
	soFar() error
	// stop wakes whoever reads the body. None of it will be read any more.
	stop()
	// stopped says that nobody reads the body any more.
	stopped()

	// interim writes a response before the final one, at once. The number of
	// octets is that of the head in the form of HTTP/1.1, in every version.
	interim(*httpwire.Response) (int, error)
	// head writes the head of the final response; flush sends it.
	head(*httpwire.Response) (int, error)
	write([]byte) (int, error)
	flush() error
	// end writes the end of the response; flush sends it.
	end(trailers httpwire.Fields) error

	// answer writes a whole response of Bawn's own, and reports whether another
	// request can follow.
	answer(p *httpwire.Response, body []byte) (keep bool)
	// linger lets the agent read an answer that came before its request ended.
	linger()
	// abort makes the agent notice that what it got is not the whole.
	abort()
	// done gives back what the response needed.
	done()
}

// An upstreamLeg carries one request to a server and its response back.
type upstreamLeg interface {
	// head writes the head of the request with a canonical path and query; flush
	// sends it. octets are counted as for an agentLeg.
	head(q *httpwire.Request, pathQuery string) (int, error)
	write([]byte) (int, error)
	flush() error
	// end writes the end of the request; flush sends it.
	end(trailers httpwire.Fields) error

	// answered reports whether a response has come although the request could not
	// be sent.
	answered() bool
	// readHead reads the head of the next response, an interim one or the final.
	readHead(p *httpwire.Response, method string) error
	// body returns the body of the final response, from its beginning.
	body(httpwire.Framing) bodyReader

	// settle ends the use of the leg after a response that came whole. With
	// reuse the server may get another request on the same connection.
	settle(reuse bool)
	// drop ends the use of the leg; the server hears nothing more.
	drop()
	// abort makes the server notice that what it got is not the whole. Any
	// goroutine may call it, and the leg is still to be dropped.
	abort()
	// address is where the server is.
	address() netip.Addr
}
