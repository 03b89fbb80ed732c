// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"bawn/internal/codes"
	"bawn/internal/verdict"
)

// Limits bound what one listener does for its agent. A zero field means its
// default.
type Limits struct {
	PerSecond   int           // queries on one listener, with a burst of as many: 200
	Connections int           // open TCP connections: 16
	Idle        time.Duration // of a TCP connection between queries, and for each with its answer: 10 s
	Life        time.Duration // of a TCP connection: 5 min
}

func (l Limits) orDefault() Limits {
	if l.PerSecond == 0 {
		l.PerSecond = 200
	}
	if l.Connections == 0 {
		l.Connections = 16
	}
	if l.Idle == 0 {
		l.Idle = 10 * time.Second
	}
	if l.Life == 0 {
		l.Life = 5 * time.Minute
	}
	return l
}

// maxQuery is the longest query that is looked at: header, name, type, class and
// an OPT record with room for the options that stubs send.
const maxQuery = 4096

// ServeUDP answers the queries that arrive at pc, one after the other, until ctx
// is done or pc is closed; it then returns nil. It closes pc.
//
// One at a time is the limit of an agent that asks faster than its queries can
// be recorded: the kernel drops the rest.
func (s *Server) ServeUDP(ctx context.Context, pc net.PacketConn, src Source) error {
	defer pc.Close()
	defer context.AfterFunc(ctx, func() { pc.Close() })()
	rate := newBucket(s.lim.PerSecond, s.cfg.Now())
	buf := make([]byte, maxQuery+1)
	for {
		n, from, err := pc.ReadFrom(buf)
		switch {
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return nil
		case isShortage(err):
			pause(ctx)
			continue
		case err != nil:
			return fmt.Errorf("reading DNS queries of agent %s: %w", src.Identity.Agent, err)
		}
		// The reply goes to whoever in the agent's network sent the query; that it
		// cannot be sent is the agent's own matter.
		src.Client = from.String()
		if reply := s.limited(src, rate, buf[:n]); reply != nil {
			_, _ = pc.WriteTo(reply, from)
		}
	}
}

// ServeTCP answers the queries of the connections that ln accepts until ctx is
// done or ln is closed; it then returns nil, after the connections have ended.
// It closes ln.
func (s *Server) ServeTCP(ctx context.Context, ln net.Listener, src Source) error {
	var open sync.WaitGroup
	defer open.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer ln.Close()
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	rate := newBucket(s.lim.PerSecond, s.cfg.Now())
	places := make(chan struct{}, s.lim.Connections)
	for {
		conn, err := ln.Accept()
		switch {
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return nil
		case isShortage(err):
			s.cfg.Log.Warn("cannot accept a DNS connection", "agent", src.Identity.Agent, "err", err)
			pause(ctx)
			continue
		case err != nil:
			return fmt.Errorf("accepting DNS connections of agent %s: %w", src.Identity.Agent, err)
		}
		src.Client = conn.RemoteAddr().String()
		select {
		case places <- struct{}{}:
			from := src
			open.Go(func() {
				defer func() { <-places }()
				s.serveConn(ctx, conn, from, rate)
			})
		default: // the agent holds all its places itself
			s.refuse(src, verdict.Refuse(stage, codes.ConcurrencyExceeded, fmt.Sprintf("more than %d DNS connections", s.lim.Connections)))
			conn.Close()
		}
	}
}

// isShortage knows the errors of accept(2) and recvfrom(2) that pass, and that an
// agent must not be able to end the plane with: a connection that is gone
// already, and no room for another.
func isShortage(err error) bool {
	for _, e := range []error{syscall.ECONNABORTED, syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func pause(ctx context.Context) {
	timer := time.NewTimer(100 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// serveConn answers the queries of one connection in their order, each judged by
// itself, however they were cut into segments (RFC 7766 section 6.2.1.1). A
// client that has sent its last one and closed its half still gets all answers.
func (s *Server) serveConn(ctx context.Context, conn net.Conn, src Source, rate *bucket) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	r := bufio.NewReaderSize(conn, 1024)
	end := time.Now().Add(s.lim.Life)
	for {
		until := time.Now().Add(s.lim.Idle)
		if until.After(end) {
			until = end
		}
		if conn.SetDeadline(until) != nil {
			return
		}
		msg, err := readMessage(r)
		if err != nil {
			return
		}
		reply := s.limited(src, rate, msg)
		if reply == nil {
			return // no query: nothing that follows can be trusted to be one
		}
		out := binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(reply)), uint16(len(reply)))
		if _, err := conn.Write(append(out, reply...)); err != nil {
			return
		}
	}
}

// readMessage reads a message with its length in front (RFC 1035 section
// 4.2.2), and of one that is longer than any query as much as shows that.
func readMessage(r io.Reader) ([]byte, error) {
	var size [2]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	msg := make([]byte, min(int(binary.BigEndian.Uint16(size[:])), maxQuery+1))
	_, err := io.ReadFull(r, msg)
	return msg, err
}

// limited answers msg if its listener is within its rate.
func (s *Server) limited(src Source, rate *bucket, msg []byte) []byte {
	if !rate.take(s.cfg.Now()) {
		return s.overLimit(src, msg)
	}
	return s.Answer(src, msg)
}

// A bucket lets through so many a second, and as many at once after a pause.
type bucket struct {
	mu        sync.Mutex
	perSecond float64
	level     float64
	last      time.Time
}

func newBucket(perSecond int, now time.Time) *bucket {
	return &bucket{perSecond: float64(perSecond), level: float64(perSecond), last: now}
}

func (b *bucket) take(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if gone := now.Sub(b.last); gone > 0 {
		b.level = min(b.perSecond, b.level+gone.Seconds()*b.perSecond)
	}
	b.last = now
	if b.level < 1 {
		return false
	}
	b.level--
	return true
}
