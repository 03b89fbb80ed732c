// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"bawn/internal/httpwire"
)

// An upload carries a body up while the response may already come down. The
// nil upload is one that is through: the body went with the head.
type upload struct {
	x    *exchange
	up   upstreamLeg
	from bodyReader

	proceed chan struct{} // closed when the body may be asked for
	stop    chan struct{} // closed when it must not be any more
	went    sync.Once     // of proceed
	halted  sync.Once     // of stop
	done    chan struct{}
	bytes   atomic.Int64
	err     error // after done; nil: the whole body went up
	fault   error // after done; of the agent's side
}

func newUpload(x *exchange, up upstreamLeg, from bodyReader) *upload {
	u := &upload{
		x: x, up: up, from: from,
		proceed: make(chan struct{}), stop: make(chan struct{}), done: make(chan struct{}),
	}
	if !x.q.Expect {
		u.goOn()
	}
	return u
}

var (
	errNotAsked = errors.New("the response came before the body was asked for")
	errPanic    = errors.New("panic")
)

// run copies the body. If the agent's side fails, the upstream connection is
// closed at once, so that a part of a body is never taken for the whole.
func (u *upload) run() {
	defer close(u.done)
	defer func() { u.from = nil; u.x.kept.release() }() // what a guard has read
	defer func() {
		if p := recover(); p != nil {
			u.x.c.panicked(p)
			u.err = errPanic
			u.up.abort()
		}
	}()
	if !u.asked() {
		u.err = errNotAsked
		return
	}
	u.err = u.copy()
	if u.fault != nil {
		u.up.abort()
	}
}

// asked waits until the agent may send its body: the upstream has said so, or
// has said nothing for a while.
func (u *upload) asked() bool {
	select {
	case <-u.proceed:
		return true
	default:
	}
	timer := time.NewTimer(u.x.c.s.lim.Continue)
	defer timer.Stop()
	select {
	case <-u.proceed:
		return true
	case <-u.stop:
		return false
	case <-timer.C:
	}
	if err := u.x.sendContinue(); err != nil {
		return false
	}
	u.x.interims.Lock()
	defer u.x.interims.Unlock()
	return u.x.continued
}

func (u *upload) copy() error {
	buf := u.x.c.s.copies.Get().(*[]byte)
	defer u.x.c.s.copies.Put(buf)
	for {
		if !u.from.Ready() {
			if err := u.up.flush(); err != nil {
				return err
			}
			u.x.flow.await(phaseBody)
		}
		n, err := u.from.Read(*buf)
		if n > 0 {
			if u.fault = u.x.goesUp(n); u.fault != nil {
				return u.fault
			}
			u.bytes.Add(int64(n))
			if _, err := u.up.write((*buf)[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			u.fault = err
			return err
		}
	}
	u.x.flow.await(phaseResponse)
	trailers := u.x.requestTrailers(u.from)
	if u.fault = u.x.goesUp(headSize(trailers)); u.fault != nil {
		return u.fault
	}
	if err := u.up.end(trailers); err != nil {
		return err
	}
	return u.up.flush()
}

// requestTrailers are those that go up: of gRPC, and of nothing else.
func (x *exchange) requestTrailers(from bodyReader) httpwire.Fields {
	if !x.grpc {
		return nil
	}
	trailers := from.Trailers()
	trailers.DelFunc(stripped)
	return trailers
}

// goOn lets the body be asked for.
func (u *upload) goOn() {
	if u != nil {
		u.went.Do(func() { close(u.proceed) })
	}
}

// tooLate says that the final response is here. A body that was not asked for
// will not be: the agent has to know that its connection ends.
func (u *upload) tooLate(x *exchange) {
	if u == nil {
		return
	}
	if x.q.Expect && !x.continued {
		x.q.Close = true
	}
	u.halt()
}

// halt keeps a body that was not asked for from being asked for.
func (u *upload) halt() { u.halted.Do(func() { close(u.stop) }) }

// settle is how long a response that is through waits for the upload to say
// that it is too; most servers answer when they have read everything.
const settle = 500 * time.Millisecond

// finished reports whether the whole body went up.
func (u *upload) finished() bool {
	if u == nil {
		return true
	}
	timer := time.NewTimer(settle)
	defer timer.Stop()
	select {
	case <-u.done:
		return u.err == nil
	case <-timer.C:
		return false
	}
}

// abandon ends the upload and waits for it. The upstream leg has been aborted;
// the agent's can carry no other request.
func (u *upload) abandon() {
	if u == nil {
		return
	}
	u.halt()
	u.x.leg.stop()
	<-u.done
	u.x.leg.stopped()
}

// sent is how many octets of the body went up.
func (u *upload) sent() int64 {
	if u == nil {
		return 0
	}
	return u.bytes.Load()
}

// agentFault returns what was wrong on the agent's side of an upload that has
// ended, nil if nothing was.
func (u *upload) agentFault() error {
	if u == nil {
		return nil
	}
	select {
	case <-u.done:
		return u.fault
	case <-time.After(settle):
		return nil
	}
}
