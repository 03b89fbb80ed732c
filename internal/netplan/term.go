// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netplan

import (
	"fmt"
	"math"
	"net/netip"
	"strings"
)

// A Term is one step of a rule: something to match, or what to do. Its text is
// nft's. The set of terms is closed; netkern translates each.
type Term interface {
	fmt.Stringer
	term()
}

// The matches.
type (
	// Family matches the network protocol.
	Family uint8
	// Proto matches the transport protocol, over IPv4 and IPv6.
	Proto uint8
	// To matches the destination address.
	To netip.Prefix
	// From matches the source address.
	From netip.Prefix
	// ToPort matches the destination port of TCP.
	ToPort uint16
	// Resetting matches a TCP packet that ends a connection at once; what it
	// carries besides is not delivered.
	Resetting struct{}
	// Owner matches packets whose socket belongs to a uid from First to Last.
	// A packet whose socket has been closed, or not yet been accepted, has no
	// owner and does not match.
	Owner struct{ First, Last uint32 }
	// InCgroup matches packets whose socket was made in a process of this
	// cgroup (version 2 hierarchy), or below it. It holds for as long as the
	// socket has packets, also after its owner is gone.
	InCgroup struct{ Path string } // relative to the root, no slash at either end
	// OnLoopback matches by the interface that the packet came in on.
	OnLoopback bool
	// In matches if the fields of the packet, taken together, are an element of
	// the set.
	In struct {
		Set    string
		Fields []Field
	}
)

// The acts.
type (
	// Count adds to a named counter.
	Count string
	// Accept ends the evaluation of this chain's hook for the packet.
	Accept struct{}
	// Reject drops the packet and tells its sender by ICMP.
	Reject struct{}
	// Unreachable is Reject in the words of a port on which nobody listens,
	// which is what nft takes for granted.
	Unreachable struct{}
	// Reset drops the TCP packet and resets its connection. A connect fails at
	// once, where after an ICMP error it would try again for a second.
	Reset struct{}
	// Drop drops the packet without a word.
	Drop struct{}
	// Goto goes on in another chain and does not come back.
	Goto string
	// DNAT changes the destination.
	DNAT netip.AddrPort
)

// The values of [Family].
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// The values of [Proto].
const (
	TCP    Proto = 6
	UDP    Proto = 17
	ICMP   Proto = 1
	ICMPv6 Proto = 58
)

// Owned matches every packet that has an owner at all.
var Owned = Owner{0, math.MaxUint32}

// A Field is a part of a packet that a set holds.
type Field uint8

// The fields.
const (
	FieldUID      Field = iota // uid of the socket's owner
	FieldCgroup                // cgroup of the socket, at the level of a slot
	FieldTo                    // destination address, IPv4
	FieldFrom                  // source address, IPv4
	FieldToPort                // destination port, TCP
	FieldFromPort              // source port, TCP
)

// SlotLevel is how deep in the hierarchy a slot's cgroup lies: ROOT/slot-N.
const SlotLevel = 2

var fieldText = map[Field]struct{ match, typ string }{
	FieldUID:      {"meta skuid", "uid"},
	FieldCgroup:   {fmt.Sprintf("socket cgroupv2 level %d", SlotLevel), "cgroupsv2"},
	FieldTo:       {"ip daddr", "ipv4_addr"},
	FieldFrom:     {"ip saddr", "ipv4_addr"},
	FieldToPort:   {"tcp dport", "inet_service"},
	FieldFromPort: {"tcp sport", "inet_service"},
}

// String gives the field in nft's words.
func (f Field) String() string { return fieldText[f].match }

// Level is the number of the cgroup's level, the root being 0.
func (t InCgroup) Level() int { return strings.Count(t.Path, "/") + 1 }

func (t Family) String() string {
	if t == IPv6 {
		return "meta nfproto ipv6"
	}
	return "meta nfproto ipv4"
}

func (t Proto) String() string {
	name := map[Proto]string{TCP: "tcp", UDP: "udp", ICMP: "icmp", ICMPv6: "ipv6-icmp"}[t]
	return "meta l4proto " + name
}

func (t To) String() string   { return prefixText("daddr", netip.Prefix(t)) }
func (t From) String() string { return prefixText("saddr", netip.Prefix(t)) }

func prefixText(field string, p netip.Prefix) string {
	what := "ip " + field + " "
	if p.Addr().Is6() {
		what = "ip6 " + field + " "
	}
	if p.IsSingleIP() {
		return what + p.Addr().String()
	}
	return what + p.String()
}

func (t ToPort) String() string { return fmt.Sprintf("tcp dport %d", uint16(t)) }

func (Resetting) String() string { return "tcp flags & rst == rst" }

func (t Owner) String() string {
	if t.First == t.Last {
		return fmt.Sprintf("meta skuid %d", t.First)
	}
	return fmt.Sprintf("meta skuid %d-%d", t.First, t.Last)
}

func (t InCgroup) String() string {
	return fmt.Sprintf("socket cgroupv2 level %d %q", t.Level(), t.Path)
}

func (t OnLoopback) String() string {
	if t {
		return `iif "lo"`
	}
	return `iif != "lo"`
}

func (t In) String() string {
	fields := make([]string, len(t.Fields))
	for i, f := range t.Fields {
		fields[i] = f.String()
	}
	return strings.Join(fields, " . ") + " @" + t.Set
}

func (t Count) String() string     { return fmt.Sprintf("counter name %q", string(t)) }
func (Accept) String() string      { return "accept" }
func (Reject) String() string      { return "reject with icmpx admin-prohibited" }
func (Reset) String() string       { return "reject with tcp reset" }
func (Unreachable) String() string { return "reject" }
func (Drop) String() string        { return "drop" }
func (t Goto) String() string      { return "goto " + string(t) }
func (t DNAT) String() string      { return "dnat ip to " + netip.AddrPort(t).String() }

func (Family) term()      {}
func (Proto) term()       {}
func (To) term()          {}
func (From) term()        {}
func (ToPort) term()      {}
func (Resetting) term()   {}
func (Owner) term()       {}
func (InCgroup) term()    {}
func (OnLoopback) term()  {}
func (In) term()          {}
func (Count) term()       {}
func (Accept) term()      {}
func (Reject) term()      {}
func (Reset) term()       {}
func (Unreachable) term() {}
func (Drop) term()        {}
func (Goto) term()        {}
func (DNAT) term()        {}
