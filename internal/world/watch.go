// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// A DNS is the resolver of the internet.
type DNS struct{ w *World }

// Set changes what the resolver answers for name from now on: the first answer
// to the first question for an IPv4 address, and so on, the last again and
// again. "*.NAME" covers what is below NAME. No answer at all: no such name.
func (d *DNS) Set(name string, answers ...Answer) error {
	return d.w.internet.call("SetZone", Zone{name, answers}, &None{})
}

// Queries lists what was asked since the world began or since [DNS.Forget].
func (d *DNS) Queries() ([]Query, error) {
	var out []Query
	err := d.w.internet.call("Queries", Filter{}, &out)
	return out, err
}

// Forget drops the list of queries.
func (d *DNS) Forget() error {
	var out []Query
	return d.w.internet.call("Queries", Filter{Reset: true}, &out)
}

// An Upstream is the servers of the internet.
type Upstream struct{ w *World }

// Requests lists the requests for a host, by SNI or Host header; "" is all.
func (u *Upstream) Requests(host string) ([]Received, error) {
	var out Log
	err := u.w.internet.call("Received", Filter{Host: host}, &out)
	return out.Requests, err
}

// Streams lists the connections for a host, by SNI or by server address.
func (u *Upstream) Streams(host string) ([]Stream, error) {
	var out Log
	err := u.w.internet.call("Received", Filter{Host: host}, &out)
	return out.Streams, err
}

// Forget drops what was received so far.
func (u *Upstream) Forget() error {
	return u.w.internet.call("Received", Filter{Reset: true}, &Log{})
}

// Pretend turns every address of the internet but the attacker's and the
// private service's into one server; see [Pretence]. Later calls change what it
// answers. What it got shows in [Upstream.Streams] and [Upstream.Requests].
func (u *Upstream) Pretend(p Pretence) error {
	return u.w.internet.call("Pretend", p, &None{})
}

// Release opens the gate that requests name with ?gate=NAME, for good.
func (u *Upstream) Release(gate string) error {
	return u.w.internet.call("Release", gate, &None{})
}

// Told waits until a server opens the gate that a request names with
// ?told=NAME, 15 seconds at most.
func (u *Upstream) Told(gate string) error {
	return u.w.internet.call("Told", gate, &None{})
}

// A Watcher is a namespace that counts what reaches it.
type Watcher struct {
	w *World
	c *child
}

// Command prepares a program to run in the namespace as root, with the files of
// the machine. When ctx ends the program is killed with its process group.
func (a *Watcher) Command(ctx context.Context, argv ...string) *exec.Cmd {
	enter := []string{"-t", strconv.Itoa(a.c.cmd.Process.Pid), "-m", "-u", "-i", "-n", "-p", "--"}
	cmd := exec.CommandContext(ctx, "nsenter", append(enter, argv...)...)
	cmd.Dir, cmd.Env = "/", []string{"PATH=" + Path, "HOME=/root", "LANG=C.UTF-8"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// Packets lists every IP packet that arrived since the world began or since
// [Watcher.Forget]. It first sends a packet from the host and waits for it, so
// that nothing is still on its way, and so that a broken path is an error and
// not a zero.
func (a *Watcher) Packets() ([]Packet, error) {
	out, err := a.w.traffic(a.c, "Packets")
	if err != nil {
		return nil, err
	}
	if out.Lost > 0 {
		return out.Packets, fmt.Errorf("counting packets: %d more were lost", out.Lost)
	}
	return out.Packets, nil
}

// Requests lists the HTTP requests that arrived; "" is all.
func (a *Watcher) Requests(host string) ([]Received, error) {
	var out Log
	err := a.c.call("Received", Filter{Host: host}, &out)
	return out.Requests, err
}

// Forget starts the count of packets anew.
func (a *Watcher) Forget() error {
	if _, err := a.Packets(); err != nil {
		return err
	}
	if err := a.c.call("Received", Filter{Reset: true}, &Log{}); err != nil {
		return err
	}
	return a.c.call("Forget", None{}, &None{})
}

// Wire counts what left the host by its link, to whatever address.
func (w *World) Wire() ([]Flow, error) {
	out, err := w.traffic(w.internet, "Wire")
	return out.Flows, err
}

// ForgetWire starts that count anew.
func (w *World) ForgetWire() error {
	if _, err := w.Wire(); err != nil {
		return err
	}
	return w.internet.call("ForgetWire", None{}, &None{})
}

// traffic sends a packet with a mark from the host to every sniffer and asks
// one of them what it saw before.
func (w *World) traffic(c *child, method string) (Traffic, error) {
	mark := newMark()
	if err := w.children[0].call("Mark", mark, &None{}); err != nil {
		return Traffic{}, err
	}
	var out Traffic
	err := c.call(method, mark, &out)
	return out, err
}
