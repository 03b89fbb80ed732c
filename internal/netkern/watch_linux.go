// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netkern

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// pollEvery bounds how long a loss can go unseen when the kernel's message
// about it was lost.
const pollEvery = 250 * time.Millisecond

// Run watches over the rules until ctx is done: whatever changes them wakes it
// at once, and it looks every quarter of a second besides. It returns an error
// only if it cannot watch.
func (f *Firewall) Run(ctx context.Context) error {
	wake := make(chan struct{}, 1)
	monitors, err := f.subscribe()
	if err != nil {
		return fmt.Errorf("watching the firewall: %w", err)
	}
	var listeners sync.WaitGroup
	for _, m := range monitors {
		listeners.Go(func() { listenForChanges(m, wake) })
	}
	defer listeners.Wait()
	defer func() {
		for _, m := range monitors {
			m.Close()
		}
	}()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		f.keep()
		select {
		case <-ctx.Done():
			return nil
		case <-wake:
		case <-tick.C:
		}
	}
}

// subscribe opens the kernel's announcements of changes to tables and to
// routing rules.
func (f *Firewall) subscribe() ([]*netlink.Conn, error) {
	var conns []*netlink.Conn
	for family, groups := range map[int][]uint32{
		unix.NETLINK_NETFILTER: {unix.NFNLGRP_NFTABLES},
		unix.NETLINK_ROUTE:     {unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE},
	} {
		config := &netlink.Config{}
		if f.cfg.Namespace != nil {
			config.NetNS = int(f.cfg.Namespace.Fd())
		}
		c, err := netlink.Dial(family, config)
		if err == nil {
			conns = append(conns, c)
			err = c.SetReadBuffer(netlinkBuffer)
		}
		for _, g := range groups {
			if err == nil {
				err = c.JoinGroup(g)
			}
		}
		if err != nil {
			for _, c := range conns {
				c.Close()
			}
			return nil, err
		}
	}
	return conns, nil
}

// listenForChanges pokes wake for every announcement, until c is closed.
// Announcements that were lost (ENOBUFS) count as one.
func listenForChanges(c *netlink.Conn, wake chan<- struct{}) {
	for {
		_, err := c.Receive()
		if closed(err) {
			return
		}
		select {
		case wake <- struct{}{}:
		default: // one look answers for all that came before it
		}
	}
}

// keep looks, and if something is missing has the agents held still, puts it
// back and looks again. What cannot be put back is tried again at the next
// look; the agents stay still.
func (f *Firewall) keep() {
	f.mu.Lock()
	defer f.mu.Unlock()
	why := f.inspect()
	if why == nil && f.state.Standing {
		return
	}
	if f.state.Standing {
		f.state.Standing, f.state.LastLoss = false, time.Now()
		f.state.Losses++
		f.cfg.Lost(why.Error())
		f.cfg.Log.Error("firewall lost: agents of the uid placement are held still", "why", why)
	}
	if why != nil {
		f.state.Why = why.Error()
		if err := f.restore(); err != nil {
			f.state.Why = err.Error()
			f.cfg.Log.Error("putting the firewall back", "error", err)
			return
		}
	}
	f.state.Standing, f.state.Why = true, ""
	f.cfg.Log.Info("firewall stands again", "losses", f.state.Losses)
	f.cfg.Standing()
}

func (f *Firewall) restore() error {
	if err := setPolicy(f.cfg.Namespace, f.plan.Policy()); err != nil {
		return err
	}
	if err := f.load(); err != nil {
		return err
	}
	return f.inspect()
}

// closed reports whether a Receive that returned err is the last one: anything
// but a full buffer.
func closed(err error) bool {
	return err != nil && !errors.Is(err, unix.ENOBUFS)
}
