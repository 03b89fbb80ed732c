// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"bufio"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"bawn/internal/audit"
	"bawn/internal/codes"
	"bawn/internal/guard"
	"bawn/internal/quota"
	"bawn/internal/verdict"
	"bawn/internal/wswire"
)

// A webSocket carries messages between an agent and a server. Nothing of a
// frame goes from one end to the other: messages do, written anew. It stands in
// the place of the flow's ends, so that a flow that is cut says why.
type webSocket struct {
	x      *exchange
	up     *h1Upstream
	agent  wsEnd
	server wsEnd
	view   *guard.Request // nil: no guard judges messages

	messagesUp   atomic.Int64
	messagesDown atomic.Int64

	stopping atomic.Bool // nothing more is to be passed on
	over     sync.Once   // of shut

	mu      sync.Mutex
	closing bool // one end has sent its close frame
	status  wswire.Status
	v       verdict.Verdict // why Bawn closed it, where it did
	lost    string          // how it ended without a close frame
}

// newWebSocket puts the two ends of x together.
func newWebSocket(x *exchange, up *h1Upstream) *webSocket {
	c := x.c
	w := &webSocket{x: x, up: up, v: allowed}
	passed := c.s.lim.WebSocket
	or(&passed.Free, 16<<20) // nothing of it is held
	lim := passed
	if len(x.d.Guards) > 0 {
		w.view = x.messageView()
		lim = c.s.lim.WebSocket
		if lim.Message == 0 || lim.Message > c.s.lim.GuardBody {
			lim.Message = c.s.lim.GuardBody
		}
	}
	w.agent.init(c.s, c.cl, c.raw, c.r, wswire.Client, x.ws.down, lim)
	w.agent.give, c.r = c.s.readers.Put, nil
	w.server.init(c.s, up.conn, up.sock.conn, up.r, wswire.Server, x.ws.up, passed)
	w.server.give, up.r = func(any) {}, nil
	w.hooks(&w.agent, &w.server)
	w.hooks(&w.server, &w.agent)
	return w
}

// init makes e ready: peer is which end of a WebSocket it is.
func (e *wsEnd) init(s *Server, conn, raw net.Conn, r *bufio.Reader, peer wswire.Role, p wswire.Params, lim wswire.Limits) {
	e.s, e.conn, e.raw, e.src = s, conn, raw, r
	e.in.Reset(r, peer, p.Deflate, lim)
	e.out.Reset(nil, wswire.Client+wswire.Server-peer, p)
}

// hooks says what is done while a message from one end is waited for.
func (w *webSocket) hooks(from, to *wsEnd) {
	from.in.Wait = func(within bool) error {
		if err := to.flush(); err != nil {
			return err
		}
		if w.stopping.Load() {
			return errStopped
		}
		w.awaitMessage()
		if within {
			return nil
		}
		return from.stirs()
	}
	from.in.Control = func(op wswire.Opcode, p []byte) error {
		if op == wswire.Close {
			return nil
		}
		if err := from.hear(); err != nil {
			return err
		}
		if op == wswire.Ping {
			from.answer(p)
			to.keepAlive()
		}
		return nil
	}
}

var errStopped = errors.New("the WebSocket was ended")

// abort, close and gone make w the end of a flow. Whoever reads or writes for
// it wakes, and says goodbye to both ends.
func (w *webSocket) abort()         { w.wake() }
func (w *webSocket) close()         { w.wake() }
func (w *webSocket) gone(bool) bool { return false }

// goodbye is how long a close frame may take to be written.
const goodbye = 500 * time.Millisecond

// wake ends every wait for an end. It does not block.
func (w *webSocket) wake() {
	w.stopping.Store(true)
	past, soon := time.Unix(1, 0), time.Now().Add(goodbye)
	for _, e := range []*wsEnd{&w.agent, &w.server} {
		e.raw.SetReadDeadline(past)  //nolint:errcheck // a connection that has none is closed
		e.raw.SetWriteDeadline(soon) //nolint:errcheck // likewise
	}
}

// run carries messages until both directions have ended.
func (w *webSocket) run() {
	w.x.flow.bound(w.x.c.s.lim.MessageLife)
	w.awaitMessage()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer w.rescue()
		w.ended(&w.server, &w.agent, w.pump(&w.server, &w.agent))
	}()
	func() {
		defer w.rescue()
		w.ended(&w.agent, &w.server, w.pump(&w.agent, &w.server))
	}()
	<-done
}

func (w *webSocket) rescue() {
	if p := recover(); p != nil {
		w.x.c.panicked(p)
		w.refuse(verdict.Refuse("message", codes.InternalError, "panic"))
		w.shut(wswire.StatusInternal, string(codes.InternalError), wswire.StatusGoingAway)
	}
}

// pump passes the messages of one end on to the other. It returns why there are
// no more.
func (w *webSocket) pump(from, to *wsEnd) error {
	for {
		op, compressed, err := from.in.Next()
		if err != nil {
			return err
		}
		count, what := &w.messagesDown, w.octets(from)
		if from == &w.agent {
			count = &w.messagesUp
			if err := w.pays(quota.Messages, 1); err != nil {
				return err
			}
		}
		if err := w.pays(what, leastFrame); err != nil { // an empty message says something too
			return err
		}
		if from == &w.agent && w.view != nil {
			err = w.judged(op, compressed, count.Load()+1)
		} else {
			err = w.passed(from, to, op, compressed)
		}
		if err != nil {
			return err
		}
		count.Add(1)
	}
}

// passed passes a message on as it comes.
func (w *webSocket) passed(from, to *wsEnd, op wswire.Opcode, compressed bool) error {
	buf := w.x.c.s.copies.Get().(*[]byte)
	defer w.x.c.s.copies.Put(buf)
	what := w.octets(from)
	to.begin(op, compressed)
	for {
		n, err := from.in.Read(*buf)
		end := errors.Is(err, io.EOF)
		if err != nil && !end {
			return err
		}
		if w.stopping.Load() {
			return errStopped
		}
		if err := w.pays(what, n); err != nil {
			return err
		}
		if err := to.piece((*buf)[:n], end); err != nil || end {
			return err
		}
	}
}

// A refusal is a message that may not go on.
type refusal struct{ v verdict.Verdict }

func (r *refusal) Error() string { return string(r.v.Why()) + ": " + r.v.Detail }

// judged reads a message of the agent to its end and passes it on if the guards
// allow it. n is its number.
func (w *webSocket) judged(op wswire.Opcode, compressed bool, n int64) error {
	buf := w.x.c.s.copies.Get().(*[]byte)
	defer w.x.c.s.copies.Put(buf)
	defer w.x.kept.release()
	data, err := collect((*buf)[:0], &w.agent.in, w.x.c.s.lim.GuardBody, &w.x.kept)
	if errors.Is(err, errNoRoom) {
		return &refusal{verdict.Refuse("message", codes.ConcurrencyExceeded, err.Error())}
	}
	if err != nil {
		return err
	}
	m := &guard.Message{Request: w.view, Binary: op == wswire.Binary, Data: data}
	if v := w.decide(m, n); !v.Allowed() {
		return &refusal{v}
	}
	if w.stopping.Load() {
		return errStopped
	}
	if err := w.pays(quota.EgressBytes, len(data)); err != nil {
		return err
	}
	w.server.begin(op, compressed)
	return w.server.piece(data, true)
}

// octets is what those of one end count as.
func (w *webSocket) octets(from *wsEnd) quota.What {
	if from == &w.agent {
		return quota.EgressBytes
	}
	return quota.IngressBytes
}

// leastFrame is the length of the head of a frame, at least (RFC 6455 section 5.2).
const leastFrame = 2

// pays counts what a message has, before it goes on.
func (w *webSocket) pays(what quota.What, n int) error {
	if v := w.x.pass.Take(what, int64(n), w.x.c.s.cfg.Now); !v.Allowed() {
		return &refusal{v}
	}
	return nil
}

// ask asks the guards about a message, when its turn has come.
func (w *webSocket) ask(m *guard.Message) verdict.Verdict {
	t := w.x.c.t
	if !t.judge(w.x.ctx) {
		return w.x.cutVerdict("message", codes.PolicyDenied, "")
	}
	defer t.judged()
	return w.x.d.Guards.Message(m)
}

// decide judges a message by the policy in force and puts it on record. A policy
// that has changed is asked whether the WebSocket may stand at all.
func (w *webSocket) decide(m *guard.Message, n int64) verdict.Verdict {
	x := w.x
	for range revisions {
		p, revision, v := x.c.s.cfg.Policies.Current()
		if !v.Allowed() {
			return w.cut("lease", v)
		}
		if revision != x.rec.Revision {
			st := x.flow.standing()
			if v := x.c.s.still(p.Agent(x.c.src.Identity.Agent), &st, x.c.s.cfg.Now()); !v.Allowed() {
				return w.cut(whyCut(v), v)
			}
			x.rec.Revision = revision
		}
		v = w.ask(m)
		if err := w.record(v, n); err != nil && v.Allowed() {
			return verdict.Refuse("journal", audit.CodeOf(err), err.Error())
		}
		if !v.Allowed() {
			return v
		}
		_, now, v := x.c.s.cfg.Policies.Current()
		switch {
		case !v.Allowed():
			return w.cut("lease", v)
		case now == revision:
			return allowed
		}
	}
	return verdict.Refuse("journal", codes.LeaseLapsed, "the policy changed again and again")
}

// cut ends the flow as the sweep would.
func (w *webSocket) cut(why string, v verdict.Verdict) verdict.Verdict {
	w.x.flow.cut(cut{code: v.Why(), why: why, detail: v.Detail})
	return v
}

// record puts the decision on a message on record. It is under the request that
// opened the WebSocket, by whose rule it is allowed.
func (w *webSocket) record(v verdict.Verdict, n int64) error {
	r := w.x.rec
	r.Time, r.Message, r.Proto = w.x.c.s.cfg.Now(), n, "websocket"
	r.Verdict, r.Code, r.Stage, r.Detail = v.Effect, v.Why(), v.Stage, v.Detail
	err := w.x.c.s.cfg.Recorder.Decide(&r)
	if err != nil && !errors.Is(err, audit.ErrQuota) {
		w.x.c.s.cfg.Log.Error("decision cannot be put on record", "agent", r.Agent, "request", r.Request, "error", err)
	}
	return err
}
