// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netkern_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"bawn/internal/netkern"
	"bawn/internal/netplan"
	"bawn/internal/roottest"
)

// The process's first thread stays in the namespace that it was started in:
// /proc/self stands for it.
func init() { runtime.LockOSThread() }

func build(t *testing.T) *netkern.Namespace {
	t.Helper()
	roottest.Require(t)
	n, err := netkern.Build(t.Context(), netplan.ForAgent())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

// in runs do on a thread inside ns.
func in(t *testing.T, ns *os.File, do func() error) {
	t.Helper()
	if err := netkern.InNamespace(ns, do); err != nil {
		t.Fatal(err)
	}
}

// command runs a program inside ns and gives its output.
func command(t *testing.T, ns *os.File, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command("nsenter", append([]string{"--net=/proc/self/fd/3", name}, args...)...)
	cmd.ExtraFiles = []*os.File{ns}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

func listener(t *testing.T, n *netkern.Namespace, a netplan.Arrival, network string) *os.File {
	t.Helper()
	for _, l := range n.Listeners() {
		if l.Arrival == a && l.Network == network {
			return l.File
		}
	}
	t.Fatalf("no %s listener for %s", a, network)
	return nil
}

func accepting(t *testing.T, f *os.File) net.Listener {
	t.Helper()
	ln, err := net.FileListener(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

// TestI1OneWayOutOfANamespace: an agent's namespace holds lo and nothing else,
// and its rules are those of the plan.
func TestI1OneWayOutOfANamespace(t *testing.T) {
	n := build(t)
	links := strings.Fields(command(t, n.File(), "ip", "-brief", "link"))
	if links[0] != "lo" || strings.Contains(strings.Join(links[1:], " "), "@") || strings.Count(strings.Join(links, " "), "00:00:00:00:00:00") != 1 {
		t.Errorf("links: %v", links)
	}
	want := netplan.ForAgent().Table.String()
	if diff := cmp.Diff(want, command(t, n.File(), "nft", "-s", "list", "ruleset")); diff != "" {
		t.Errorf("the kernel's table differs from the plan (-plan +kernel)\n%s", diff)
	}
	if routes := command(t, n.File(), "ip", "-6", "route", "show", "table", "all"); strings.Contains(routes, "default") {
		t.Errorf("an IPv6 route leads out:\n%s", routes)
	}
}

func TestEveryTCPPortArrivesWithItsDestination(t *testing.T) {
	n := build(t)
	ln := accepting(t, listener(t, n, netplan.Transparent, "tcp"))
	for _, to := range []string{"203.0.113.7:443", "1.1.1.1:53", "198.19.2.3:22", "169.254.169.254:80", "10.0.0.1:1", "255.255.255.254:65535"} {
		dialled := dialIn(t, n.File(), to)
		accepted, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if got := originalDestination(t, accepted); got != netip.MustParseAddrPort(to) {
			t.Errorf("%s arrived as %s", to, got)
		}
		fmt.Fprint(dialled, "ping")
		dialled.Close()
		if text, _ := io.ReadAll(accepted); string(text) != "ping" {
			t.Errorf("%s: read %q", to, text)
		}
		accepted.Close()
	}
	if c, err := n.Counters(); err != nil || c[netplan.CountRedirected].Packets != 6 {
		t.Errorf("counters %v, %v", c, err)
	}
}

// dialIn connects inside ns.
func dialIn(t *testing.T, ns *os.File, to string) net.Conn {
	t.Helper()
	var c net.Conn
	in(t, ns, func() (err error) {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		a := netip.MustParseAddrPort(to)
		if err := unix.Connect(fd, &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}); err != nil {
			unix.Close(fd)
			return fmt.Errorf("connecting to %s: %w", to, err)
		}
		f := os.NewFile(uintptr(fd), to)
		defer f.Close()
		c, err = net.FileConn(f)
		return err
	})
	return c
}

func originalDestination(t *testing.T, c net.Conn) netip.AddrPort {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	const soOriginalDst = 80 // linux/netfilter_ipv4.h
	var mreq *unix.IPv6Mreq  // large enough for a sockaddr_in
	raw.Control(func(fd uintptr) { mreq, err = unix.GetsockoptIPv6Mreq(int(fd), unix.IPPROTO_IP, soOriginalDst) })
	if err != nil {
		t.Fatal(err)
	}
	b := mreq.Multiaddr
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), uint16(b[2])<<8|uint16(b[3]))
}

func TestClosedConnectionsAreForgottenSoon(t *testing.T) {
	n := build(t)
	for name, want := range map[string]string{"time_wait": "5", "syn_sent": "10"} {
		got := command(t, n.File(), "cat", "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_"+name)
		if strings.TrimSpace(got) != want {
			t.Errorf("%s: %s seconds", name, got)
		}
	}
	home, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_time_wait")
	if err == nil && strings.TrimSpace(string(home)) == "5" {
		t.Error("the setting has leaked into the namespace of the tests")
	}
}

func TestExplicitProxyAndResolverAreReached(t *testing.T) {
	n := build(t)
	ln := accepting(t, listener(t, n, netplan.Explicit, "tcp"))
	c := dialIn(t, n.File(), "198.18.0.1:3128")
	defer c.Close()
	accepted, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	accepted.Close()

	pc, err := net.FilePacketConn(listener(t, n, netplan.DNS, "udp"))
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	in(t, n.File(), func() error { return sendUDP("198.18.0.1:53", "query") })
	buf := make([]byte, 100)
	got, _, err := pc.ReadFrom(buf)
	if err != nil || string(buf[:got]) != "query" {
		t.Errorf("resolver read %q, %v", buf[:got], err)
	}
}

// sendUDP sends one datagram and gives the error that comes back.
func sendUDP(to, text string) error {
	a := netip.MustParseAddrPort(to)
	family := unix.AF_INET
	if a.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, agentSockaddr(a)); err != nil {
		return err
	}
	if _, err := unix.Write(fd, []byte(text)); err != nil {
		return err
	}
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return err
	}
	if code != 0 {
		return unix.Errno(code)
	}
	return nil
}

// TestI1WhatIsNotTCPIsRefusedAndCounted: refused with an error at once, not
// dropped in silence, so that programs do not wait.
func TestI1WhatIsNotTCPIsRefusedAndCounted(t *testing.T) {
	n := build(t)
	for to, counter := range map[string]string{
		"8.8.8.8:53":      netplan.CountUDP,
		"198.19.1.1:443":  netplan.CountUDP,
		"224.0.0.251:535": netplan.CountUDP,
	} {
		before, err := n.Counters()
		if err != nil {
			t.Fatal(err)
		}
		in(t, n.File(), func() error {
			if err := sendUDP(to, "out"); err == nil {
				t.Errorf("UDP to %s: no error", to)
			}
			return nil
		})
		after, _ := n.Counters()
		if after[counter].Packets != before[counter].Packets+1 {
			t.Errorf("UDP to %s: counter %s went from %v to %v", to, counter, before[counter], after[counter])
		}
	}
	in(t, n.File(), func() error {
		if err := sendUDP("[2001:db8::1]:53", "out"); !errors.Is(err, unix.ENETUNREACH) {
			t.Errorf("UDP over IPv6: %v", err)
		}
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		echo := []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0}
		unix.Sendto(fd, echo, 0, &unix.SockaddrInet4{Addr: [4]byte{8, 8, 8, 8}})
		return nil
	})
	after, err := n.Counters()
	if err != nil || after[netplan.CountICMP].Packets != 1 {
		t.Errorf("counters after a ping: %v, %v", after, err)
	}
}

func TestDialReachesTheAgentsLoopback(t *testing.T) {
	n := build(t)
	for _, where := range []string{"127.0.0.1:8080", "[::1]:8081"} {
		var ln net.Listener
		a := netip.MustParseAddrPort(where)
		in(t, n.File(), func() (err error) {
			ln, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", where)
			return err
		})
		defer ln.Close()
		f, err := n.Dial(t.Context(), a.Port())
		if err != nil {
			t.Fatal(err)
		}
		c, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(c, "hello")
		c.Close()
		if text, _ := io.ReadAll(f); string(text) != "hello" {
			t.Errorf("%s: read %q", where, text)
		}
		f.Close()
	}
	if _, err := n.Dial(t.Context(), 9999); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("dialling a free port: %v", err)
	}
}

// TestAPortIsNeverFree: while the namespace is held, nobody inside can bind a
// listener's address, whatever socket options it sets.
func TestAPortIsNeverFree(t *testing.T) {
	n := build(t)
	for _, l := range n.Listeners() {
		for _, addr := range []netip.Addr{l.Addr.Addr(), netip.IPv4Unspecified()} {
			in(t, n.File(), func() error {
				kind := unix.SOCK_STREAM
				if l.Network == "udp" {
					kind = unix.SOCK_DGRAM
				}
				fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0)
				if err != nil {
					return err
				}
				defer unix.Close(fd)
				unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
				unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
				if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: addr.As4(), Port: int(l.Addr.Port())}); !errors.Is(err, unix.EADDRINUSE) {
					t.Errorf("binding %s port %d over %s: %v", addr, l.Addr.Port(), l, err)
				}
				return nil
			})
		}
	}
}

var errStep = errors.New("made to fail")

// TestBuildTakesApartWhatItMade fails each step in turn and looks for what is
// left: descriptors, and threads inside the namespace.
func TestBuildTakesApartWhatItMade(t *testing.T) {
	roottest.Require(t)
	plan := netplan.ForAgent()
	var steps []string
	n, err := netkern.BuildChecked(t.Context(), plan, func(step string) error {
		steps = append(steps, step)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	n.Close()
	if len(steps) < 10 {
		t.Fatalf("only steps %v", steps)
	}
	netkern.BuildChecked(t.Context(), plan, func(string) error { return errStep }) // whatever is opened once is open now
	for _, bad := range steps {
		before := descriptors(t)
		_, err := netkern.BuildChecked(t.Context(), plan, func(step string) error {
			if step == bad {
				return errStep
			}
			return nil
		})
		if !errors.Is(err, errStep) || !strings.Contains(err.Error(), bad) {
			t.Errorf("step %s: %v", bad, err)
		}
		if after := descriptors(t); after != before {
			t.Errorf("step %s: descriptors before:\n%s\nafter:\n%s", bad, before, after)
		}
	}
	noForeignThreads(t)
}

func TestCloseLeavesNothing(t *testing.T) {
	roottest.Require(t)
	before := descriptors(t)
	for range 20 {
		n, err := netkern.Build(t.Context(), netplan.ForAgent())
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if after := descriptors(t); after != before {
		t.Errorf("descriptors before:\n%s\nafter:\n%s", before, after)
	}
	noForeignThreads(t)
}

// descriptors lists what this process has open, but for the poller's own.
func descriptors(t *testing.T) string {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name()))
		if err != nil || strings.HasPrefix(target, "anon_inode:") || strings.HasPrefix(target, "/proc/") {
			continue
		}
		lines = append(lines, strings.SplitN(target, ":", 2)[0])
	}
	return strings.Join(lines, "\n")
}

// noForeignThreads checks that every thread of this process is in its own
// namespace. Threads end a moment after their goroutines.
func noForeignThreads(t *testing.T) {
	t.Helper()
	home, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for {
		foreign := 0
		threads, _ := filepath.Glob("/proc/self/task/*/ns/net")
		for _, path := range threads {
			if ns, err := os.Readlink(path); err == nil && ns != home {
				foreign++
			}
		}
		if foreign == 0 {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%d threads are still in another namespace", foreign)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// TestGoroutinesStayOutside: work inside namespaces never leaks into
// goroutines that come later.
func TestGoroutinesStayOutside(t *testing.T) {
	n := build(t)
	home, _ := os.Readlink("/proc/self/ns/net")
	for range 200 {
		in(t, n.File(), func() error { return nil })
	}
	found := make(chan string, 500)
	for range cap(found) {
		go func() {
			ns, _ := os.Readlink("/proc/thread-self/ns/net")
			found <- ns
		}()
	}
	for range cap(found) {
		if ns := <-found; ns != home {
			t.Fatalf("a goroutine runs in %s, not %s", ns, home)
		}
	}
}

func BenchmarkBuild(b *testing.B) {
	roottest.Require(b)
	for b.Loop() {
		n, err := netkern.Build(b.Context(), netplan.ForAgent())
		if err != nil {
			b.Fatal(err)
		}
		n.Close()
	}
}
