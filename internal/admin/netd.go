// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"bawn/internal/netd/netdapi"
	"bawn/internal/session"
)

// netdLink keeps the connection to netd.
type netdLink struct {
	sock   string
	log    *slog.Logger
	onExit func(netdapi.Exit)
	onLost func()
	greet  func(context.Context, *netdapi.Client) error // what each new netd must be told

	mu   sync.Mutex
	conn *netdapi.Client
}

func newNetdLink(sock string, log *slog.Logger) *netdLink {
	return &netdLink{sock: sock, log: log}
}

var errNoNetd = errors.New("netd does not answer")

// client returns the connection of the moment.
func (l *netdLink) client() (*netdapi.Client, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil {
		return nil, errNoNetd
	}
	return l.conn, nil
}

// netdWait is how long a self-test waits for netd, which may just be starting
// again.
const netdWait = 10 * time.Second

// wait is client, but waits for a connection.
func (l *netdLink) wait(ctx context.Context) (*netdapi.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, netdWait)
	defer cancel()
	for {
		c, err := l.client()
		if err == nil {
			return c, nil
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(redial):
		}
	}
}

// session is client for the session manager.
func (l *netdLink) session() (session.Netd, error) {
	c, err := l.client()
	if err != nil {
		return nil, err
	}
	return c, nil
}

// redial is waited between two tries to reach netd.
const redial = 100 * time.Millisecond

// run connects, and connects again, until ctx is done.
func (l *netdLink) run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := l.hold(ctx); err != nil && ctx.Err() == nil {
			l.log.Debug("netd does not answer", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(redial):
		}
	}
	return nil
}

// hold connects and blocks until the connection is gone.
func (l *netdLink) hold(ctx context.Context) error {
	c, err := netdapi.Dial(ctx, l.sock, l.onExit)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := stopStrangers(ctx, c); err != nil {
		return err
	}
	if err := l.greet(ctx, c); err != nil {
		return err
	}
	l.set(c)
	defer l.onLost()
	defer l.set(nil)
	select {
	case <-c.Done():
		l.log.Warn("the connection to netd is lost")
	case <-ctx.Done():
	}
	return nil
}

func (l *netdLink) set(c *netdapi.Client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn = c
}

// strangersTime bounds the wait for the end of an earlier admin's sessions: what
// netd is putting together it ends or gives up well before.
const strangersTime = 15 * time.Second

// stopStrangers ends sessions that an earlier admin started: those who asked
// for them have lost their connections, and nobody would hear of their end. It
// waits until they are taken apart, since till then they hold their slots.
func stopStrangers(ctx context.Context, c *netdapi.Client) error {
	ctx, cancel := context.WithTimeout(ctx, strangersTime)
	defer cancel()
	told := map[string]bool{}
	for {
		st, err := c.Status(ctx)
		if err != nil {
			return err
		}
		if len(st.Sessions) == 0 && st.Building == 0 {
			return nil
		}
		for _, x := range st.Sessions {
			if name := x.Identity.Session; !told[name] {
				if err := stopStranger(ctx, c, name); err != nil {
					return err
				}
				told[name] = true
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the end of %d sessions of an earlier admin: %w", len(st.Sessions)+st.Building, ctx.Err())
		case <-time.After(strangersPoll):
		}
	}
}

const strangersPoll = 20 * time.Millisecond

func stopStranger(ctx context.Context, c *netdapi.Client, name string) error {
	err := c.Stop(ctx, name)
	if e, ok := errors.AsType[*netdapi.Error](err); ok && e.Code == netdapi.CodeNotFound {
		return nil // it ended meanwhile
	}
	return err
}
