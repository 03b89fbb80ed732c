// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netkern

import (
	"encoding/binary"
	"net/netip"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"bawn/internal/roottest"
)

// runFilter runs a program in the kernel on one packet (BPF_PROG_TEST_RUN) and
// reports whether it lets it through.
func runFilter(t *testing.T, program []instruction, at uint32, packet []byte) bool {
	t.Helper()
	fd, err := loadProgram(at, program)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	frame := append(make([]byte, 14), packet...) // the kernel takes an Ethernet header off
	frame[12], frame[13] = 0x08, 0x00
	if packet[0]>>4 == 6 {
		frame[12], frame[13] = 0x86, 0xdd
	}
	attr := struct {
		fd, result       uint32
		sizeIn, sizeOut  uint32
		in, out          uint64
		repeat, duration uint32
	}{fd: uint32(fd), sizeIn: uint32(len(frame)), in: uint64(uintptr(unsafe.Pointer(&frame[0])))}
	const progTestRun = 10
	_, err = bpf(progTestRun, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
	runtime.KeepAlive(frame)
	if err != nil {
		t.Fatal(err)
	}
	return attr.result == 1
}

// tcp4 builds an IPv4 packet with a TCP header.
func tcp4(from, to string, flags byte) []byte {
	src, dst := netip.MustParseAddrPort(from), netip.MustParseAddrPort(to)
	p := make([]byte, 40)
	p[0], p[3], p[8], p[9] = 0x45, 40, 64, unix.IPPROTO_TCP
	copy(p[12:], src.Addr().AsSlice())
	copy(p[16:], dst.Addr().AsSlice())
	binary.BigEndian.PutUint16(p[20:], src.Port())
	binary.BigEndian.PutUint16(p[22:], dst.Port())
	p[32], p[33] = 5<<4, flags
	return p
}

func tcp6(from, to string, flags byte) []byte {
	src, dst := netip.MustParseAddrPort(from), netip.MustParseAddrPort(to)
	p := make([]byte, 60)
	p[0], p[5], p[6], p[7] = 0x60, 20, unix.IPPROTO_TCP, 64
	copy(p[8:], src.Addr().AsSlice())
	copy(p[24:], dst.Addr().AsSlice())
	binary.BigEndian.PutUint16(p[40:], src.Port())
	binary.BigEndian.PutUint16(p[42:], dst.Port())
	p[52], p[53] = 5<<4, flags
	return p
}

// with changes one byte of a packet.
func with(p []byte, at int, value byte) []byte {
	p[at] = value
	return p
}

func TestI1ProgramsPassTheProxyOnly(t *testing.T) {
	roottest.Require(t)
	proxy := netip.MustParseAddrPort("127.66.1.2:3128")
	const agent, syn, ack, rst = "127.0.0.1:40000", 2, 16, 4
	for name, c := range map[string]struct {
		packet         []byte
		sent, received bool
	}{
		"to the proxy":            {tcp4(agent, "127.66.1.2:3128", syn), true, false},
		"data to the proxy":       {append(tcp4(agent, "127.66.1.2:3128", ack), "data"...), true, false},
		"from the proxy":          {tcp4("127.66.1.2:3128", agent, ack), false, true},
		"reset by the proxy":      {tcp4("127.66.1.2:3128", agent, rst|ack), false, true},
		"reset by anybody":        {tcp4("203.0.113.1:80", agent, rst|ack), false, true},
		"reset to anybody":        {tcp4(agent, "203.0.113.1:80", rst), false, true},
		"to another port":         {tcp4(agent, "127.66.1.2:3129", syn), false, false},
		"to another's proxy":      {tcp4(agent, "127.66.1.3:3128", syn), false, false},
		"from another's proxy":    {tcp4("127.66.1.3:3128", agent, ack), false, false},
		"from the proxy's port":   {tcp4("203.0.113.1:3128", agent, ack), false, false},
		"swapped":                 {tcp4("127.66.1.2:3128", "203.0.113.1:80", syn), false, true},
		"UDP to the proxy":        {with(tcp4(agent, "127.66.1.2:3128", syn), 9, unix.IPPROTO_UDP), false, false},
		"ICMP":                    {with(tcp4(agent, "127.66.1.2:3128", 0), 9, unix.IPPROTO_ICMP), false, false},
		"UDP that looks reset":    {with(tcp4("203.0.113.1:80", agent, rst), 9, unix.IPPROTO_UDP), false, false},
		"IP options":              {with(tcp4(agent, "127.66.1.2:3128", syn), 0, 0x46), false, false},
		"first fragment":          {with(tcp4(agent, "127.66.1.2:3128", syn), 6, 0x20), false, false},
		"later fragment":          {with(tcp4(agent, "127.66.1.2:3128", syn), 7, 0x01), false, false},
		"don't fragment":          {with(tcp4(agent, "127.66.1.2:3128", syn), 6, 0x40), true, false},
		"IPv6":                    {tcp6("[::1]:40000", "[::1]:3128", syn), false, false},
		"IPv6 with mapped proxy":  {tcp6("[::1]:40000", "[::ffff:127.66.1.2]:3128", syn), false, false},
		"IPv6 reset by anybody":   {tcp6("[2001:db8::1]:80", "[::1]:40000", rst), false, true},
		"IPv6 UDP, looks reset":   {with(tcp6("[2001:db8::1]:80", "[::1]:40000", rst), 6, unix.IPPROTO_UDP), false, false},
		"IPv6 fragment":           {with(tcp6("[2001:db8::1]:80", "[::1]:40000", rst), 6, unix.IPPROTO_FRAGMENT), false, false},
		"neither IPv4 nor IPv6":   {with(tcp4(agent, "127.66.1.2:3128", syn), 0, 0x55), false, false},
		"cut off before the port": {tcp4(agent, "127.66.1.2:3128", syn)[:22], false, false},
		"cut off before flags":    {tcp4(agent, "127.66.1.2:3128", syn)[:32], false, false},
		"IPv6 cut off":            {tcp6("[2001:db8::1]:80", "[::1]:40000", rst)[:50], false, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := runFilter(t, filter(proxy, true), atEgress, c.packet); got != c.sent {
				t.Errorf("sent: let through %v", got)
			}
			if got := runFilter(t, filter(proxy, false), atIngress, c.packet); got != c.received {
				t.Errorf("received: let through %v", got)
			}
		})
	}
}
