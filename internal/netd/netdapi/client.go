// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netdapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"

	"bawn/internal/doctor"
)

// ErrClosed is what pending and later calls return once the connection to netd
// is gone. Dial again; netd keeps its sessions for as long as it lives.
var ErrClosed = errors.New("the connection to netd is closed")

// A Client is admin's end of netd.sock.
type Client struct {
	conn *Conn

	mu      sync.Mutex
	next    uint64
	pending map[uint64]chan reply
	err     error

	exits *queue
	done  chan struct{}
}

type reply struct {
	Message
	files []*os.File
}

// Dial connects to netd. If onExit is not nil it is called, from one goroutine
// and in order, for each session that ends, beginning with those whose end
// nobody has seen yet.
func Dial(ctx context.Context, path string, onExit func(Exit)) (*Client, error) {
	conn, err := dial(ctx, path)
	if err != nil {
		return nil, err
	}
	c := &Client{conn: conn, pending: map[uint64]chan reply{}, exits: newQueue(), done: make(chan struct{})}
	go c.read()
	if onExit == nil {
		c.exits.close()
		return c, nil
	}
	go c.exits.run(onExit)
	if err := c.call(ctx, VerbWatch, nil, nil); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func dial(ctx context.Context, path string) (*Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unixpacket", path)
	if err != nil {
		return nil, fmt.Errorf("connecting to netd: %w", err)
	}
	return NewConn(c.(*net.UnixConn)), nil
}

// Close ends the connection. Sessions go on.
func (c *Client) Close() error { return c.conn.Close() }

// Done is closed once the connection is gone, whoever ended it.
func (c *Client) Done() <-chan struct{} { return c.done }

// Status asks what netd holds.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	err := c.call(ctx, VerbStatus, nil, &s)
	return s, err
}

// CreateAccount makes the agent's Linux account and directories.
func (c *Client) CreateAccount(ctx context.Context, agent string, uid uint32) error {
	return c.call(ctx, VerbAccountCreate, Account{agent, uid}, nil)
}

// RemoveAccount removes the agent's Linux account and everything it owned
// under Bawn's directories.
func (c *Client) RemoveAccount(ctx context.Context, agent string, uid uint32) error {
	return c.call(ctx, VerbAccountRemove, Account{agent, uid}, nil)
}

// Start runs a session. It returns the terminal's master, or the three pipes
// (stdin, stdout, stderr); they are the caller's to close. The files that go
// along stay the caller's too.
func (c *Client) Start(ctx context.Context, spec StartSpec, files []*os.File) ([]*os.File, error) {
	got, err := c.callFiles(ctx, VerbStart, spec, files, &Started{})
	if err != nil {
		return nil, err
	}
	want := 3
	if spec.TTY {
		want = 1
	}
	if len(got) != want {
		CloseAll(got)
		return nil, fmt.Errorf("starting session %s: %d descriptors came back, not %d", spec.Identity.Session, len(got), want)
	}
	return got, nil
}

// Signal sends a signal to the session's program.
func (c *Client) Signal(ctx context.Context, session string, signal syscall.Signal) error {
	return c.call(ctx, VerbSignal, SignalArgs{session, int(signal)}, nil)
}

// Stop kills everything in the session. The exit event follows.
func (c *Client) Stop(ctx context.Context, session string) error {
	return c.call(ctx, VerbStop, SessionRef{session}, nil)
}

// DialSession connects to a port on the session's own loopback.
func (c *Client) DialSession(ctx context.Context, session string, port uint16) (*os.File, error) {
	files, err := c.callFiles(ctx, VerbDial, DialArgs{session, port}, nil, nil)
	if err != nil {
		return nil, err
	}
	if len(files) != 1 {
		CloseAll(files)
		return nil, fmt.Errorf("dialling port %d of session %s: %d descriptors came back, not 1", port, session, len(files))
	}
	return files[0], nil
}

// Counters reads the counters of the session's network place.
func (c *Client) Counters(ctx context.Context, session string) (Counters, error) {
	var counters Counters
	err := c.call(ctx, VerbCounters, SessionRef{session}, &counters)
	return counters, err
}

// Reach bounds what the proxy may connect to; the last call counts.
func (c *Client) Reach(ctx context.Context, r Reach) error {
	return c.call(ctx, VerbReach, r, nil)
}

// Lures opens listeners of the host for the self-test to find. They stand until
// the files, which are the caller's, are closed.
func (c *Client) Lures(ctx context.Context) (Lures, []*os.File, error) {
	var l Lures
	files, err := c.callFiles(ctx, VerbLures, nil, nil, &l)
	return l, files, err
}

// Examine has netd look at the host. It changes nothing.
func (c *Client) Examine(ctx context.Context) ([]doctor.Finding, error) {
	var e Examined
	err := c.call(ctx, VerbExamine, nil, &e)
	return e.Findings, err
}

func (c *Client) call(ctx context.Context, verb Verb, args, result any) error {
	files, err := c.callFiles(ctx, verb, args, nil, result)
	CloseAll(files)
	return err
}

// callFiles sends one request and waits for its reply.
func (c *Client) callFiles(ctx context.Context, verb Verb, args any, files []*os.File, result any) ([]*os.File, error) {
	id, answer, err := c.register()
	if err != nil {
		return nil, fmt.Errorf("asking netd to %s: %w", verb, err)
	}
	defer c.forget(id)
	request := Request{ID: id, Verb: verb}
	if args != nil {
		if request.Args, err = json.Marshal(args); err != nil {
			return nil, fmt.Errorf("asking netd to %s: %w", verb, err)
		}
	}
	if err := c.conn.Send(request, files...); err != nil {
		return nil, fmt.Errorf("asking netd to %s: %w", verb, err)
	}
	select {
	case r := <-answer:
		return r.open(result)
	case <-c.done:
		return nil, fmt.Errorf("asking netd to %s: %w", verb, c.cause())
	case <-ctx.Done():
		return nil, fmt.Errorf("asking netd to %s: %w", verb, context.Cause(ctx))
	}
}

// open unpacks the reply. A refusal comes back as the *Error that netd sent.
func (r reply) open(result any) ([]*os.File, error) {
	if r.Error != nil {
		CloseAll(r.files)
		return nil, r.Error
	}
	if result != nil {
		if err := Decode(r.Result, result); err != nil {
			CloseAll(r.files)
			return nil, err
		}
	}
	return r.files, nil
}

func (c *Client) register() (uint64, chan reply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, nil, c.err
	}
	c.next++
	answer := make(chan reply, 1)
	c.pending[c.next] = answer
	return c.next, answer, nil
}

// forget drops a request; descriptors of an answer that came too late are
// closed.
func (c *Client) forget(id uint64) {
	c.mu.Lock()
	answer := c.pending[id]
	delete(c.pending, id)
	c.mu.Unlock()
	if answer == nil {
		return
	}
	select {
	case r := <-answer:
		CloseAll(r.files)
	default:
	}
}

func (c *Client) cause() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// read takes packets until the connection ends.
func (c *Client) read() {
	defer close(c.done)
	for {
		var m Message
		files, err := c.conn.Receive(&m)
		if err != nil {
			c.mu.Lock()
			c.err = fmt.Errorf("%w: %v", ErrClosed, err)
			c.mu.Unlock()
			c.exits.close()
			c.conn.Close()
			return
		}
		c.dispatch(m, files)
	}
}

func (c *Client) dispatch(m Message, files []*os.File) {
	if m.Event == EventExit {
		CloseAll(files)
		var e Exit
		if Decode(m.Body, &e) == nil {
			c.exits.push(e)
		}
		return
	}
	c.mu.Lock()
	answer := c.pending[m.ID]
	if answer != nil {
		// Handed over under the lock, so that forget sees it or it sees forget.
		select {
		case answer <- reply{m, files}:
			files = nil
		default:
		}
	}
	c.mu.Unlock()
	CloseAll(files)
}

// A queue hands exits to a callback that may be slow, without holding up the
// replies behind them. It is bounded by the number of sessions.
type queue struct {
	mu     sync.Mutex
	wake   *sync.Cond
	items  []Exit
	closed bool
}

func newQueue() *queue {
	q := &queue{}
	q.wake = sync.NewCond(&q.mu)
	return q
}

func (q *queue) push(e Exit) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.items = append(q.items, e)
		q.wake.Signal()
	}
}

// close lets run end once what is queued has been handed over.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.wake.Broadcast()
}

func (q *queue) run(each func(Exit)) {
	for {
		q.mu.Lock()
		for len(q.items) == 0 && !q.closed {
			q.wake.Wait()
		}
		if len(q.items) == 0 {
			q.mu.Unlock()
			return
		}
		e := q.items[0]
		q.items = q.items[1:]
		q.mu.Unlock()
		each(e)
	}
}
