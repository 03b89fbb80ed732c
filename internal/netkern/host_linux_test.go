// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netkern_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bawn/internal/netkern"
	"bawn/internal/netplan"
	"bawn/internal/roottest"
)

// Addresses of the little world: a host, and an attacker who is its only way
// to anywhere.
const (
	attacker4 = "203.0.113.1"
	attacker6 = "2001:db8::1"
	host4     = "203.0.113.2"
)

// A host is a network namespace that stands for the machine's own, with
// cgroups of its own name and a link to an attacker.
type host struct {
	t        *testing.T
	ns       *os.File
	attacker *os.File
	plan     netplan.Host
	group    string // directory of Bawn's own cgroup
	arrived  atomic.Int64
	arrivals chan string
}

// fresh makes an empty network namespace.
func fresh(t *testing.T) *os.File {
	t.Helper()
	var ns *os.File
	err := netkern.OnThread(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		ns, err = netkern.Current()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	return ns
}

func newHost(t *testing.T) *host {
	t.Helper()
	roottest.Require(t)
	root, err := netkern.CgroupRoot()
	if err != nil {
		roottest.Skip(t, err.Error())
	}
	name := fmt.Sprintf("bawn-test-%d-%s", os.Getpid(), filepath.Base(t.TempDir()+t.Name()))
	h := &host{
		t: t, ns: fresh(t), attacker: fresh(t),
		plan:     netplan.Host{Table: "bawn", Cgroup: name},
		group:    filepath.Join(root, name),
		arrivals: make(chan string, 1000),
	}
	if err := os.Mkdir(h.group, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeCgroup(t, h.group) })
	h.link()
	h.sniff()
	return h
}

// removeCgroup removes a cgroup whose processes are ending.
func removeCgroup(t *testing.T, dir string) {
	eventually(t, "removing "+dir, func() bool {
		err := os.Remove(dir)
		return err == nil || errors.Is(err, os.ErrNotExist)
	})
}

func (h *host) link() {
	h.t.Helper()
	script := func(ns *os.File, lines ...[]string) {
		for _, l := range lines {
			command(h.t, ns, l[0], l[1:]...)
		}
	}
	peer := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), h.attacker.Fd())
	script(h.ns,
		[]string{"ip", "link", "set", "lo", "up"},
		[]string{"ip", "link", "add", "out", "type", "veth", "peer", "name", "in", "netns", peer},
		[]string{"ip", "addr", "add", host4 + "/24", "dev", "out"},
		[]string{"ip", "addr", "add", "2001:db8::2/64", "dev", "out", "nodad"},
		[]string{"ip", "link", "set", "out", "up"})
	script(h.attacker,
		[]string{"ip", "link", "set", "lo", "up"},
		[]string{"ip", "addr", "add", attacker4 + "/24", "dev", "in"},
		[]string{"ip", "addr", "add", attacker6 + "/64", "dev", "in", "nodad"},
		[]string{"ip", "addr", "add", "198.51.100.9/32", "dev", "in"}, // somewhere on the internet
		[]string{"ip", "link", "set", "in", "up"})
	script(h.ns,
		[]string{"ip", "route", "add", "default", "via", attacker4},
		[]string{"ip", "-6", "route", "add", "default", "via", attacker6})
}

// sniff counts every IP packet that reaches the attacker's interface, but for
// the kernel's own neighbour discovery.
func (h *host) sniff() {
	h.t.Helper()
	fd := -1
	in(h.t, h.attacker, func() (err error) {
		const all = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL<<8&0xff00 // network order
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
		if err != nil {
			return err
		}
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50_000})
		nic, err := net.InterfaceByName("in")
		if err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: nic.Index})
	})
	var done sync.WaitGroup
	var stop atomic.Bool
	done.Go(func() {
		buf := make([]byte, 2000)
		for !stop.Load() {
			n, from, err := unix.Recvfrom(fd, buf, 0)
			ll, ok := from.(*unix.SockaddrLinklayer)
			if err != nil || !ok || ll.Pkttype == unix.PACKET_OUTGOING || chatter(buf[:n]) {
				continue
			}
			h.arrived.Add(1)
			select {
			case h.arrivals <- fmt.Sprintf("% x", buf[14:min(n, 70)]):
			default:
			}
		}
		unix.Close(fd)
	})
	h.t.Cleanup(func() { stop.Store(true); done.Wait() })
}

// chatter reports whether the frame is ARP, or ICMPv6 that the kernel sends of
// its own accord (neighbour discovery, multicast listeners).
func chatter(frame []byte) bool {
	if len(frame) < 60 && len(frame) < 34 {
		return true
	}
	switch {
	case frame[12] == 0x08 && frame[13] == 0x00:
		return false
	case frame[12] == 0x86 && frame[13] == 0xdd:
		const ipv6Header = 14 + 40
		next := frame[20]
		return next == 0 || next == unix.IPPROTO_ICMPV6 && len(frame) > ipv6Header && frame[ipv6Header] >= 130
	}
	return true
}

// slot makes a slot's cgroup and gives its directory.
func (h *host) slot(n int) string {
	h.t.Helper()
	dir := filepath.Join(h.group, fmt.Sprintf("slot-%d", n))
	if err := os.Mkdir(dir, 0o755); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { removeCgroup(h.t, dir) })
	return dir
}

// freeze stops or thaws a cgroup and waits until it has happened.
func freeze(dir string, frozen bool) error {
	value, want := "0", "frozen 0"
	if frozen {
		value, want = "1", "frozen 1"
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.freeze"), []byte(value), 0); err != nil {
		return err
	}
	for range 2000 {
		events, err := os.ReadFile(filepath.Join(dir, "cgroup.events"))
		if err != nil {
			return err
		}
		if containsLine(string(events), want) {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return fmt.Errorf("%s does not become %q", dir, want)
}

func containsLine(text, line string) bool {
	return slices.Contains(splitLines(text), line)
}

func splitLines(s string) []string { return strings.Split(s, "\n") }

// firewall opens one whose callbacks freeze and thaw the given cgroups.
func (h *host) firewall(groups ...string) *netkern.Firewall {
	h.t.Helper()
	set := func(frozen bool) {
		for _, g := range groups {
			if err := freeze(g, frozen); err != nil {
				h.t.Errorf("freezing %v: %v", frozen, err)
			}
		}
	}
	f, err := netkern.OpenFirewall(h.t.Context(), netkern.FirewallConfig{
		Namespace: h.ns, Plan: h.plan,
		Lost:     func(string) { set(true) },
		Standing: func() { set(false) },
		Log:      slog.New(slog.DiscardHandler),
	})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		if err := f.Close(); err != nil {
			h.t.Error(err)
		}
	})
	return f
}

// proxy makes the slot's listener and answers "proxy N" to whoever connects,
// once it has read something. It gives the accepted connections.
func (h *host) proxy(slot int) <-chan net.Conn {
	h.t.Helper()
	var l netkern.Listener
	in(h.t, h.ns, func() (err error) {
		l, err = netkern.OpenUIDListener(slot)
		return err
	})
	ln := accepting(h.t, l.File)
	l.File.Close()
	conns := make(chan net.Conn, 100)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			select {
			case conns <- c:
			default:
			}
			go func() {
				buf := make([]byte, 100)
				for {
					if _, err := c.Read(buf); err != nil {
						c.Close()
						return
					}
					fmt.Fprintf(c, "proxy %d", slot)
				}
			}()
		}
	}()
	return conns
}

// attackerListens makes the attacker accept connections to port and read
// nothing until asked to.
func (h *host) attackerListens(port int) net.Listener {
	h.t.Helper()
	var ln net.Listener
	in(h.t, h.attacker, func() (err error) {
		ln, err = (&net.ListenConfig{}).Listen(h.t.Context(), "tcp", fmt.Sprintf(":%d", port))
		return err
	})
	h.t.Cleanup(func() { ln.Close() })
	return ln
}
