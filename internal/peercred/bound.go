// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package peercred

import (
	"net"
	"sync"
)

// A listener lets no account hold more than its share of the connections,
// so that one caller cannot keep others out: an operator's thousand silent
// connections leave room for the proxy's beats.
type listener struct {
	net.Listener
	most int // connections of one uid

	mu  sync.Mutex
	per map[uint32]int
}

// Bound returns l with at most most connections of one account at a time; what
// it accepts are [*Conn].
func Bound(l net.Listener, most int) net.Listener {
	return &listener{Listener: l, most: most, per: map[uint32]int{}}
}

// Accept returns the next connection whose account has room. Others are closed
// at once.
func (b *listener) Accept() (net.Conn, error) {
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
		peer, err := Of(u)
		if err != nil || !b.take(peer.UID) {
			c.Close()
			continue
		}
		return &Conn{UnixConn: u, Peer: peer, done: sync.OnceFunc(func() { b.give(peer.UID) })}, nil
	}
}

func (b *listener) take(uid uint32) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.per[uid] >= b.most {
		return false
	}
	b.per[uid]++
	return true
}

func (b *listener) give(uid uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.per[uid]--; b.per[uid] == 0 {
		delete(b.per, uid)
	}
}

// A Conn is a connection whose peer is known. It gives its place back when it is
// closed.
type Conn struct {
	*net.UnixConn
	Peer Peer
	done func()
}

// Close closes the connection.
func (c *Conn) Close() error {
	c.done()
	return c.UnixConn.Close()
}
