// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"

	"bawn/internal/apitype"
	"bawn/internal/fdpass"
)

// A Session is the client's end of one run of an agent.
type Session struct {
	Started apitype.Started
	// Files are the terminal, or the pipes to standard input and from standard
	// output and error. They are the caller's to close.
	Files []*os.File

	conn  *fdpass.Conn
	exit  chan apitype.Exit
	mu    sync.Mutex
	next  uint64
	dials map[uint64]chan dialled
	gone  bool
}

type dialled struct {
	file *os.File
	err  error
}

// StartSession has admin start a program. The descriptors of files are those
// that start refers to by number.
func (c *Client) StartSession(ctx context.Context, start apitype.StartSession, files []*os.File) (*Session, error) {
	conn, err := c.upgrade(ctx)
	if err != nil {
		return nil, err
	}
	s := &Session{conn: fdpass.New(conn), exit: make(chan apitype.Exit, 1), dials: map[uint64]chan dialled{}}
	if err := s.start(start, files); err != nil {
		s.conn.Close()
		return nil, err
	}
	go s.receive()
	return s, nil
}

// upgrade turns a fresh connection into a session's. It reads no byte past the
// answer's head: descriptors may follow.
func (c *Client) upgrade(ctx context.Context) (*net.UnixConn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", c.sock)
	if err != nil {
		return nil, c.unreachable(fmt.Errorf("connecting: %w", err))
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	head := "POST " + apitype.Prefix + "/sessions HTTP/1.1\r\nHost: admin\r\nConnection: Upgrade\r\nUpgrade: " + apitype.SessionProtocol + "\r\nContent-Length: 0\r\n\r\n"
	if _, err := io.WriteString(conn, head); err != nil {
		conn.Close()
		return nil, c.unreachable(err)
	}
	// Admin sends nothing after a 101 until it has the first frame, so the
	// buffered reader cannot have taken more than the head.
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		conn.Close()
		return nil, c.unreachable(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		defer conn.Close()
		return nil, answered(resp)
	}
	return conn.(*net.UnixConn), nil
}

func (s *Session) start(start apitype.StartSession, files []*os.File) error {
	if err := s.conn.Send(apitype.ClientFrame{Start: &start}, files...); err != nil {
		return fmt.Errorf("starting session: %w", err)
	}
	var f apitype.ServerFrame
	got, err := s.conn.Receive(&f)
	switch {
	case err != nil:
		return fmt.Errorf("starting session: %w", err)
	case f.Failed != nil:
		fdpass.CloseAll(got)
		return f.Failed
	case f.Started == nil:
		fdpass.CloseAll(got)
		return errors.New("starting session: admin answered neither started nor failed")
	}
	s.Started, s.Files = *f.Started, got
	return nil
}

// receive hands out the frames that come after the first.
func (s *Session) receive() {
	for {
		var f apitype.ServerFrame
		files, err := s.conn.Receive(&f)
		switch {
		case err != nil:
			s.end(apitype.Exit{Status: 125, Fault: "the connection to admin was lost; the program was ended"})
			return
		case f.Exit != nil:
			fdpass.CloseAll(files)
			s.end(*f.Exit)
			return
		case f.Dialled != nil:
			s.answer(*f.Dialled, files)
		default:
			fdpass.CloseAll(files)
		}
	}
}

func (s *Session) end(e apitype.Exit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
	for id, ch := range s.dials {
		ch <- dialled{err: errors.New("the program has ended")}
		delete(s.dials, id)
	}
	s.exit <- e
	s.conn.Close()
}

func (s *Session) answer(d apitype.Dialled, files []*os.File) {
	s.mu.Lock()
	ch := s.dials[d.ID]
	delete(s.dials, d.ID)
	s.mu.Unlock()
	switch {
	case ch == nil:
		fdpass.CloseAll(files)
	case d.Error != "" || len(files) != 1:
		fdpass.CloseAll(files)
		ch <- dialled{err: errors.New(d.Error)}
	default:
		ch <- dialled{file: files[0]}
	}
}

// Exit delivers the program's end, once.
func (s *Session) Exit() <-chan apitype.Exit { return s.exit }

// Signal sends a signal by name to the program.
func (s *Session) Signal(name string) error {
	return s.conn.Send(apitype.ClientFrame{Signal: name})
}

// Dial connects to a port of the agent's own loopback; the port must have been
// named at the start.
func (s *Session) Dial(port uint16) (*os.File, error) {
	s.mu.Lock()
	if s.gone {
		s.mu.Unlock()
		return nil, errors.New("the program has ended")
	}
	s.next++
	id, ch := s.next, make(chan dialled, 1)
	s.dials[id] = ch
	s.mu.Unlock()
	if err := s.conn.Send(apitype.ClientFrame{Dial: &apitype.Dial{ID: id, Port: port}}); err != nil {
		s.mu.Lock()
		delete(s.dials, id)
		s.mu.Unlock()
		return nil, err
	}
	d := <-ch
	return d.file, d.err
}

// Close ends the connection, and with it a program that still runs.
func (s *Session) Close() error { return s.conn.Close() }
