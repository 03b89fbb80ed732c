// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"context"
	"errors"
	"io"
	"time"

	"golang.org/x/net/http2"

	"bawn/internal/codes"
	"bawn/internal/h2conn"
	"bawn/internal/httpwire"
	"bawn/internal/verdict"
)

// serveH2 serves a connection that speaks HTTP/2. Each stream of it is a
// request of its own, judged alone, with a record and a flow of its own; the
// connection has the flow that it began with.
func (c *conn) serveH2() {
	c.flow.stands(stand{host: c.host, port: c.port})
	c.flow.rests()
	c.flow.await(phaseIdle)
	h2 := h2conn.NewServer(c.cl, c.h2Limits(), c.serveStream)
	err := h2.Serve()
	// What the agent did stands, even if its session or the proxy ended since.
	why := c.flow.wasCut()
	if e, ok := errors.AsType[*h2conn.ConnError](err); ok && (why == nil || why.code == "") {
		c.x.begin()
		c.x.rec.Proto = "h2"
		c.x.host, c.x.port = c.host, c.port
		c.x.record(verdict.Refuse("head", e.Code, e.Detail))
	}
}

// serveStream serves one stream.
func (c *conn) serveStream(st *h2conn.ServerStream) {
	defer func() {
		if p := recover(); p != nil { // while a panic was answered
			c.panicked(p)
		}
	}()
	c.working(1)
	defer c.working(-1)
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	l := &h2Agent{st: st}
	x := &exchange{c: c, ctx: ctx, leg: l}
	x.kept.of = &c.t.held
	l.x = x
	x.flow = c.s.live.addStream(c.flow, l, cancel)
	defer c.s.live.remove(x.flow)
	st.OnAbort(func() {
		why := c.flow.wasCut() // then the stream went with its connection
		if why == nil {
			why = &cut{detail: "the agent gave up the request"}
		}
		x.flow.cut(*why)
	})
	defer st.Reset(http2.ErrCodeInternal) // what has ended stays as it is
	x.stream()
}

// stream serves the request of a stream.
func (x *exchange) stream() {
	var keep bool
	defer x.rescue(&keep)
	q, err := x.leg.(*h2Agent).st.Head()
	if q != nil {
		x.q = *q
	}
	x.begin()
	x.call = callsGRPC(&x.q)
	x.rec.Proto = "h2"
	if err != nil {
		x.host, x.port = x.c.host, x.c.port
		x.rec.Method, x.rec.Asked = x.q.Method, x.q.Authority
		x.deny(badHead(err))
		return
	}
	t := x.c.t
	if !t.streams.enter(x.c.s.lim.Streams) {
		x.tooMany()
		return
	}
	defer t.streams.leave()
	x.leg.(*h2Agent).patient = true
	x.run()
}

// tooMany refuses a stream beyond the agent's bound. An answer waits for the
// agent's window, so that only a few get one.
func (x *exchange) tooMany() {
	x.host, x.port = x.c.host, x.c.port
	if x.mute = !x.c.t.refused.enter(answering); !x.mute {
		defer x.c.t.refused.leave()
	}
	x.deny(verdict.Refuse("accept", codes.ConcurrencyExceeded, ""))
}

// working counts the streams that are served: while there are any, the
// connection is not idle, and each has its own bounds in time.
func (c *conn) working(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams += n
	switch {
	case c.streams == 0:
		c.flow.await(phaseIdle)
	case c.streams == n:
		c.flow.await(phaseStreams)
	}
}

// An h2Agent is the agent's side of a request on a stream of HTTP/2.
type h2Agent struct {
	x     *exchange
	st    *h2conn.ServerStream
	ended bool // nothing of the response is left to write

	patient bool // the agent may have time to read a response that came early
}

var (
	_ agentLeg = (*h2Agent)(nil)
	_ flowEnd  = (*h2Agent)(nil)
)

func (l *h2Agent) proto() string { return "h2" }

func (l *h2Agent) body() bodyReader { return l.st.Body() }

func (l *h2Agent) arrived() ([]byte, bool) {
	b := l.st.Body()
	n, whole := b.Arrived()
	if !whole || n > writeBuffer || len(b.Trailers()) > 0 {
		return nil, false
	}
	all := make([]byte, n)
	if _, err := io.ReadFull(b, all); err != nil {
		return nil, false // and whoever reads it next finds out why
	}
	return all, true
}

// soFar waits for the end of a request that has no body, as it says: octets that
// come all the same would be another request to whoever counts by the length. Of
// any other body the engine has judged what came.
func (l *h2Agent) soFar() error {
	if l.x.q.Framing.HasBody() {
		return nil
	}
	l.x.flow.await(phaseBody)
	var none [1]byte
	if _, err := l.st.Body().Read(none[:]); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

func (l *h2Agent) stop() { l.st.Body().Stop() }

func (l *h2Agent) stopped() {}

func (l *h2Agent) interim(p *httpwire.Response) (int, error) {
	if err := l.st.WriteHead(p, false); err != nil {
		return 0, err
	}
	return headSize(p.Fields), l.st.Flush()
}

func (l *h2Agent) head(p *httpwire.Response) (int, error) {
	l.ended = !p.Framing.HasBody()
	return headSize(p.Fields), l.st.WriteHead(p, l.ended)
}

func (l *h2Agent) write(p []byte) (int, error) { return l.st.Write(p) }

func (l *h2Agent) flush() error { return l.st.Flush() }

func (l *h2Agent) end(trailers httpwire.Fields) error {
	if l.ended {
		return nil
	}
	l.ended = true
	trailers.DelFunc(withheld)
	return l.st.End(trailers)
}

func (l *h2Agent) done() {}

func (l *h2Agent) answer(p *httpwire.Response, body []byte) (keep bool) {
	if l.x.q.Method == "HEAD" {
		body = nil
	}
	if err := l.st.WriteHead(p, len(body) == 0); err != nil {
		return false
	}
	if len(body) > 0 {
		if _, err := l.st.Write(body); err != nil {
			return false
		}
		if err := l.st.End(nil); err != nil {
			return false
		}
	}
	if err := l.st.Flush(); err != nil {
		return false
	}
	l.linger()
	return false
}

// linger ends a stream whose response is through, and whose request may not be:
// the agent is told that the rest is not wanted (RFC 9113 section 8.1). It
// should read the response all the same; some clients do not once they are told
// so, and are given the time to. They get no more window meanwhile.
func (l *h2Agent) linger() {
	defer l.st.Reset(http2.ErrCodeNo)
	body, done := l.st.Body(), l.st.Done()
	body.Stop()
	late := time.NewTimer(l.x.c.s.lim.Linger)
	defer late.Stop()
	look := time.NewTicker(lingerLook)
	defer look.Stop()
	for l.patient && !body.Ended() {
		select {
		case <-done:
			return
		case <-late.C:
			return
		case <-look.C:
		}
	}
}

// lingerLook is how often a stream that lingers is asked whether its request
// has ended after all.
const lingerLook = 20 * time.Millisecond

func (l *h2Agent) abort() { l.st.Reset(http2.ErrCodeCancel) }

func (l *h2Agent) close() { l.st.Reset(http2.ErrCodeCancel) }

func (l *h2Agent) gone(bool) bool { return l.st.Err() != nil }

// headSize is how many octets the fields take in the form of HTTP/1.1.
func headSize(fields httpwire.Fields) int {
	n := 0
	for i := range fields {
		n += len(fields[i].Name) + len(fields[i].Value) + 4
	}
	return n
}
