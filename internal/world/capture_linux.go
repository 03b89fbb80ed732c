// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"sort"
	"sync"

	"golang.org/x/sys/unix"
)

// A Packet is one IP packet that reached an interface.
type Packet struct {
	Proto   string // tcp, udp, icmp, icmp6 or the number
	Src     netip.Addr
	Dst     netip.Addr
	SrcPort uint16
	DstPort uint16
	Bytes   int // whole length, IP header included
}

// String gives the form that test failures print.
func (p Packet) String() string {
	return fmt.Sprintf("%s %s > %s (%d bytes)", p.Proto,
		netip.AddrPortFrom(p.Src, p.SrcPort), netip.AddrPortFrom(p.Dst, p.DstPort), p.Bytes)
}

// A Flow counts packets of one kind from the host to one destination port.
type Flow struct {
	Proto   string
	Dst     netip.Addr
	DstPort uint16
	Packets int
}

// String gives the form that test failures print.
func (f Flow) String() string {
	return fmt.Sprintf("%s to %s: %d packets", f.Proto, netip.AddrPortFrom(f.Dst, f.DstPort), f.Packets)
}

const maxPackets = 20_000

// sniffer counts what arrives on one interface. Multicast, link-local and
// neighbour discovery are left out: they never pass a router.
type sniffer struct {
	fd int

	mu      sync.Mutex
	seen    *sync.Cond
	packets []Packet
	flows   map[Flow]int // key without the count
	marks   map[string]bool
	lost    int // packets that the kernel dropped for want of room
}

// markPrefix begins the payload of the packets that [World] sends itself to
// learn that everything before has arrived.
const markPrefix = "bawn-world-mark:"

func newSniffer(ifindex int) (*sniffer, error) {
	proto := uint16(unix.ETH_P_ALL)<<8 | uint16(unix.ETH_P_ALL)>>8
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, int(proto))
	if err != nil {
		return nil, fmt.Errorf("opening packet socket: %w", err)
	}
	// Room for a burst; the limit of the system does not count for root.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: proto, Ifindex: ifindex}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("binding packet socket: %w", err)
	}
	s := &sniffer{fd: fd, flows: map[Flow]int{}, marks: map[string]bool{}}
	s.seen = sync.NewCond(&s.mu)
	return s, nil
}

// run reads until the process ends.
func (s *sniffer) run() {
	buf := make([]byte, 2048)
	for {
		n, from, err := unix.Recvfrom(s.fd, buf, unix.MSG_TRUNC)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return
		}
		link, ok := from.(*unix.SockaddrLinklayer)
		if !ok || link.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		if p, payload, ok := parsePacket(buf[:min(n, len(buf))], n); ok {
			s.note(p, payload)
		}
	}
}

func (s *sniffer) note(p Packet, payload []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.Proto == "udp" && bytes.HasPrefix(payload, []byte(markPrefix)) {
		s.marks[string(payload[len(markPrefix):])] = true
		s.seen.Broadcast()
		return
	}
	if len(s.packets) < maxPackets {
		s.packets = append(s.packets, p)
	}
	s.flows[Flow{Proto: p.Proto, Dst: p.Dst, DstPort: p.DstPort}]++
}

// wait blocks until the packet with this mark was seen.
func (s *sniffer) wait(mark string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.marks[mark] {
		s.seen.Wait()
	}
}

func (s *sniffer) list(reset bool) (packets []Packet, flows []Flow, lost int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st, err := unix.GetsockoptTpacketStats(s.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
		s.lost += int(st.Drops)
	}
	packets, lost = append([]Packet(nil), s.packets...), s.lost
	for f, n := range s.flows {
		f.Packets = n
		flows = append(flows, f)
	}
	sort.Slice(flows, func(i, j int) bool { return flows[i].String() < flows[j].String() })
	if reset {
		s.packets, s.flows, s.lost = nil, map[Flow]int{}, 0
	}
	return packets, flows, lost
}

// parsePacket reads an IP packet of which b holds the beginning. It returns
// the transport payload too, as far as it is there.
func parsePacket(b []byte, whole int) (Packet, []byte, bool) {
	p := Packet{Bytes: whole}
	var proto byte
	var rest []byte
	switch {
	case len(b) >= 20 && b[0]>>4 == 4:
		head := int(b[0]&15) * 4
		if head < 20 || len(b) < head {
			return p, nil, false
		}
		proto, rest = b[9], b[head:]
		p.Src, p.Dst = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
	case len(b) >= 40 && b[0]>>4 == 6:
		proto, rest = b[6], b[40:]
		p.Src, p.Dst = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
	default:
		return p, nil, false
	}
	if p.Dst.IsMulticast() || p.Dst.IsLinkLocalUnicast() && p.Dst.Is6() {
		return p, nil, false
	}
	if proto == unix.IPPROTO_ICMPV6 && len(rest) > 0 && rest[0] >= 133 && rest[0] <= 137 {
		return p, nil, false // neighbour discovery
	}
	return p.withPorts(proto, rest)
}

func (p Packet) withPorts(proto byte, rest []byte) (Packet, []byte, bool) {
	switch proto {
	case unix.IPPROTO_TCP, unix.IPPROTO_UDP:
		p.Proto = map[byte]string{unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp"}[proto]
		if len(rest) >= 4 {
			p.SrcPort, p.DstPort = binary.BigEndian.Uint16(rest), binary.BigEndian.Uint16(rest[2:])
		}
		if proto == unix.IPPROTO_UDP && len(rest) >= 8 {
			return p, rest[8:], true
		}
	case unix.IPPROTO_ICMP:
		p.Proto = "icmp"
	case unix.IPPROTO_ICMPV6:
		p.Proto = "icmp6"
	default:
		p.Proto = fmt.Sprint(proto)
	}
	return p, nil, true
}
