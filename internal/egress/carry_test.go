// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"

	"bawn/internal/netplan"
)

// A spliced tunnel that waits holds its two sockets and no other descriptor.
func TestIdleSplicesHoldNoPipes(t *testing.T) {
	r := newRig(t, soakPolicy)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer ln.Close()
	r.net.add(dbHost, dbAddr)
	r.net.servers[netip.MustParseAddrPort(dbAddr+":5432")] = ln.Addr().String()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c}) //nolint:errcheck // the client sees it; without a pipe
			}()
		}
	}()
	proxy := r.listen(netplan.Explicit)
	open := func() net.Conn {
		c := r.dial(proxy)
		fmt.Fprintf(c, "CONNECT %s:5432 HTTP/1.1\r\nHost: %s:5432\r\n\r\n", dbHost, dbHost)
		if head, err := soakHead(c); err != nil || head[9:12] != "200" {
			t.Fatalf("%q, %v", head, err)
		}
		return c
	}
	open() // what is needed once
	before := descriptors(t)
	const n = 20
	sent := bytes.Repeat([]byte("0123456789abcdef"), 20_000) // more than one buffer
	for range n {
		c := open()
		got := make([]byte, len(sent))
		go c.Write(sent) //nolint:errcheck // shows in the read
		if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, sent) {
			t.Fatalf("not what was sent came back: %v", err)
		}
	}
	// Two connections, and both ends of each are in this process.
	if each := float64(descriptors(t)-before) / n; each > 4 {
		t.Errorf("%.1f descriptors for each tunnel, want 4", each)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc here")
	}
	return len(open)
}
