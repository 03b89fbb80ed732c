// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Child is one running session. Whoever started it calls Close at its end.
type Child struct {
	// Master is the terminal's controlling side, for a Spec with TTY.
	Master *os.File
	// Stdin, Stdout and Stderr are the far ends of the pipes otherwise.
	Stdin, Stdout, Stderr *os.File

	spec    Spec
	control *os.File // this side of the control socket
	process *os.Process
	ready   chan hello    // the first word of process 1
	heard   chan struct{} // closed when process 1 says no more
	last    note          // its last word, once heard is closed
	done    chan struct{}
	exit    Exit // once done is closed
	close   func() error
}

// hello is the first word of process 1, with the terminal's descriptor or -1.
type hello struct {
	note
	file int
}

// An Exit says how a session ended.
type Exit struct {
	Status int    // the command's status, 128+n when signal n killed it
	Fault  string // set when the command never ran: what Bawn could not do
}

// Start runs spec in the network namespace netns (nil: the caller's own, for
// the uid placement) and in the cgroups of group (nil: the caller's own). It
// returns once the view stands and the program is about to be started; what
// fails later is the Fault of [Child.Wait]. ctx bounds the start alone. The
// descriptors in spec stay the caller's.
func Start(ctx context.Context, spec Spec, netns *os.File, group *Cgroup) (*Child, error) {
	err := spec.check()
	var c *Child
	if err == nil {
		c, err = start(ctx, spec, netns, group)
	}
	if err != nil {
		return nil, fmt.Errorf("starting agent %s: %w", spec.Agent, err)
	}
	return c, nil
}

func start(ctx context.Context, spec Spec, netns *os.File, group *Cgroup) (_ *Child, err error) {
	if spec.State, err = filepath.EvalSymlinks(spec.State); err != nil {
		return nil, fmt.Errorf("finding the state directory: %w", err)
	}
	if err := makeTemp(&spec); err != nil {
		return nil, err
	}
	l := launch{spec: &spec, netns: netns}
	defer l.closeInner()
	if err := l.prepare(); err != nil {
		return nil, errors.Join(err, l.closeOuter(), removeTemp(&spec))
	}
	c := &Child{
		spec: spec, control: l.control[0], Stdin: l.outer[0], Stdout: l.outer[1], Stderr: l.outer[2],
		ready: make(chan hello, 1), heard: make(chan struct{}), done: make(chan struct{}),
	}
	c.close = sync.OnceValue(c.finish)
	started := make(chan error)
	go c.live(&l, started)
	if err := <-started; err != nil {
		return nil, errors.Join(err, l.closeOuter(), removeTemp(&spec))
	}
	l.closeInner() // so that the end of process 1 ends the control socket
	go c.listen()
	if err := c.stand(ctx, group); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// live is the session's thread. The kernel ties the end of process 1 to the end
// of the thread that cloned it, so that thread waits here until then. It is
// never unlocked: it stands in the agent's network namespace, and ends with
// this goroutine.
func (c *Child) live(l *launch, started chan<- error) {
	runtime.LockOSThread()
	if l.netns != nil {
		if err := unix.Setns(int(l.netns.Fd()), unix.CLONE_NEWNET); err != nil {
			started <- fmt.Errorf("entering the agent's network namespace: %w", err)
			return
		}
	}
	p, err := l.clone()
	if err != nil {
		started <- fmt.Errorf("making the agent's namespaces: %w", err)
		return
	}
	c.process = p
	started <- nil
	state, err := p.Wait()
	<-c.heard
	c.exit = c.howEnded(state, err)
	close(c.done)
}

// howEnded puts together what process 1 said and how it ended.
func (c *Child) howEnded(state *os.ProcessState, err error) Exit {
	switch {
	case c.last.Fault != "":
		return Exit{Status: c.last.Status, Fault: c.last.Fault}
	case c.last.Exit:
		return Exit{Status: c.last.Status}
	case err != nil:
		return Exit{Status: StatusFault, Fault: fmt.Sprintf("waiting for process 1 of the agent: %v", err)}
	}
	// It was killed: by Close, by its cgroup's end, for want of memory.
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return Exit{Status: statusSignalBase + int(ws.Signal())}
	}
	return Exit{Status: StatusFault, Fault: "process 1 of the agent ended without a word"}
}

// listen takes the words of process 1 until it says no more.
func (c *Child) listen() {
	defer close(c.heard)
	for first := true; ; first = false {
		n, file, err := receive(int(c.control.Fd()))
		if err != nil {
			return
		}
		c.last = n
		if first {
			c.ready <- hello{n, file}
		} else if file >= 0 {
			unix.Close(file)
		}
	}
}

// stand waits until process 1 has built the view and taken the agent's account.
func (c *Child) stand(ctx context.Context, group *Cgroup) error {
	stop := context.AfterFunc(ctx, func() { c.Kill() })
	defer stop()
	if group != nil {
		if err := group.Add(c.process.Pid); err != nil {
			return err
		}
	}
	if err := send(int(c.control.Fd()), note{Go: true}); err != nil {
		return fmt.Errorf("telling process 1 of the agent to go on: %w", err)
	}
	var h hello
	select {
	case h = <-c.ready:
	case <-c.heard:
		select { // both at once: the word counts
		case h = <-c.ready:
		default:
			return errors.Join(errors.New("process 1 of the agent ended while it was starting"), context.Cause(ctx))
		}
	}
	if h.file >= 0 {
		c.Master = os.NewFile(uintptr(h.file), "terminal of "+c.spec.Agent)
	}
	switch {
	case h.Fault != "":
		return errors.New(h.Fault)
	case !h.Ready || (h.file >= 0) != c.spec.TTY:
		return errors.New("process 1 of the agent said something else than ready")
	}
	return nil
}

// PID is the session's process 1 as this process sees it.
func (c *Child) PID() int { return c.process.Pid }

// Signal passes sig to the command's process group; SIGKILL ends the session.
// After the session's end it does nothing.
func (c *Child) Signal(sig syscall.Signal) error {
	select {
	case <-c.done:
		return nil
	default:
	}
	if sig == syscall.SIGKILL {
		return c.Kill()
	}
	// Close may come at the same moment: the number is good only while held.
	raw, err := c.control.SyscallConn()
	if err == nil {
		var sent error
		err = raw.Control(func(fd uintptr) { sent = send(int(fd), note{Signal: int(sig)}) })
		err = errors.Join(err, sent)
	}
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// Kill ends the session and every process in it.
func (c *Child) Kill() error {
	if err := c.process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("killing agent %s: %w", c.spec.Agent, err)
	}
	return nil
}

// Done is closed when the session has ended and no process of it is left.
func (c *Child) Done() <-chan struct{} { return c.done }

// Wait blocks until Done is closed and tells how the session ended. It may be
// called more than once.
func (c *Child) Wait() Exit {
	<-c.done
	return c.exit
}

// Close kills what still runs, waits for the end, closes the descriptors and
// removes the session's temporary directory. It may be called more than once.
func (c *Child) Close() error { return c.close() }

func (c *Child) finish() error {
	err := c.Kill()
	<-c.done
	for _, f := range []*os.File{c.Master, c.Stdin, c.Stdout, c.Stderr, c.control} {
		if f != nil {
			f.Close() // the caller may have closed it before
		}
	}
	return errors.Join(err, removeTemp(&c.spec))
}
