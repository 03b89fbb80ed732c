// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netd

import (
	"context"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"bawn/internal/netd/netdapi"
)

// A feed is the proxy's connection. Events wait in a queue, so that a proxy
// that does not read holds up nobody else.
type feed struct {
	caller *caller
	queue  chan feedItem
	once   sync.Once
	closed chan struct{}
}

type feedItem struct {
	event string
	body  any
	files []*os.File // duplicates, closed once sent
}

// queued is how many events may wait, beyond the replay. A proxy that is
// further behind is hung, and cut off.
const queued = 1024

// listeners makes the caller the proxy: it gets every listener that exists, and
// each that is made from now on. An earlier one is cut off.
func (s *Server) listeners(_ context.Context, c *caller) (reply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.feed != nil {
		s.feed.close()
		s.feed.caller.conn.Close()
	}
	f := &feed{caller: c, queue: make(chan feedItem, queued+len(s.sessions)), closed: make(chan struct{})}
	s.feed = f
	for _, r := range s.sessions {
		if r.seq == 0 {
			continue // not announced yet
		}
		if err := s.sendSlot(r); err != nil {
			return reply{}, err
		}
	}
	f.put(feedItem{event: netdapi.EventReplayed, body: struct{}{}})
	// The reply goes first, whatever the events.
	return reply{after: func(error) { go f.pump() }}, nil
}

// pump sends what is queued until the feed is closed.
func (f *feed) pump() {
	for {
		select {
		case <-f.closed:
			f.drain()
			return
		case item := <-f.queue:
			err := f.caller.event(item.event, item.body, item.files...)
			netdapi.CloseAll(item.files)
			if err != nil {
				f.caller.conn.Close() // its end closes the feed
			}
		}
	}
}

// put queues an event; a proxy whose queue is full is cut off.
func (f *feed) put(item feedItem) {
	select {
	case <-f.closed:
	case f.queue <- item:
		return
	default:
		f.caller.s.o.Log.Error("the proxy does not take its listeners: cut off")
		f.caller.conn.Close()
	}
	netdapi.CloseAll(item.files)
}

func (f *feed) close() { f.once.Do(func() { close(f.closed) }) }

func (f *feed) drain() {
	for {
		select {
		case item := <-f.queue:
			netdapi.CloseAll(item.files)
		default:
			return
		}
	}
}

// announce hands the session's listeners to the proxy of the moment, or to the
// next one. The caller waits for r.acked.
func (s *Server) announce(r *running) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seq++
	r.seq = s.seq
	return s.sendSlot(r)
}

// sendSlot queues the session's listeners for the proxy, if there is one. The
// caller holds s.mu.
func (s *Server) sendSlot(r *running) error {
	if s.feed == nil {
		return nil
	}
	added := netdapi.SlotAdded{Seq: r.seq, Identity: r.spec.Identity, Placement: r.spec.Placement, UID: r.spec.UID}
	var files []*os.File
	for _, l := range r.listeners() {
		dup, err := duplicate(l.File)
		if err != nil {
			netdapi.CloseAll(files)
			return fmt.Errorf("handing over %s: %w", l, err)
		}
		files = append(files, dup)
		added.Sockets = append(added.Sockets, netdapi.Socket{Arrival: l.Arrival, Network: l.Network, Addr: l.Addr})
	}
	s.feed.put(feedItem{netdapi.EventSlotAdded, added, files})
	return nil
}

// withdraw tells the proxy that the session's slot has ended.
func (s *Server) withdraw(r *running) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.seq = 0
	if s.feed != nil {
		id := r.spec.Identity
		s.feed.put(feedItem{netdapi.EventSlotRemoved, netdapi.SlotRemoved{Slot: id.Slot, Gen: id.Gen}, nil})
	}
}

// acknowledge takes the proxy's word that it serves a slot.
func (s *Server) acknowledge(_ context.Context, c *caller, a netdapi.ListenerAck) (reply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.feed == nil || s.feed.caller != c {
		return reply{}, netdapi.Errorf(netdapi.CodeNotPermitted, "acknowledging slot: this connection has not asked for listeners")
	}
	for _, r := range s.sessions {
		if r.seq == a.Seq && a.Seq != 0 {
			r.servedBy = s.feed
			r.ackOnce.Do(func() { close(r.acked) })
		}
	}
	return reply{}, nil // a slot may have ended meanwhile
}

func duplicate(f *os.File) (*os.File, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	var inner error
	err = raw.Control(func(old uintptr) { fd, inner = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) })
	if err == nil {
		err = inner
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
