// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netdapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// A Feed is the proxy's end of netd.sock: the listeners of all slots, those
// that exist first, then each as it is made.
type Feed struct {
	conn *Conn
	mu   sync.Mutex
	next uint64
}

// A FeedEvent is one change; exactly one of Added, Removed and Replayed is set.
type FeedEvent struct {
	Added    *SlotAdded
	Files    []*os.File // with Added: the listeners, in the order of Added.Sockets; the receiver's to close
	Removed  *SlotRemoved
	Replayed bool // everything that stood before has been sent
}

// DialFeed connects to netd and asks for the listeners.
func DialFeed(ctx context.Context, path string) (*Feed, error) {
	conn, err := dial(ctx, path)
	if err != nil {
		return nil, err
	}
	f := &Feed{conn: conn}
	if err := f.send(VerbListeners, nil); err != nil {
		conn.Close()
		return nil, err
	}
	return f, nil
}

// Close ends the feed; a blocked Next returns. netd keeps its own duplicates
// of the listeners, so connections wait in their queues until the next feed.
func (f *Feed) Close() error { return f.conn.Close() }

// Next waits for the next event. When ctx is done the feed is closed, since a
// packet could be lost otherwise.
func (f *Feed) Next(ctx context.Context) (FeedEvent, error) {
	stop := context.AfterFunc(ctx, func() { f.conn.Unwrap().SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	for {
		var m Message
		files, err := f.conn.Receive(&m)
		if err != nil {
			f.conn.Close()
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return FeedEvent{}, fmt.Errorf("reading listeners from netd: %w", err)
		}
		if m.Event == "" { // the reply to listeners or listener_ack
			CloseAll(files)
			if m.Error != nil {
				f.conn.Close()
				return FeedEvent{}, fmt.Errorf("reading listeners from netd: %w", m.Error)
			}
			continue
		}
		event, err := feedEvent(m, files)
		if err != nil {
			f.conn.Close()
			CloseAll(files)
			return FeedEvent{}, fmt.Errorf("reading listeners from netd: %w", err)
		}
		return event, nil
	}
}

func feedEvent(m Message, files []*os.File) (FeedEvent, error) {
	switch m.Event {
	case EventReplayed:
		return FeedEvent{Replayed: true}, nil
	case EventSlotRemoved:
		var r SlotRemoved
		if err := Decode(m.Body, &r); err != nil {
			return FeedEvent{}, err
		}
		return FeedEvent{Removed: &r}, nil
	case EventSlotAdded:
		var a SlotAdded
		if err := Decode(m.Body, &a); err != nil {
			return FeedEvent{}, err
		}
		if len(files) != len(a.Sockets) {
			return FeedEvent{}, fmt.Errorf("slot %d: %d descriptors for %d sockets", a.Identity.Slot, len(files), len(a.Sockets))
		}
		return FeedEvent{Added: &a, Files: files}, nil
	}
	return FeedEvent{}, errors.New("unknown event " + m.Event)
}

// Ack tells netd that every listener of the slot is being accepted on. Without
// it netd does not start the slot's program.
func (f *Feed) Ack(seq uint64) error { return f.send(VerbListenerAck, ListenerAck{seq}) }

func (f *Feed) send(verb Verb, args any) error {
	f.mu.Lock()
	f.next++
	request := Request{ID: f.next, Verb: verb}
	f.mu.Unlock()
	if args != nil {
		data, err := json.Marshal(args)
		if err != nil {
			return fmt.Errorf("asking netd to %s: %w", verb, err)
		}
		request.Args = data
	}
	if err := f.conn.Send(request); err != nil {
		return fmt.Errorf("asking netd to %s: %w", verb, err)
	}
	return nil
}
