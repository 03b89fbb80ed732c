// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"bawn/internal/egress"
	"bawn/internal/ids"
	"bawn/internal/netd/netdapi"
	"bawn/internal/netkern"
	"bawn/internal/netplan"
	"bawn/internal/resolver"
)

// feed serves the listeners that netd makes. When netd is gone the agents are
// too, so everything is closed; the next netd begins anew.
type feed struct {
	sock   string
	log    *slog.Logger
	egress *egress.Server
	dns    *resolver.Server
}

// lessor is one lease's place: what never repeats.
type lessor struct {
	slot int
	gen  ids.Generation
}

// feedRetry is waited before netd is asked again.
const feedRetry = 50 * time.Millisecond

// run keeps the feed until ctx is done; ready is called once what stood before
// is served.
func (f *feed) run(ctx context.Context, ready func()) error {
	once := sync.OnceFunc(ready)
	for ctx.Err() == nil {
		if err := f.hold(ctx, once); err != nil && ctx.Err() == nil {
			f.log.Debug("the feed of listeners ended", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(feedRetry):
		}
	}
	return nil
}

func (f *feed) hold(ctx context.Context, ready func()) error {
	n, err := netdapi.DialFeed(ctx, f.sock)
	if err != nil {
		return err
	}
	defer n.Close()
	ctx, cancel := context.WithCancel(ctx)
	var serving sync.WaitGroup
	defer serving.Wait()
	defer cancel()
	leases := map[lessor]context.CancelCauseFunc{}
	for {
		e, err := n.Next(ctx)
		switch {
		case err != nil:
			return err
		case e.Replayed:
			ready()
		case e.Removed != nil:
			key := lessor{e.Removed.Slot, e.Removed.Gen}
			if stop := leases[key]; stop != nil {
				stop(egress.ErrSessionEnded)
				delete(leases, key)
			}
		case e.Added != nil:
			lctx, stop := context.WithCancelCause(ctx)
			leases[lessor{e.Added.Identity.Slot, e.Added.Identity.Gen}] = stop
			if err := f.serve(lctx, &serving, *e.Added, e.Files); err != nil {
				stop(nil)
				return err
			}
			if err := n.Ack(e.Added.Seq); err != nil {
				return err
			}
		}
	}
}

// serve takes over the sockets of one slot.
func (f *feed) serve(ctx context.Context, serving *sync.WaitGroup, a netdapi.SlotAdded, files []*os.File) error {
	defer netdapi.CloseAll(files)
	for i, sock := range a.Sockets {
		if err := f.serveSocket(ctx, serving, a, sock, files[i]); err != nil {
			return fmt.Errorf("serving %s %s of slot %d: %w", sock.Arrival, sock.Network, a.Identity.Slot, err)
		}
	}
	return nil
}

func (f *feed) serveSocket(ctx context.Context, serving *sync.WaitGroup, a netdapi.SlotAdded, sock netdapi.Socket, file *os.File) error {
	if sock.Network == "udp" {
		c, err := net.FilePacketConn(file)
		if err != nil {
			return err
		}
		serving.Go(func() { f.ended(f.dns.ServeUDP(ctx, c, resolver.Source{Identity: a.Identity})) })
		return nil
	}
	l, err := net.FileListener(file)
	if err != nil {
		return err
	}
	if sock.Arrival == netplan.DNS {
		serving.Go(func() { f.ended(f.dns.ServeTCP(ctx, l, resolver.Source{Identity: a.Identity})) })
		return nil
	}
	src := egress.Source{Identity: a.Identity, Arrival: sock.Arrival}
	if a.Placement == ids.PlacementUID {
		src.CheckPeer = ownedBy(a.UID)
	}
	serving.Go(func() { f.ended(f.egress.Serve(ctx, l, src)) })
	return nil
}

func (f *feed) ended(err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		f.log.Error("a listener ended", "error", err)
	}
}

// ownedBy lets in only connections whose other end belongs to uid: in the
// host's network, others could try the address of an agent's proxy.
func ownedBy(uid uint32) func(net.Conn) error {
	return func(c net.Conn) error {
		got, err := netkern.PeerUID(c)
		if err != nil {
			return fmt.Errorf("finding who connected: %w", err)
		}
		if got != uid {
			return fmt.Errorf("uid %d connected, not %d", got, uid)
		}
		return nil
	}
}
