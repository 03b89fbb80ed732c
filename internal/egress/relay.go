// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"bufio"
	"errors"
	"io"
	"net/netip"
	"time"

	"bawn/internal/audit"
	"bawn/internal/codes"
	"bawn/internal/httpwire"
	"bawn/internal/verdict"
)

const (
	writeBuffer = 16 << 10 // of heads and small bodies; larger pieces pass it by
	copyBuffer  = 32 << 10
	maxInterim  = 64 // responses before the final one
)

// buffers are what one request needs while it is under way, so that a
// connection that waits holds none of them.
type buffers struct {
	head []byte
	copy []byte
	up   *bufio.Writer
	down *bufio.Writer
}

func newBuffers() *buffers {
	return &buffers{
		copy: make([]byte, copyBuffer),
		up:   bufio.NewWriterSize(nil, writeBuffer),
		down: bufio.NewWriterSize(nil, writeBuffer),
	}
}

// free gives the buffers back, without what they wrote to.
func (b *buffers) free(s *Server) {
	b.up.Reset(nil)
	b.down.Reset(nil)
	s.buffers.Put(b)
}

// forward sends the request to up and the response to the agent.
func (x *exchange) forward(up *upstream) (keep bool) {
	c := x.c
	b := c.s.buffers.Get().(*buffers)
	var u *upload
	settled := false
	defer func() {
		if !settled { // a panic: let nobody else have what is still in use
			up.close()
			u.abandon(c)
		}
		c.flow.join(nil, netip.Addr{})
		b.free(c.s)
	}()
	keep = x.exchanged(up, b, &u)
	settled = true
	return keep
}

// exchanged is the inside of forward. u is where the upload is left.
func (x *exchange) exchanged(up *upstream, b *buffers, u **upload) (keep bool) {
	c := x.c
	if !c.flow.join(up.sock.conn, up.addr) {
		up.close()
		return x.deny(x.cutVerdict("upstream", codes.PolicyDenied, ""))
	}
	b.down.Reset(c.cl)
	var err error
	if *u, err = x.send(up, b); err != nil {
		up.close()
		return x.deny(x.cutVerdict("upstream", codes.UpstreamUnreachable, "sending the request: "+err.Error()))
	}
	sent := time.Now()
	if v := x.await(up, b, *u); !v.Allowed() {
		up.close()
		x.q.Close = x.q.Close || *u != nil
		(*u).abandon(c)
		return x.deny(v)
	}
	x.out.TTFB = audit.Span(time.Since(sent))
	c.s.stage("first_byte")
	return x.respond(up, b, *u)
}

// respond sends the final response down and settles both connections.
func (x *exchange) respond(up *upstream, b *buffers, u *upload) (keep bool) {
	err := x.download(up, b, u)
	whole := u.finished()
	if err == nil && whole && !x.p.Close && !x.q.BodyUnexpected() && up.r.Buffered() == 0 {
		x.c.flow.join(nil, netip.Addr{})
		x.c.t.pool.put(up)
	} else {
		up.close()
	}
	if !whole {
		u.abandon(x.c)
	}
	x.out.BytesUp += u.sent()
	if err != nil {
		x.broken(err)
		return false
	}
	x.finish()
	switch {
	case !whole:
		x.c.linger()
		return false
	case x.q.Close:
		return false
	}
	return true
}

// broken closes the record of a response that was cut short, and makes the
// agent notice: the connection ends inside the message.
func (x *exchange) broken(err error) {
	v := x.cutVerdict("upstream", "", err.Error())
	if e, ok := errors.AsType[*upstreamError](err); ok && x.c.flow.wasCut() == nil {
		v.Code, v.Detail = codes.UpstreamUnreachable, "reading the response: "+e.err.Error()
	}
	x.out.Code, x.out.Error = v.Code, v.Detail
	x.finish()
	reset(x.c.raw)
}

// send writes the head, and the body as far as it is here already. What is
// still to come of it goes up beside the response: then u is not nil.
func (x *exchange) send(up *upstream, b *buffers) (u *upload, err error) {
	b.up.Reset(up.conn)
	target := x.path
	if x.query != "" {
		target += x.query
	}
	b.head = httpwire.AppendRequest(b.head[:0], &x.q, target)
	if _, err := b.up.Write(b.head); err != nil {
		return nil, err
	}
	x.out.BytesUp = int64(len(b.head))
	if u, err = x.sendBody(up, b); err != nil {
		return nil, err
	}
	x.c.flow.await(phaseResponse)
	if u != nil {
		if err := b.up.Flush(); err != nil {
			return nil, err
		}
		go u.run()
		return u, nil
	}
	return nil, b.up.Flush()
}

// sendBody writes a body that a guard has read, or that came with the head.
// For any other it prepares the upload.
func (x *exchange) sendBody(up *upstream, b *buffers) (*upload, error) {
	f := x.q.Framing
	switch {
	case !f.HasBody():
		return nil, nil
	case x.body != nil:
		n, err := b.up.Write(x.body)
		x.out.BytesUp += int64(n)
		return nil, err
	case f.Kind == httpwire.Length && f.Length <= int64(x.c.r.Buffered()):
		all, _ := x.c.r.Peek(int(f.Length))
		n, err := b.up.Write(all)
		x.c.r.Discard(len(all)) //nolint:errcheck // as many are buffered
		x.taken = true
		x.out.BytesUp += int64(n)
		return nil, err
	}
	return newUpload(x, up, b.up), nil
}

// await reads up to the final response's head and passes interim ones on.
func (x *exchange) await(up *upstream, b *buffers, u *upload) verdict.Verdict {
	for range maxInterim {
		err := x.p.Read(up.r, x.q.Method, x.c.s.lim.Wire)
		switch {
		case err != nil:
			return x.noResponse(err, u)
		case x.p.Status == 101:
			return verdict.Refuse("upstream", codes.UpstreamUnreachable, "a change of protocol that nobody asked for")
		case !x.p.Informational():
			return allowed
		case x.p.Close:
			return verdict.Refuse("upstream", codes.UpstreamUnreachable, "an interim response with a body")
		}
		if err := x.interim(b, u); err != nil {
			return x.cutVerdict("upstream", codes.ProtocolError, "writing to the agent: "+err.Error())
		}
	}
	return verdict.Refuse("upstream", codes.UpstreamUnreachable, "interim responses without an end")
}

// noResponse says why there is no response. If the agent's body was at fault,
// the connection to the upstream was ended for that.
func (x *exchange) noResponse(err error, u *upload) verdict.Verdict {
	if fault := u.agentFault(); fault != nil {
		v := badBody(fault)
		return x.cutVerdict(v.Stage, v.Code, v.Detail)
	}
	if e, ok := errors.AsType[*httpwire.Error](err); ok {
		return verdict.Refuse("upstream", codes.UpstreamUnreachable, "the response is malformed: "+e.Error())
	}
	detail := "no response: " + err.Error()
	if errors.Is(err, io.EOF) {
		detail = "the server closed the connection without a response"
	}
	return x.cutVerdict("upstream", codes.UpstreamUnreachable, detail)
}

// interim passes a 1xx response on (RFC 9110 section 15.2). HTTP/1.0 has none,
// and 100 is for those who wait for it.
func (x *exchange) interim(b *buffers, u *upload) error {
	if x.p.Status == 100 {
		if !x.q.Expect || x.q.Minor == 0 {
			return nil
		}
		err := x.sendContinue()
		u.goOn()
		return err
	}
	if x.q.Minor == 0 {
		return nil
	}
	x.p.Fields.DelFunc(withheld)
	x.down.Lock()
	defer x.down.Unlock()
	b.head = httpwire.AppendResponse(b.head[:0], &x.p)
	x.out.BytesDown += int64(len(b.head))
	_, err := x.c.cl.Write(b.head)
	return err
}

// sendContinue asks the agent for its body, once, unless the final response has
// begun.
func (x *exchange) sendContinue() error {
	x.down.Lock()
	defer x.down.Unlock()
	if x.continued || x.answered {
		return nil
	}
	x.continued = true
	_, err := x.c.cl.Write([]byte("HTTP/1.1 100 Continue\r\n\r\n"))
	return err
}

// An upstreamError is a failure on the upstream's side of a response.
type upstreamError struct{ err error }

func (e *upstreamError) Error() string { return e.err.Error() }
func (e *upstreamError) Unwrap() error { return e.err }

// download writes the final response. Each piece of the body goes down as it
// comes.
func (x *exchange) download(up *upstream, b *buffers, u *upload) error {
	x.down.Lock()
	x.answered = true
	x.down.Unlock()
	u.tooLate(x)
	var from httpwire.Body
	from.Reset(up.r, x.p.Framing, x.c.s.lim.Wire)
	x.adapt()
	b.head = httpwire.AppendResponse(b.head[:0], &x.p)
	x.out.Status = x.p.Status
	x.out.BytesDown += int64(len(b.head))
	if _, err := b.down.Write(b.head); err != nil {
		return err
	}
	var to httpwire.BodyWriter
	to.Reset(b.down, x.p.Framing)
	if err := x.copyDown(&to, &from, b); err != nil {
		return err
	}
	if err := to.Close(from.Trailers()); err != nil {
		return err
	}
	return b.down.Flush()
}

// copyDown copies the body, and flushes whenever the next octets are not here.
func (x *exchange) copyDown(to *httpwire.BodyWriter, from *httpwire.Body, b *buffers) error {
	for {
		if !from.Ready() {
			if err := b.down.Flush(); err != nil {
				return err
			}
			x.c.flow.await(phaseBody)
		}
		n, err := from.Read(b.copy)
		if n > 0 {
			x.out.BytesDown += int64(n)
			if _, err := to.Write(b.copy[:n]); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			b.down.Flush() //nolint:errcheck // the response is broken already
			return &upstreamError{err}
		}
	}
}

// adapt makes the head that came up to one for the agent: without what is for
// one connection, framed as the agent's version of HTTP can read it.
func (x *exchange) adapt() {
	x.p.Fields.DelFunc(withheld)
	switch f := x.p.Framing; {
	case x.q.Minor == 0 && (f.Kind == httpwire.Chunked || f.Kind == httpwire.UntilClose):
		x.p.SetFraming(httpwire.Framing{Kind: httpwire.UntilClose})
		x.q.Close = true
	case f.Kind == httpwire.UntilClose:
		// Chunks show the agent whether the end was good, and keep its
		// connection.
		x.p.SetFraming(httpwire.Framing{Kind: httpwire.Chunked})
	}
	if x.q.Close {
		x.p.Fields = append(x.p.Fields, httpwire.Field{Name: "Connection", Value: "close"})
	} else if x.q.Minor == 0 {
		x.p.Fields = append(x.p.Fields, httpwire.Field{Name: "Connection", Value: "keep-alive"})
	}
}
