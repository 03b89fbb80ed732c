// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"net"

	"bawn/internal/codes"
	"bawn/internal/guard"
	"bawn/internal/policy"
	"bawn/internal/tlshello"
	"bawn/internal/verdict"
)

// splice carries the bytes of a connection unread, once its name is on record.
// first is what the client has sent and was read already.
func (c *conn) splice(d policy.Decision, proto string, first []byte, sni string) {
	x := &c.x
	x.begin()
	keep := false
	defer x.rescue(&keep)
	x.host, x.port, x.d = c.host, c.port, d
	x.rec.Proto, x.rec.SNI, x.rec.Inspect = proto, sni, d.Inspect.String()
	opened := c.arrival != guard.ArrivalConnect || proto == "tls"
	x.mute = opened
	if !opened {
		x.q.Close = true // there is nothing to go on with after a refusal
	}
	if v := x.decideSplice(d.Inspect); !v.Allowed() {
		x.deny(v)
		return
	}
	up, to, v := x.reach()
	if !v.Allowed() {
		x.deny(v)
		return
	}
	kept := false
	defer func() {
		if !kept {
			up.Close()
		}
	}()
	c.flow.begins()
	c.flow.await(phaseSplice)
	c.flow.tunnels(socketOf(c.raw), socketOf(up))
	if !c.flow.join(resetter{up}, x.vetted(to)) {
		x.deny(x.cutVerdict("upstream", codes.PolicyDenied, ""))
		return
	}
	if !opened {
		if _, err := c.raw.Write([]byte(connected)); err != nil {
			x.finish()
			return
		}
	}
	x.answered = true
	buffered, _ := c.r.Peek(c.r.Buffered())
	first = append(first, buffered...)
	c.giveReader()
	kept, c.rest = true, func() { x.pump(up, first) }
}

// decideSplice judges the name once more, and puts it on record.
func (x *exchange) decideSplice(inspect policy.Inspect) verdict.Verdict {
	c := x.c
	for range revisions {
		d, revision := c.judgeName(x.host, x.port)
		x.rec.Revision = revision
		switch {
		case !d.Verdict.Allowed():
			return d.Verdict
		case d.Inspect < inspect:
			return verdict.Refuse("name", codes.PolicyDenied, "the connection has to be inspected now")
		}
		x.d = d
		p, _, held := c.s.cfg.Policies.Current()
		if !held.Allowed() {
			return held
		}
		if v := x.spend(p.Agent(c.src.Identity.Agent)); !v.Allowed() {
			return v
		}
		c.flow.stands(stand{host: x.host, port: x.port, inspect: inspect, pass: x.pass})
		if v, again := x.commit(revision); !again {
			return v
		}
	}
	return verdict.Refuse("journal", codes.LeaseLapsed, "the policy changed again and again")
}

// pump copies both ways until both have ended, and closes the record.
func (x *exchange) pump(up net.Conn, first []byte) {
	keep := false
	defer x.rescue(&keep)
	defer up.Close()
	c := x.c
	var g *greetings
	if x.rec.Proto == "tls" {
		g = &greetings{judge: func(h tlshello.Hello) verdict.Verdict { return c.checkHello(x.d, h) }}
	}
	down := make(chan int64)
	go func() {
		var n int64
		defer func() {
			if p := recover(); p != nil {
				c.panicked(p)
				c.flow.cut(cut{code: codes.InternalError, detail: "panic"})
			}
			down <- n
		}()
		n, err := g.down(x, c.raw, up)
		endHalf(c.raw, up, err)
	}()
	sent, err := g.up(x, up, first)
	endHalf(up, c.raw, err)
	x.out.BytesUp, x.out.BytesDown = sent, <-down
	if v := x.cutVerdict("upstream", "", ""); x.flow.wasCut() != nil {
		x.out.Code, x.out.Error = v.Code, v.Detail
	}
	x.finish()
}

// endHalf passes the end of one direction on. After a failure there is nothing
// left to say in the other direction either, and neither end may take what it
// got for the whole.
func endHalf(to, from net.Conn, err error) {
	half, ok := to.(interface{ CloseWrite() error })
	if err == nil && ok && half.CloseWrite() == nil {
		return
	}
	reset(to)
	reset(from)
}
