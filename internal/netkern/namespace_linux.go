// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netkern

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"bawn/internal/netplan"
	"bawn/internal/undo"
)

// A Listener is a socket inside a namespace: listening for TCP, bound for UDP.
type Listener struct {
	netplan.Listener
	File *os.File
}

// A Namespace is an agent's network, as built from a plan.
type Namespace struct {
	file      *os.File
	listeners []Listener
	table     netplan.Table
	undo      undo.Stack
}

// Build makes the namespace of plan. What a failed build has made is taken
// apart again before Build returns.
func Build(ctx context.Context, plan netplan.Namespace) (*Namespace, error) {
	return build(ctx, plan, func(string) error { return nil })
}

// build is Build with a check before each step, which tests use to fail it.
func build(ctx context.Context, plan netplan.Namespace, check func(step string) error) (*Namespace, error) {
	n := &Namespace{table: plan.Table}
	err := onThread(func() error { return n.build(plan, check) })
	if err != nil {
		return nil, errors.Join(fmt.Errorf("building namespace: %w", err), n.undo.Run(ctx))
	}
	return n, nil
}

func (n *Namespace) build(plan netplan.Namespace, check func(string) error) error {
	steps := []struct {
		name string
		do   func() error
	}{
		{"namespace", n.unshare},
		{"loopback", LoopbackUp},
		{"addresses", func() error { return addAddresses(plan.Addresses) }},
		{"routes", func() error { return addRoutes(plan.Routes) }},
		// Before the listeners, and long before the agent: there is no moment
		// without rules.
		{"rules", func() error { return loadTable(n.file, plan.Table, nil, false) }},
		{"settings", func() error { return apply(plan.Settings) }},
		{"listeners", func() error { return n.listen(plan.Listeners, check) }},
	}
	for _, s := range steps {
		if err := check(s.name); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if err := s.do(); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// unshare puts the calling thread, which must be one of onThread, into a new
// namespace and takes hold of it.
func (n *Namespace) unshare() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	file, err := Current()
	if err != nil {
		return err
	}
	n.file = file
	n.undo.Push("namespace", func(context.Context) error { return file.Close() })
	return nil
}

// LoopbackUp brings up the loopback interface of the calling thread's namespace.
func LoopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

func addAddresses(addresses []netip.Prefix) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	for _, a := range addresses {
		err := netlink.AddrAdd(lo, &netlink.Addr{IPNet: ipNet(a)})
		// The kernel gives lo its 127.0.0.1/8 when it comes up.
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("adding %s: %w", a, err)
		}
	}
	return nil
}

func addRoutes(routes []netplan.Route) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	for _, r := range routes {
		err := netlink.RouteAdd(&netlink.Route{
			LinkIndex: lo.Attrs().Index,
			Dst:       ipNet(r.Dest),
			Src:       r.Source.AsSlice(),
			Type:      unix.RTN_LOCAL,
			Scope:     netlink.SCOPE_HOST,
			Table:     unix.RT_TABLE_LOCAL,
		})
		if err != nil {
			return fmt.Errorf("adding route %s: %w", r, err)
		}
	}
	return nil
}

// apply writes the settings. Those below net belong to the calling thread's
// namespace.
func apply(settings []netplan.Setting) error {
	for _, s := range settings {
		file, err := os.OpenFile("/proc/sys/"+strings.ReplaceAll(s.Name, ".", "/"), os.O_WRONLY, 0)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) {
			continue // see netplan.Setting
		}
		if err != nil {
			return fmt.Errorf("setting %s: %w", s, err)
		}
		_, err = file.WriteString(s.Value)
		if err = errors.Join(err, file.Close()); err != nil {
			return fmt.Errorf("setting %s: %w", s, err)
		}
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func (n *Namespace) listen(listeners []netplan.Listener, check func(string) error) error {
	for _, l := range listeners {
		if err := check(l.String()); err != nil {
			return fmt.Errorf("%s: %w", l, err)
		}
		file, err := openListener(l, false)
		if err != nil {
			return err
		}
		n.listeners = append(n.listeners, Listener{l, file})
		n.undo.Push(l.String(), func(context.Context) error { return file.Close() })
	}
	return nil
}

// File is the namespace's descriptor, for starting programs inside. It stays
// the Namespace's own.
func (n *Namespace) File() *os.File { return n.file }

// Listeners are the sockets inside, in the order of the plan. They stay the
// Namespace's own; a port is taken for as long as the Namespace is open.
func (n *Namespace) Listeners() []Listener { return n.listeners }

// Counters reads the counters of the namespace's table.
func (n *Namespace) Counters() (map[string]Counter, error) {
	return readCounters(n.file, n.table.Name)
}

// Dial connects to a port on the loopback addresses inside, IPv4 first.
func (n *Namespace) Dial(ctx context.Context, port uint16) (*os.File, error) {
	return dialInside(ctx, n.file, port)
}

// Close lets go of the listeners and of the namespace. The kernel takes it
// apart once no process is left inside.
func (n *Namespace) Close() error { return n.undo.Run(context.Background()) }
