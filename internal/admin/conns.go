// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"net"
	"sync"

	"bawn/internal/peercred"
)

// boundedListener lets no account hold more than its share of the connections,
// so that one caller cannot keep others out: an operator's thousand silent
// connections leave room for the proxy's beats.
type boundedListener struct {
	net.Listener
	most int // connections of one uid

	mu  sync.Mutex
	per map[uint32]int
}

func boundConns(l net.Listener, most int) net.Listener {
	return &boundedListener{Listener: l, most: most, per: map[uint32]int{}}
}

// Accept returns the next connection whose account has room. Others are closed
// at once.
func (b *boundedListener) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		u, ok := c.(*net.UnixConn)
		if !ok {
			c.Close()
			continue
		}
		peer, err := peercred.Of(u)
		if err != nil || !b.take(peer.UID) {
			c.Close()
			continue
		}
		return &boundedConn{UnixConn: u, done: sync.OnceFunc(func() { b.give(peer.UID) })}, nil
	}
}

func (b *boundedListener) take(uid uint32) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.per[uid] >= b.most {
		return false
	}
	b.per[uid]++
	return true
}

func (b *boundedListener) give(uid uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.per[uid]--; b.per[uid] == 0 {
		delete(b.per, uid)
	}
}

// boundedConn gives its place back when it is closed.
type boundedConn struct {
	*net.UnixConn
	done func()
}

// Close closes the connection.
func (c *boundedConn) Close() error {
	c.done()
	return c.UnixConn.Close()
}
