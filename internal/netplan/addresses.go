// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netplan

import (
	"fmt"
	"net/netip"
)

// Places inside an agent's namespace, the same in every slot.
var (
	// Gateway is where Bawn's listeners are, and the agent's name server.
	Gateway = netip.AddrFrom4([4]byte{198, 18, 0, 1})
	// Source is where the agent's connections come from.
	Source = netip.AddrFrom4([4]byte{198, 18, 0, 2})
	// Synthetic holds the addresses that stand for names (RFC 2544 gives this
	// range to benchmarks, so that no host of the internet has one).
	Synthetic = netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, 0, 0}), 15)
	// Reserved is the part of Synthetic that never stands for a name.
	Reserved = netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, 0, 0}), 24)
	// UIDProxies holds the explicit proxies of the uid placement, one loopback
	// address a slot.
	UIDProxies = netip.PrefixFrom(netip.AddrFrom4([4]byte{127, 66, 0, 0}), 16)
)

// Ports of Bawn's listeners.
const (
	ProxyPort       = 3128  // explicit proxy
	TransparentPort = 15001 // where every other TCP port is redirected to
	DNSPort         = 53    // resolver, UDP and TCP
)

// The uids of agents. systemd's table of uid ranges leaves this one unused, and
// it lies above what container runtimes hand out.
const (
	FirstUID = 1_900_000_000
	LastUID  = 1_900_009_999
)

// MaxSlot is the largest slot number: a slot of the uid placement has an
// address in [UIDProxies].
const MaxSlot = 1<<16 - 1

// IsAgentUID reports whether uid is one that Bawn may give to an agent.
func IsAgentUID(uid uint32) bool { return uid >= FirstUID && uid <= LastUID }

// CheckSlot reports why slot cannot be a slot's number.
func CheckSlot(slot int) error {
	if slot < 0 || slot > MaxSlot {
		return fmt.Errorf("slot %d: not from 0 to %d", slot, MaxSlot)
	}
	return nil
}

// UIDProxy is the explicit proxy of a slot in the uid placement:
// 127.66.HIGH.LOW:3128. The slot must pass [CheckSlot].
func UIDProxy(slot int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 66, byte(slot >> 8), byte(slot)}), ProxyPort)
}
