// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
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
	writeBuffer = 15 << 10 // of heads and small bodies; larger pieces, such as a whole record of TLS, pass it by
	copyBuffer  = 32 << 10
	maxInterim  = 64 // responses before the final one
)

// forward sends the request to up and the response to the agent.
func (x *exchange) forward(up upstreamLeg) (keep bool) {
	var u *upload
	settled := false
	defer func() {
		if !settled { // a panic: let nobody else have what is still in use
			up.abort()
			u.abandon()
			up.drop()
		}
		x.flow.join(nil, netip.Addr{})
		x.leg.done()
	}()
	keep = x.exchanged(up, &u)
	settled = true
	return keep
}

// exchanged is the inside of forward. u is where the upload is left.
func (x *exchange) exchanged(up upstreamLeg, u **upload) (keep bool) {
	if !x.flow.join(up, up.address()) {
		up.drop()
		return x.deny(x.cutVerdict("upstream", codes.PolicyDenied, ""))
	}
	var err error
	if *u, err = x.send(up); err != nil {
		up.drop()
		return x.deny(x.upstreamFault("upstream", "sending the request", err))
	}
	sent := time.Now()
	if v := x.await(up, *u); !v.Allowed() {
		up.abort()
		x.q.Close = x.q.Close || *u != nil
		(*u).abandon()
		x.out.BytesUp += (*u).sent()
		up.drop()
		return x.deny(v)
	}
	x.out.TTFB = audit.Span(time.Since(sent))
	x.c.s.stage("first_byte")
	return x.respond(up, *u)
}

// respond sends the final response down and settles both legs.
func (x *exchange) respond(up upstreamLeg, u *upload) (keep bool) {
	err := x.download(up, u)
	whole := u.finished()
	if !whole {
		up.abort()
		u.abandon()
	}
	x.flow.join(nil, netip.Addr{})
	if err != nil {
		up.drop()
	} else {
		up.settle(whole && !x.p.Close && !x.q.BodyUnexpected())
	}
	x.out.BytesUp += u.sent()
	if err != nil {
		x.broken(err)
		return false
	}
	x.finish()
	switch {
	case !whole:
		x.leg.linger()
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
	if e, ok := errors.AsType[*upstreamError](err); ok && x.flow.wasCut() == nil && x.over.Load() == nil {
		v.Code, v.Detail = codes.UpstreamUnreachable, "reading the response: "+e.err.Error()
	}
	x.out.Code, x.out.Error = v.Code, v.Detail
	x.finish()
	x.leg.abort()
}

// send writes the head, and the body as far as it is here already. What is
// still to come of it goes up beside the response: then u is not nil.
func (x *exchange) send(up upstreamLeg) (u *upload, err error) {
	n, err := up.head(&x.q, x.path+x.query)
	x.out.BytesUp = int64(n)
	if err != nil {
		return nil, err
	}
	u, err = x.sendBody(up)
	if err == nil {
		x.flow.await(phaseResponse)
		err = up.flush()
	}
	if err != nil && (x.over.Load() != nil || !up.answered()) {
		return nil, err
	}
	if u != nil {
		go u.run()
	}
	return u, nil
}

// sendBody writes a small body that a guard has read, or that came with the
// head. For any other it prepares the upload.
func (x *exchange) sendBody(up upstreamLeg) (*upload, error) {
	if !x.q.Framing.HasBody() {
		return nil, up.end(nil)
	}
	all := x.body
	x.body, x.clear = nil, nil
	switch {
	case len(all) > writeBuffer:
		return newUpload(x, up, &readBody{left: all}), nil
	case all == nil:
		var here bool
		if all, here = x.leg.arrived(); !here {
			return newUpload(x, up, x.leg.body()), nil
		}
		x.taken = true
	}
	if err := x.goesUp(len(all)); err != nil {
		return nil, err
	}
	n, err := up.write(all)
	x.out.BytesUp += int64(n)
	x.kept.release()
	if err != nil {
		return nil, err
	}
	return nil, up.end(nil)
}

// A readBody is a body that a guard has read.
type readBody struct{ left []byte }

func (b *readBody) Read(p []byte) (int, error) {
	if len(b.left) == 0 {
		return 0, io.EOF
	}
	n := copy(p, b.left)
	b.left = b.left[n:]
	return n, nil
}

func (b *readBody) Ready() bool { return true }

func (b *readBody) Trailers() httpwire.Fields { return nil }

// await reads up to the final response's head and passes interim ones on.
func (x *exchange) await(up upstreamLeg, u *upload) verdict.Verdict {
	for range maxInterim {
		err := up.readHead(&x.p, x.q.Method)
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
		if err := x.interim(u); err != nil {
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
	if errors.Is(err, io.EOF) {
		return x.cutVerdict("upstream", codes.UpstreamUnreachable, "the server closed the connection without a response")
	}
	return x.upstreamFault("upstream", "no response", err)
}

// interim passes a 1xx response on (RFC 9110 section 15.2). 100 is for those
// who wait for it.
func (x *exchange) interim(u *upload) error {
	if x.p.Status == 100 {
		if !x.q.Expect {
			return nil
		}
		err := x.sendContinue()
		u.goOn()
		return err
	}
	x.p.Fields.DelFunc(withheld)
	x.interims.Lock()
	defer x.interims.Unlock()
	if err := x.comesDown(headSize(x.p.Fields)); err != nil {
		return err
	}
	n, err := x.leg.interim(&x.p)
	x.out.BytesDown += int64(n)
	return err
}

// sendContinue asks the agent for its body, once, unless the final response has
// begun.
func (x *exchange) sendContinue() error {
	x.interims.Lock()
	defer x.interims.Unlock()
	if x.continued || x.answered {
		return nil
	}
	x.continued = true
	_, err := x.leg.interim(&httpwire.Response{Status: 100, Reason: "Continue"})
	return err
}

// An upstreamError is a failure on the upstream's side of a response.
type upstreamError struct{ err error }

func (e *upstreamError) Error() string { return e.err.Error() }
func (e *upstreamError) Unwrap() error { return e.err }

// download writes the final response. Each piece of the body goes down as it
// comes.
func (x *exchange) download(up upstreamLeg, u *upload) error {
	x.interims.Lock()
	x.answered = true
	x.interims.Unlock()
	u.tooLate(x)
	from := up.body(x.p.Framing)
	if x.p.Framing.Kind == httpwire.Length && x.p.Fields.Count("trailer") > 0 {
		// HTTP/2 has trailers behind a body of known length; HTTP/1.1 has a place
		// for them only behind chunks.
		x.p.SetFraming(httpwire.Framing{Kind: httpwire.Chunked})
	}
	x.p.Fields.DelFunc(withheld)
	x.out.Status = x.p.Status
	if err := x.comesDown(len("HTTP/1.1 200 \r\n\r\n") + len(x.p.Reason) + headSize(x.p.Fields)); err != nil {
		return err
	}
	n, err := x.leg.head(&x.p)
	x.out.BytesDown += int64(n)
	if err != nil {
		return err
	}
	if x.p.Framing.HasBody() {
		if err := x.copyDown(from); err != nil {
			return err
		}
	}
	if err := x.comesDown(headSize(from.Trailers())); err != nil {
		return err
	}
	if err := x.leg.end(from.Trailers()); err != nil {
		return err
	}
	return x.leg.flush()
}

// copyDown copies the body, and flushes whenever the next octets are not here.
func (x *exchange) copyDown(from bodyReader) error {
	buf := x.c.s.copies.Get().(*[]byte)
	defer x.c.s.copies.Put(buf)
	for {
		if !from.Ready() {
			if err := x.leg.flush(); err != nil {
				return err
			}
			x.flow.await(phaseBody)
		}
		n, err := from.Read(*buf)
		if n > 0 {
			if err := x.comesDown(n); err != nil {
				return err
			}
			x.out.BytesDown += int64(n)
			if _, err := x.leg.write((*buf)[:n]); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			x.leg.flush() //nolint:errcheck // the response is broken already
			return &upstreamError{err}
		}
	}
}
