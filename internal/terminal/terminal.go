// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package terminal joins an operator's terminal, or pipes, with a session.
//
// The operator's own descriptors never reach the agent: it has a terminal or
// pipes of its own, and this package copies. What the agent prints is filtered
// before it reaches a terminal (I14); a file or a pipe gets the bytes as they
// are.
package terminal

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"bawn/internal/apitype"
	"bawn/internal/client"
	"bawn/internal/termfilter"
)

// Streams are the operator's ends.
type Streams struct{ In, Out, Err *os.File }

// Interactive reports whether the session should have a terminal of its own.
func (s Streams) Interactive() bool {
	return term.IsTerminal(int(s.In.Fd())) && term.IsTerminal(int(s.Out.Fd()))
}

// Size returns the terminal's rows and columns, or 24 by 80.
func (s Streams) Size() (rows, cols uint16) {
	w, err := unix.IoctlGetWinsize(int(s.Out.Fd()), unix.TIOCGWINSZ)
	if err != nil || w.Row == 0 || w.Col == 0 {
		return 24, 80
	}
	return w.Row, w.Col
}

// Attach copies until the session has ended and everything that it printed has
// been shown, and returns how it ended. When ctx is done the session is asked
// to end, then ended.
func Attach(ctx context.Context, s *client.Session, std Streams, tty bool) apitype.Exit {
	if tty {
		return attachTTY(ctx, s, std)
	}
	return attachPipes(ctx, s, std)
}

func attachTTY(ctx context.Context, s *client.Session, std Streams) apitype.Exit {
	master := s.Files[0]
	old, err := term.MakeRaw(int(std.In.Fd()))
	if err == nil {
		defer restore(std, old)
	}
	stop := followSize(std, master)
	defer stop()
	go copyInput(master, std.In, nil)
	out := &sync.WaitGroup{}
	show := termfilter.NewWriter(std.Out)
	out.Go(func() {
		io.Copy(show, master) // ends with EIO when the last agent's end is closed
		show.Close()          // undoes what a program that was killed left on
	})
	exit := waitExit(ctx, s, forwarded)
	waitOutput(out, master)
	return exit
}

func attachPipes(ctx context.Context, s *client.Session, std Streams) apitype.Exit {
	stdin, stdout, stderr := s.Files[0], s.Files[1], s.Files[2]
	go copyInput(stdin, std.In, stdin)
	out := &sync.WaitGroup{}
	one := &sync.Mutex{} // a sequence of one stream must not be completed by the other
	lost := make(chan error, 2)
	out.Go(func() { lost <- show(std.Out, one, stdout) })
	out.Go(func() { lost <- show(std.Err, one, stderr) })
	exit := waitExit(ctx, s, forwarded)
	waitOutput(out, stdout, stderr)
	for range 2 {
		select {
		case err := <-lost:
			exit = withLost(exit, err)
		default: // it still waits for something outside the session
		}
	}
	return exit
}

// withLost adds to an exit that output was lost: silence would look as if all
// had been written.
func withLost(exit apitype.Exit, err error) apitype.Exit {
	e, ok := errors.AsType[*fs.PathError](err)
	if !ok || e.Op != "write" || exit.Fault != "" {
		return exit
	}
	exit.Fault = "output of the program was lost: " + err.Error()
	if exit.Status == 0 {
		exit.Status = statusLost
	}
	return exit
}

// statusLost is the exit status where all was well but that output was lost.
const statusLost = 125

// show copies to f, through the filter if f is a terminal. The filter writes
// whole sequences, each under turn. When f takes no more, from is closed, so
// that the program hears of it.
func show(f *os.File, turn sync.Locker, from io.ReadCloser) error {
	if !term.IsTerminal(int(f.Fd())) {
		_, err := io.Copy(f, from)
		from.Close()
		return err
	}
	w := termfilter.NewPlainWriter(inTurn{f, turn})
	_, err := io.Copy(w, from)
	from.Close()
	return errors.Join(err, w.Close())
}

// inTurn writes under a lock.
type inTurn struct {
	io.Writer
	turn sync.Locker
}

func (w inTurn) Write(p []byte) (int, error) {
	w.turn.Lock()
	defer w.turn.Unlock()
	return w.Writer.Write(p)
}

// copyInput passes the operator's input on and then closes closing. It may stay
// blocked in a read for as long as the process lives.
func copyInput(to io.Writer, from io.Reader, closing io.Closer) {
	io.Copy(to, from)
	if closing != nil {
		closing.Close()
	}
}

// drainTime is how long output may still come after the session's end.
const drainTime = 2 * time.Second

// waitOutput waits for the copies to end; descriptors that something outside
// the session still holds open do not keep them.
func waitOutput(out *sync.WaitGroup, files ...*os.File) {
	done := make(chan struct{})
	go func() { out.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(drainTime):
		for _, f := range files {
			f.Close()
		}
	}
}

// forwarded are the signals that belong to the program. A terminal in raw mode
// sends SIGINT and SIGQUIT as keys, through the agent's own terminal.
var forwarded = []os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2}

// killAfter is what a program has between SIGTERM and its end, once the
// command itself was told to stop.
const killAfter = 5 * time.Second

func waitExit(ctx context.Context, s *client.Session, forward []os.Signal) apitype.Exit {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, forward...)
	defer signal.Stop(signals)
	done := ctx.Done()
	for {
		select {
		case exit := <-s.Exit():
			return exit
		case sig := <-signals:
			s.Signal(unix.SignalName(sig.(syscall.Signal)))
		case <-done:
			done = nil
			s.Signal("SIGTERM")
			time.AfterFunc(killAfter, func() { s.Close() })
		}
	}
}

// followSize gives the session's terminal the size of the operator's, now and
// at each change.
func followSize(std Streams, master *os.File) (stop func()) {
	changes := make(chan os.Signal, 1)
	signal.Notify(changes, syscall.SIGWINCH)
	changes <- syscall.SIGWINCH
	go func() {
		for range changes {
			w, err := unix.IoctlGetWinsize(int(std.Out.Fd()), unix.TIOCGWINSZ)
			if err == nil && w.Row > 0 && w.Col > 0 { // a size that nobody has set is none
				unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, w)
			}
		}
	}()
	return func() { signal.Stop(changes); close(changes) }
}

// restore gives the terminal back as it was.
func restore(std Streams, old *term.State) {
	// Answers to questions that the agent put to the terminal must not become
	// input of the operator's shell.
	unix.IoctlSetInt(int(std.In.Fd()), unix.TCFLSH, unix.TCIFLUSH)
	term.Restore(int(std.In.Fd()), old)
}

// ErrPort is what [Publication.Listen] returns for a port of the operator that
// cannot be listened on.
var ErrPort = errors.New("the port of 127.0.0.1 cannot be listened on")
