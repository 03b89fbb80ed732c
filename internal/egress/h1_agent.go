// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"time"

	"bawn/internal/codes"
	"bawn/internal/httpwire"
)

// An h1Agent is the agent's side of the request at hand on an HTTP/1.1
// connection.
type h1Agent struct {
	c   *conn
	in  httpwire.Body
	out httpwire.BodyWriter
	w   *bufio.Writer // only between the head of a response and done
}

var _ agentLeg = (*h1Agent)(nil)

func (l *h1Agent) proto() string { return "http/1.1" }

func (l *h1Agent) body() bodyReader {
	l.in.Reset(l.c.r, l.c.x.q.Framing, l.c.s.lim.Wire)
	return &l.in
}

func (l *h1Agent) arrived() ([]byte, bool) {
	f := l.c.x.q.Framing
	if f.Kind != httpwire.Length || f.Length > int64(l.c.r.Buffered()) {
		return nil, false
	}
	all, _ := l.c.r.Peek(int(f.Length))
	l.c.r.Discard(len(all)) //nolint:errcheck // as many are buffered
	return all, true
}

// soFar reads ahead in a chunked body. Of any other there is nothing to judge.
func (l *h1Agent) soFar() error {
	n := l.c.r.Buffered()
	if l.c.x.q.Framing.Kind != httpwire.Chunked || n == 0 {
		return nil
	}
	here, err := l.c.r.Peek(n)
	if err != nil {
		return err
	}
	var b httpwire.Body
	b.Reset(bufio.NewReader(bytes.NewReader(here)), l.c.x.q.Framing, l.c.s.lim.Wire)
	_, err = io.Copy(io.Discard, &b)
	if e, ok := errors.AsType[*httpwire.Error](err); ok && e.Code != codes.BodyTruncated {
		return err
	}
	return nil
}

func (l *h1Agent) stop() { l.c.raw.SetReadDeadline(time.Now()) } //nolint:errcheck // wakes the reader

func (l *h1Agent) stopped() { l.c.raw.SetReadDeadline(time.Time{}) } //nolint:errcheck // for linger to set anew

// interim writes a 1xx response, which HTTP/1.0 has none of.
func (l *h1Agent) interim(p *httpwire.Response) (int, error) {
	if l.c.x.q.Minor == 0 {
		return 0, nil
	}
	return l.c.cl.Write(httpwire.AppendResponse(nil, p))
}

// head writes the head of the final response, framed as the agent's version of
// HTTP can read it.
func (l *h1Agent) head(p *httpwire.Response) (int, error) {
	q := &l.c.x.q
	switch f := p.Framing; {
	case q.Minor == 0 && (f.Kind == httpwire.Chunked || f.Kind == httpwire.UntilClose):
		p.SetFraming(httpwire.Framing{Kind: httpwire.UntilClose})
		q.Close = true
	case f.Kind == httpwire.UntilClose, f.Kind == httpwire.Chunked:
		// Chunks show the agent whether the end was good, and keep its
		// connection.
		p.SetFraming(httpwire.Framing{Kind: httpwire.Chunked})
	}
	l.connection(p, !q.Close)
	l.w = l.c.s.writers.Get().(*bufio.Writer)
	l.w.Reset(l.c.cl)
	l.out.Reset(l.w, p.Framing)
	return l.w.Write(httpwire.AppendResponse(l.w.AvailableBuffer(), p))
}

// connection says whether the connection can carry another request, where the
// version does not say so by itself.
func (l *h1Agent) connection(p *httpwire.Response, keep bool) {
	switch {
	case !keep:
		p.Fields = append(p.Fields, httpwire.Field{Name: "Connection", Value: "close"})
	case l.c.x.q.Minor == 0:
		p.Fields = append(p.Fields, httpwire.Field{Name: "Connection", Value: "keep-alive"})
	}
}

func (l *h1Agent) write(p []byte) (int, error) { return l.out.Write(p) }

func (l *h1Agent) flush() error { return l.w.Flush() }

func (l *h1Agent) end(trailers httpwire.Fields) error { return l.out.Close(trailers) }

// done gives back what the response needed.
func (l *h1Agent) done() {
	if l.w != nil {
		l.w.Reset(nil)
		l.c.s.writers.Put(l.w)
		l.w = nil
	}
}

// drainable is how much of a refused body is read, so that the connection can
// be kept.
const drainable = 64 << 10

func (l *h1Agent) answer(p *httpwire.Response, body []byte) (keep bool) {
	x := &l.c.x
	f := x.q.Framing
	pending := f.HasBody() && !x.taken
	drain := pending && !x.q.Expect && f.Kind == httpwire.Length && f.Length <= drainable
	keep = !x.q.Close && (!pending || drain)
	l.connection(p, keep)
	text := httpwire.AppendResponse(nil, p)
	if x.q.Method != "HEAD" {
		text = append(text, body...)
	}
	if _, err := l.c.cl.Write(text); err != nil {
		return false
	}
	switch {
	case keep && drain:
		l.c.flow.await(phaseBody)
		_, err := io.Copy(io.Discard, l.body())
		return err == nil
	case !keep:
		l.c.linger()
	}
	return keep
}

func (l *h1Agent) linger() { l.c.linger() }

func (l *h1Agent) abort() { reset(l.c.raw) }
