// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"errors"
	"io"
	"net"
	"sync"

	"bawn/internal/tlshello"
	"bawn/internal/verdict"
)

// greetings follows a spliced TLS connection until the client can greet no more
// in the clear. A server that answers with a HelloRetryRequest is greeted a
// second time, and some go by the name in the second greeting: so that is
// judged as the first was, before any of it goes on.
type greetings struct {
	judge func(tlshello.Hello) verdict.Verdict

	mu     sync.Mutex
	server tlshello.Answering
	client tlshello.Following
	over   bool
}

// answered takes what the server says next, before the client hears it, and
// reports whether its kind of answer is known.
func (g *greetings) answered(b []byte) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch g.server.Feed(b) {
	case tlshello.Unanswered:
		return false
	case tlshello.Retry:
		return true // the client's side goes on until it has greeted again
	}
	g.over = true
	return true
}

// greeted takes what the client says next, and gives what may go on and whether
// anything is still to be judged.
func (g *greetings) greeted(b []byte) (pass []byte, over bool, v verdict.Verdict) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over {
		return append(g.client.Held(), b...), true, allowed
	}
	pass, hello, found, err := g.client.Feed(b)
	switch {
	case err != nil:
		return pass, true, malformedGreeting(err)
	case !found:
		return pass, false, allowed
	}
	if v = g.judge(hello); v.Allowed() {
		g.over = true
		pass = append(pass, g.client.Held()...)
	}
	return pass, true, v
}

// down carries what the server says. Where nothing is in TLS, g is nil.
func (g *greetings) down(x *exchange, to, from net.Conn) (n int64, err error) {
	pay := func(n int) error { return x.unpaid(x.comesDown(n)) }
	for known := g == nil; !known; {
		var got []byte
		got, err = readSome(from)
		known = g.answered(got)
		if err = write(to, got, &n, pay, err); err != nil {
			return n, notEOF(err)
		}
	}
	more, err := x.c.s.carry(to, from, pay)
	return n + more, err
}

// up carries what the client says, of which first has been read. A refusal cuts
// the connection.
func (g *greetings) up(x *exchange, to net.Conn, first []byte) (n int64, err error) {
	pay := func(n int) error { return x.unpaid(x.goesUp(n)) }
	if g == nil {
		err = write(to, first, &n, pay, nil)
	} else {
		err = g.upGreetings(x, to, first, &n, pay)
	}
	if err != nil {
		return n, notEOF(err)
	}
	more, err := x.c.s.carry(to, x.c.raw, pay)
	return n + more, err
}

func (g *greetings) upGreetings(x *exchange, to net.Conn, first []byte, n *int64, pay func(int) error) error {
	var judged tlshello.Reader
	_, _, _ = judged.Feed(first) // complete and good: this is its second reading
	got := first[judged.Size():]
	err := write(to, first[:judged.Size()], n, pay, nil)
	for over := false; !over && err == nil; {
		var pass []byte
		var v verdict.Verdict
		if len(got) == 0 {
			got, err = readSome(x.c.raw)
		}
		pass, over, v = g.greeted(got)
		got = nil
		err = write(to, pass, n, pay, err)
		if !v.Allowed() {
			x.flow.cut(cut{code: v.Code, why: "policy", detail: v.Detail})
			return errors.New(v.Detail)
		}
	}
	return err
}

// readSome reads once.
func readSome(from net.Conn) ([]byte, error) {
	buf := make([]byte, 2048)
	n, err := from.Read(buf)
	return buf[:n], err
}

// write sends what was read, once it is paid for, and adds its length to n; err is
// that of reading.
func write(to net.Conn, b []byte, n *int64, pay func(int) error, err error) error {
	if unpaid := pay(len(b)); unpaid != nil {
		return unpaid
	}
	wrote, failed := to.Write(b)
	*n += int64(wrote)
	return errors.Join(err, failed)
}

func notEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
