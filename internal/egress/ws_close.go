// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"errors"
	"io"

	"bawn/internal/codes"
	"bawn/internal/verdict"
	"bawn/internal/wswire"
)

// statusBadGateway tells an agent that its server broke the protocol (IANA's
// registry of close codes).
const statusBadGateway wswire.Status = 1014

// awaitMessage says that one end is listened to. Once the ends say goodbye to
// each other nothing puts that off.
func (w *webSocket) awaitMessage() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closing {
		w.x.flow.await(phaseMessages)
	}
}

// beginClosing says that one end has closed, or is gone: the other has a little
// time to do so too.
func (w *webSocket) beginClosing(s wswire.Status) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closing {
		w.closing, w.status = true, s
		w.x.flow.await(phaseClosing)
	}
}

// refuse keeps why Bawn ends the WebSocket. The first reason stays.
func (w *webSocket) refuse(v verdict.Verdict) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.v.Allowed() {
		w.v = v
	}
}

// ended settles what the end of one direction means for both ends.
func (w *webSocket) ended(from, to *wsEnd, err error) {
	closed, bye := errors.AsType[*wswire.Closed](err)
	broken, violated := errors.AsType[*wswire.Error](err)
	refused, denied := errors.AsType[*refusal](err)
	_, unwritten := errors.AsType[*writeError](err)
	switch {
	case w.x.flow.wasCut() != nil:
		w.shutByCut()
	case errors.Is(err, errStopped): // whoever stopped it has said why
	case bye:
		w.passClose(from, to, closed)
	case denied:
		w.refuse(refused.v)
		w.shut(wswire.StatusPolicy, string(refused.v.Why()), wswire.StatusGoingAway)
	case violated && from == &w.agent:
		w.refuse(verdict.Refuse("message", broken.Code, broken.Detail))
		w.shut(broken.Status, string(broken.Code), wswire.StatusGoingAway)
	case violated:
		w.refuse(verdict.Refuse("upstream", codes.UpstreamUnreachable, "the server's stream: "+broken.Detail))
		w.shut(statusBadGateway, string(codes.UpstreamUnreachable), broken.Status)
	case unwritten:
		// The other end is gone, or was told goodbye. What it had to say
		// before is still on its way in the other direction.
		w.beginClosing(wswire.StatusAbnormal)
	default:
		w.vanished(from, err)
	}
}

// passClose passes a close frame on. A reason that an agent gives is text that
// no guard has judged: where guards judge, the status goes on alone.
func (w *webSocket) passClose(from, to *wsEnd, c *wswire.Closed) {
	reason := c.Reason
	if from == &w.agent && w.view != nil {
		reason = ""
	}
	if v := w.x.pass.Take(w.octets(from), int64(leastFrame+len(reason)), w.x.c.s.cfg.Now); !v.Allowed() {
		w.refuse(v)
		w.shut(wswire.StatusPolicy, string(v.Why()), wswire.StatusGoingAway)
		return
	}
	w.beginClosing(c.Status)
	to.close(c.Status, reason) //nolint:errcheck // who is gone needs no goodbye
}

// vanished ends both directions when one end is gone without a close frame: the
// other shall not hear one either.
func (w *webSocket) vanished(from *wsEnd, err error) {
	w.mu.Lock()
	if !w.closing && w.lost == "" {
		who := "the server"
		if from == &w.agent {
			who = "the agent"
		}
		w.lost = who + " ended the connection without a close frame"
		if !errors.Is(err, io.EOF) {
			w.lost += ": " + err.Error()
		}
	}
	w.mu.Unlock()
	w.beginClosing(wswire.StatusAbnormal)
	w.over.Do(w.wake)
}

// shut ends both directions with a close frame for each end.
func (w *webSocket) shut(agent wswire.Status, reason string, server wswire.Status) {
	w.beginClosing(agent)
	w.over.Do(func() {
		w.wake()
		w.agent.close(agent, reason) //nolint:errcheck // who is gone needs no goodbye
		w.server.close(server, "")   //nolint:errcheck // likewise
	})
}

// shutByCut ends both directions for the reason that the flow was cut for.
func (w *webSocket) shutByCut() {
	why := w.x.flow.wasCut()
	if why.code == "" { // a limit, the session's end, or the agent's
		w.shut(wswire.StatusGoingAway, why.why, wswire.StatusGoingAway)
		return
	}
	w.shut(wswire.StatusPolicy, string(why.code), wswire.StatusGoingAway)
}

// settle puts together what is on record about the end.
func (w *webSocket) settle() {
	o := &w.x.out
	o.BytesUp += w.server.sent.Load()
	o.BytesDown += w.agent.sent.Load()
	o.MessagesUp, o.MessagesDown = w.messagesUp.Load(), w.messagesDown.Load()
	w.mu.Lock()
	defer w.mu.Unlock()
	o.Close = int(w.status)
	if w.status == 0 {
		o.Close = int(wswire.StatusAbnormal)
	}
	switch {
	case !w.v.Allowed():
		o.Code, o.Error = w.v.Why(), w.v.Detail
	case w.lost != "":
		o.Error = w.lost
	}
	if why := w.x.flow.wasCut(); why != nil {
		o.Code, o.Error, o.Cut = why.code, why.detail, why.why
	}
}

// farewell lets the agent read the close frame before its connection ends.
func (w *webSocket) farewell() {
	w.up.close()
	if why := w.x.flow.wasCut(); why == nil || why.why != cutShutdown && why.why != cutSession {
		w.x.c.linger()
	}
}

// release gives back what the ends hold, and closes the server's.
func (w *webSocket) release() {
	w.agent.free()
	w.server.free()
	w.up.close()
}
