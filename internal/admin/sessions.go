// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"bawn/internal/apitype"
	"bawn/internal/audit"
	"bawn/internal/fdpass"
	"bawn/internal/peercred"
	"bawn/internal/session"
)

// session turns the connection into that of one run of an agent.
func (s *Server) session(w http.ResponseWriter, q *http.Request, peer peercred.Peer) error {
	if q.Header.Get("Upgrade") != apitype.SessionProtocol {
		return &apitype.Error{Status: http.StatusUpgradeRequired, Message: "a session needs Upgrade: " + apitype.SessionProtocol, Hint: "client and server may be of different versions"}
	}
	s.runs.Add(1)
	defer s.runs.Done()
	conn, err := hijack(w)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(s.base)
	defer cancel()
	if err := s.runSession(ctx, fdpass.New(conn.UnixConn), peer); err != nil {
		s.o.Log.Warn("a session's connection ended badly", "uid", peer.UID, "error", err)
	}
	return nil
}

// firstFrame is how long a caller may take to say what it wants.
const firstFrame = 10 * time.Second

func hijack(w http.ResponseWriter) (*peercred.Conn, error) {
	c, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, fmt.Errorf("taking over the connection: %w", err)
	}
	conn, ok := c.(*peercred.Conn)
	if !ok || buffered.Reader.Buffered() > 0 {
		c.Close()
		return nil, errors.New("taking over the connection: the caller sent data ahead")
	}
	conn.SetDeadline(time.Time{})
	head := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + apitype.SessionProtocol + "\r\n\r\n"
	if _, err := conn.Write([]byte(head)); err != nil {
		conn.Close()
		return nil, fmt.Errorf("taking over the connection: %w", err)
	}
	conn.SetReadDeadline(time.Now().Add(firstFrame))
	return conn, nil
}

// runSession starts what the first frame asks for and serves the rest.
func (s *Server) runSession(ctx context.Context, conn *fdpass.Conn, peer peercred.Peer) error {
	var first apitype.ClientFrame
	files, err := conn.Receive(&first)
	defer fdpass.CloseAll(files)
	if err != nil {
		return err
	}
	if first.Start == nil {
		return conn.Send(apitype.ServerFrame{Failed: badRequest("the first frame must say what to start")})
	}
	conn.ClearDeadline()
	run, ends, err := s.startSession(ctx, peer, *first.Start, files)
	if err != nil {
		return conn.Send(apitype.ServerFrame{Failed: asAPIError(err)})
	}
	ended := "the caller could not be told that it began"
	defer func() { s.endSession(run, peer, ended) }()
	err = conn.Send(apitype.ServerFrame{Started: &apitype.Started{Identity: run.Identity}}, ends...)
	fdpass.CloseAll(ends)
	if err != nil {
		run.Stop(ctx)
		return err
	}
	ended, err = s.follow(ctx, conn, run)
	return err
}

// startSession starts a session between the two records of that act.
func (s *Server) startSession(ctx context.Context, peer peercred.Peer, start apitype.StartSession, files []*os.File) (*session.Running, []*os.File, error) {
	a := audit.Act{Name: audit.ActSessionStart, Agent: start.Agent, Detail: argvOf(start.Argv)}
	if err := s.begin(&a, peer); err != nil {
		return nil, nil, err
	}
	run, ends, err := s.sessions.Start(ctx, peer, start, files)
	if err == nil {
		a.Object, a.Agent, a.User = run.Session.Session, run.Agent, run.User
	}
	s.end(&a, err)
	return run, ends, err
}

// endSession records the end of a session, and how it came about.
func (s *Server) endSession(run *session.Running, peer peercred.Peer, how string) {
	a := audit.Act{
		Name: audit.ActSessionEnd, UID: peer.UID, PID: peer.PID, Account: accountOf(peer.UID), ID: rand.Text(),
		Object: run.Session.Session, Agent: run.Agent, User: run.User, Detail: how, Result: audit.ActDone,
	}
	a.Revision, a.Policy = s.inForce()
	if err := s.acts.Act(&a); err != nil {
		s.o.Log.Error("the end of a session is not on record yet", "session", a.Object, "error", err)
	}
}

// argvOf gives a command line for the record, without what follows its first
// words: arguments carry secrets.
func argvOf(argv []string) string {
	if len(argv) == 0 {
		return ""
	}
	return fmt.Sprintf("program %q with %d arguments", argv[0], len(argv)-1)
}

func asAPIError(err error) *apitype.Error {
	if e, ok := errors.AsType[*apitype.Error](err); ok {
		return e
	}
	return &apitype.Error{Status: http.StatusInternalServerError, Message: err.Error()}
}

// follow serves the caller's frames until the program has ended. A caller that
// goes away takes the program with it.
func (s *Server) follow(ctx context.Context, conn *fdpass.Conn, run *session.Running) (how string, err error) {
	gone := make(chan error, 1)
	go func() { gone <- s.frames(ctx, conn, run) }()
	select {
	case exit := <-run.Exit():
		return howEnded(exit), conn.Send(apitype.ServerFrame{Exit: &exit})
	case <-gone:
		return "the caller went away, and the program was stopped", s.stop(run)
	case <-ctx.Done():
		err := s.stop(run)
		select {
		case <-run.Exit(): // so that its end is recorded as it was
		case <-time.After(exitTime):
		}
		const fault = "Bawn was stopped, and the program with it"
		return fault, errors.Join(err, conn.Send(apitype.ServerFrame{Exit: &apitype.Exit{Status: statusStopped, Fault: fault}}))
	}
}

func howEnded(e apitype.Exit) string {
	return strings.TrimSpace(fmt.Sprintf("status %d %s", e.Status, e.Fault))
}

// exitTime is how long netd's word of a program's end may come after its word
// that the session is taken apart.
const exitTime = time.Second

// statusStopped is the exit status of a program that Bawn did not let end.
const statusStopped = 125

// stopTime is what netd has to take a session apart.
const stopTime = 10 * time.Second

func (s *Server) stop(run *session.Running) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	if err := run.Stop(ctx); err != nil {
		return fmt.Errorf("stopping session %s: %w", run.Session.Session, err)
	}
	return nil
}

// frames serves signals and dials; it returns when the caller has gone.
func (s *Server) frames(ctx context.Context, conn *fdpass.Conn, run *session.Running) error {
	for {
		var f apitype.ClientFrame
		files, err := conn.Receive(&f)
		fdpass.CloseAll(files)
		switch {
		case err != nil:
			return err
		case f.Signal != "":
			if err := run.Signal(ctx, f.Signal); err != nil {
				s.o.Log.Warn("a signal could not be sent", "session", run.Session.Session, "error", err)
			}
		case f.Dial != nil:
			go s.dial(ctx, conn, run, *f.Dial)
		default:
			return errors.New("a frame without a meaning")
		}
	}
}

func (s *Server) dial(ctx context.Context, conn *fdpass.Conn, run *session.Running, d apitype.Dial) {
	answer := apitype.Dialled{ID: d.ID}
	var files []*os.File
	f, err := run.Dial(ctx, d.Port)
	if err != nil {
		answer.Error = err.Error()
	} else {
		files = append(files, f)
	}
	conn.Send(apitype.ServerFrame{Dialled: &answer}, files...)
	fdpass.CloseAll(files)
}
