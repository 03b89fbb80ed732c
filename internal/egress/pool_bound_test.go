// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"fmt"
	"net"
	"testing"
	"time"

	"bawn/internal/names"
)

// TestPoolIsBoundedPerLease gives back connections to ever new names, as an
// agent with a wildcard rule can make it do.
func TestPoolIsBoundedPerLease(t *testing.T) {
	s := New(Config{Limits: Limits{IdlePerHost: 3, IdleUpstreams: 10}})
	var p pool
	p.init(s)
	var far []net.Conn
	give := func(i int) {
		host, err := names.Parse(fmt.Sprintf("n%d.example.com", i))
		if err != nil {
			t.Fatal(err)
		}
		near, other := net.Pipe()
		far = append(far, other)
		s.live.clock.Store(int64(len(far)))
		p.put(&h1Upstream{key: poolKey{host: host}, conn: near, sock: socket{conn: near}})
	}
	for i := range 30 {
		give(i)
	}
	for range 5 {
		give(29)
	}
	kept := 0
	for _, list := range p.idle {
		kept += len(list)
	}
	if kept != 10 || p.count != 10 || s.live.idle.Load() != 10 {
		t.Errorf("kept %d, counts %d and %d, want 10", kept, p.count, s.live.idle.Load())
	}
	for i, c := range far { // the newest ones are open, and three of the last name
		c.SetReadDeadline(time.Now().Add(time.Millisecond))
		_, err := c.Read(make([]byte, 1))
		timeout, _ := err.(net.Error)
		open := timeout != nil && timeout.Timeout()
		if want := i >= 22 && i < 32; open != want {
			t.Errorf("connection %d is open: %v", i, open)
		}
	}
	p.close()
	if p.count != 0 || s.live.idle.Load() != 0 {
		t.Errorf("after close: counts %d and %d", p.count, s.live.idle.Load())
	}
}
