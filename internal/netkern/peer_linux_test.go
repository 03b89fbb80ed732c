// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netkern_test

import (
	"errors"
	"net"
	"testing"

	"bawn/internal/netkern"
	"bawn/internal/netplan"
)

// TestI9ThePeersUIDComesFromTheKernel: whoever connects is told by who owns
// the socket at the other end, and by nothing that it sends.
func TestI9ThePeersUIDComesFromTheKernel(t *testing.T) {
	h := newHost(t)
	conns := h.proxy(1) // without a firewall: anybody may connect
	lookUp := func(c net.Conn) (uid uint32, err error) {
		nsErr := netkern.InNamespace(h.ns, func() error {
			uid, err = netkern.PeerUID(c)
			return nil
		})
		return uid, errors.Join(err, nsErr)
	}
	for _, uid := range []uint32{uidA, uidB, stranger, 0} {
		a := startAgent(t, h.ns, uid, "")
		for _, to := range []string{netplan.UIDProxy(1).String(), "[::ffff:127.66.0.1]:3128"} {
			if got := a.do("tcp p %s", to); got != "ok" {
				t.Fatal(got)
			}
			c := <-conns
			if got, err := lookUp(c); err != nil || got != uid {
				t.Errorf("uid %d by way of %s: %d, %v", uid, to, got, err)
			}
			c.Close()
		}
	}
	a := startAgent(t, h.ns, uidA, "")
	a.do("tcp p %s", netplan.UIDProxy(1))
	a.do("close p")
	if uid, err := lookUp(<-conns); err == nil {
		t.Errorf("a closed socket belongs to %d", uid)
	}
}
