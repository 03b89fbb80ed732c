// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netdapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"bawn/internal/ids"
	"bawn/internal/netd/netdapi"
	"bawn/internal/netplan"
)

// serve answers the first connection on a fresh socket with handle.
func serve(t *testing.T, handle func(*netdapi.Conn)) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "netd.sock")
	ln, err := net.Listen("unixpacket", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := ln.Accept()
		if err != nil {
			return
		}
		conn := netdapi.NewConn(c.(*net.UnixConn))
		defer conn.Close()
		handle(conn)
	}()
	t.Cleanup(func() { ln.Close(); <-done })
	return path
}

// each answers every request by answer until the client goes.
func each(answer func(*netdapi.Conn, netdapi.Request, []*os.File)) func(*netdapi.Conn) {
	return func(c *netdapi.Conn) {
		for {
			var r netdapi.Request
			files, err := c.Receive(&r)
			if err != nil {
				return
			}
			answer(c, r, files)
			netdapi.CloseAll(files)
		}
	}
}

func TestClientGetsExitsAndReplies(t *testing.T) {
	path := serve(t, each(func(c *netdapi.Conn, r netdapi.Request, _ []*os.File) {
		switch r.Verb {
		case netdapi.VerbWatch:
			c.Send(netdapi.Message{Event: netdapi.EventExit, Body: json.RawMessage(`{"session":"s-1","status":3}`)})
			c.Send(netdapi.Message{ID: r.ID})
		case netdapi.VerbStatus:
			c.Send(netdapi.Message{ID: r.ID, Result: json.RawMessage(`{"version":"v","since":"2026-01-01T00:00:00Z","proxy":true,"firewall":{"state":"standing"},"sessions":[]}`)})
		default:
			c.Send(netdapi.Message{ID: r.ID, Error: netdapi.Errorf(netdapi.CodeNotFound, "session %s: not running", "s-2")})
		}
	}))
	exits := make(chan netdapi.Exit, 1)
	c, err := netdapi.Dial(t.Context(), path, func(e netdapi.Exit) { exits <- e })
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if e := <-exits; e.Session != "s-1" || e.Status != 3 {
		t.Errorf("exit %+v", e)
	}
	s, err := c.Status(t.Context())
	if err != nil || !s.Proxy || s.Firewall.State != "standing" {
		t.Errorf("status %+v, %v", s, err)
	}
	err = c.Stop(t.Context(), "s-2")
	if e, ok := errors.AsType[*netdapi.Error](err); !ok || e.Code != netdapi.CodeNotFound {
		t.Errorf("stop: %v", err)
	}
}

func TestClientStartChecksDescriptors(t *testing.T) {
	path := serve(t, each(func(c *netdapi.Conn, r netdapi.Request, files []*os.File) {
		c.Send(netdapi.Message{ID: r.ID, Result: json.RawMessage(`{"session":"s-1"}`)}, files...)
	}))
	c, err := netdapi.Dial(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	spec := netdapi.StartSpec{Identity: ids.Identity{Session: "s-1"}}
	got, err := c.Start(t.Context(), spec, []*os.File{os.Stdin, os.Stdin, os.Stdin})
	if err != nil || len(got) != 3 {
		t.Fatalf("start: %d descriptors, %v", len(got), err)
	}
	netdapi.CloseAll(got)
	spec.TTY = true
	if _, err := c.Start(t.Context(), spec, []*os.File{os.Stdin, os.Stdin}); err == nil {
		t.Error("two descriptors taken for a terminal")
	}
}

func TestClientCallsEndWithTheConnection(t *testing.T) {
	path := serve(t, func(c *netdapi.Conn) {
		var r netdapi.Request
		c.Receive(&r) // and then go without a word
	})
	c, err := netdapi.Dial(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Status(t.Context()); !errors.Is(err, netdapi.ErrClosed) {
		t.Errorf("status: %v", err)
	}
	<-c.Done()
	if err := c.Stop(t.Context(), "s-1"); !errors.Is(err, netdapi.ErrClosed) {
		t.Errorf("stop: %v", err)
	}
}

func TestClientCallEndsWithItsContext(t *testing.T) {
	hold := make(chan struct{})
	path := serve(t, func(*netdapi.Conn) { <-hold })
	defer close(hold)
	c, err := netdapi.Dial(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Status(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("status: %v", err)
	}
}

func TestFeedReplaysAndAcks(t *testing.T) {
	want := netdapi.SlotAdded{
		Seq: 9, Identity: ids.Identity{Slot: 4, Gen: ids.Generation{Epoch: 1, Count: 2}, Session: "s-1", Agent: "dev", User: "u"},
		Placement: ids.PlacementNetns, UID: 1900000000,
		Sockets: []netdapi.Socket{{Arrival: netplan.Explicit, Network: "tcp", Addr: netip.MustParseAddrPort("198.18.0.1:3128")}},
	}
	acked := make(chan netdapi.ListenerAck, 1)
	path := serve(t, each(func(c *netdapi.Conn, r netdapi.Request, _ []*os.File) {
		if r.Verb == netdapi.VerbListenerAck {
			var a netdapi.ListenerAck
			netdapi.Decode(r.Args, &a)
			acked <- a
			return
		}
		body, _ := json.Marshal(want)
		c.Send(netdapi.Message{ID: r.ID})
		c.Send(netdapi.Message{Event: netdapi.EventSlotAdded, Body: body}, os.Stdin)
		c.Send(netdapi.Message{Event: netdapi.EventReplayed})
		c.Send(netdapi.Message{Event: netdapi.EventSlotRemoved, Body: json.RawMessage(`{"slot":4,"gen":"1.2"}`)})
		c.Send(netdapi.Message{Event: netdapi.EventSlotAdded, Body: body}) // without its descriptor
	}))
	f, err := netdapi.DialFeed(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	e, err := f.Next(t.Context())
	if err != nil || e.Added == nil || e.Added.Identity != want.Identity || len(e.Files) != 1 {
		t.Fatalf("first event %+v, %v", e, err)
	}
	netdapi.CloseAll(e.Files)
	if err := f.Ack(e.Added.Seq); err != nil {
		t.Fatal(err)
	}
	if a := <-acked; a.Seq != 9 {
		t.Errorf("acked %+v", a)
	}
	if e, err := f.Next(t.Context()); err != nil || !e.Replayed {
		t.Fatalf("second event %+v, %v", e, err)
	}
	if e, err := f.Next(t.Context()); err != nil || e.Removed == nil || e.Removed.Slot != 4 {
		t.Fatalf("third event %+v, %v", e, err)
	}
	if e, err := f.Next(t.Context()); err == nil {
		t.Fatalf("an event without its descriptor was taken: %+v", e)
	}
}

func TestFeedNextEndsWithItsContext(t *testing.T) {
	hold := make(chan struct{})
	path := serve(t, func(*netdapi.Conn) { <-hold })
	defer close(hold)
	f, err := netdapi.DialFeed(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("next: %v", err)
	}
}
