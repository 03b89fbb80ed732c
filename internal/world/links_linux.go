// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"net"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// hasteIPv6 makes addresses of links that come later usable at once, instead of
// after the second or two in which others could say that they have them too.
func hasteIPv6() error {
	for _, which := range []string{"all", "default"} {
		err := os.WriteFile("/proc/sys/net/ipv6/conf/"+which+"/accept_dad", []byte("0"), 0)
		if err != nil {
			return fmt.Errorf("turning duplicate address detection off: %w", err)
		}
	}
	return nil
}

// makeLink makes a pair of interfaces from here to the namespace of descriptor fd.
func makeLink(here, there string, fd int) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = here
	err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: there, PeerNamespace: netlink.NsFd(fd)})
	if err != nil {
		return fmt.Errorf("making link %s: %w", here, err)
	}
	return nil
}

// addresses gives an interface its addresses and sets it up.
func addresses(name string, cidrs ...string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("finding %s: %w", name, err)
	}
	for _, cidr := range cidrs {
		a, err := netlink.ParseAddr(cidr)
		if err != nil {
			return fmt.Errorf("reading address %s: %w", cidr, err)
		}
		if a.IP.To4() == nil {
			a.Flags = unix.IFA_F_NODAD // usable at once: nobody else is on the link
		}
		if err := netlink.AddrAdd(link, a); err != nil {
			return fmt.Errorf("adding address %s to %s: %w", cidr, name, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("setting %s up: %w", name, err)
	}
	return nil
}

// carried waits until the kernel says that a link that is up at both ends
// carries packets: it tells so late, and drops what is sent before.
func carried(name string) error {
	for range 500 {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("finding %s: %w", name, err)
		}
		if link.Attrs().OperState == netlink.OperUp {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("waiting for %s: not up after 5 s", name)
}

// route sends a destination by way of a gateway; "default" covers its family.
func route(dst, via string) error {
	gw := net.ParseIP(via)
	all := "0.0.0.0/0"
	if gw.To4() == nil {
		all = "::/0"
	}
	if dst == "default" {
		dst = all
	}
	_, n, err := net.ParseCIDR(dst)
	if err != nil {
		return fmt.Errorf("reading route %s: %w", dst, err)
	}
	if err := netlink.RouteAdd(&netlink.Route{Dst: n, Gw: gw}); err != nil {
		return fmt.Errorf("adding route to %s by %s: %w", dst, via, err)
	}
	return nil
}

// silent makes a router throw away what goes to cidr, without a word.
func silent(cidr string) error {
	_, n, err := net.ParseCIDR(cidr)
	if err != nil {
		return fmt.Errorf("reading route %s: %w", cidr, err)
	}
	if err := netlink.RouteAdd(&netlink.Route{Dst: n, Type: unix.RTN_BLACKHOLE}); err != nil {
		return fmt.Errorf("adding silent route to %s: %w", cidr, err)
	}
	return nil
}

// everywhere makes this namespace answer for every address that no other route
// covers.
func everywhere() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("finding lo: %w", err)
	}
	for _, all := range []string{"0.0.0.0/0", "::/0"} {
		_, n, err := net.ParseCIDR(all)
		if err != nil {
			return fmt.Errorf("reading route %s: %w", all, err)
		}
		r := &netlink.Route{Dst: n, Type: unix.RTN_LOCAL, LinkIndex: lo.Attrs().Index, Scope: netlink.SCOPE_HOST}
		if err := netlink.RouteAdd(r); err != nil {
			return fmt.Errorf("answering for every address: %w", err)
		}
	}
	return nil
}

// forwarding turns this namespace into a router.
func forwarding() error {
	for _, f := range []string{"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding"} {
		if err := os.WriteFile(f, []byte("1"), 0); err != nil {
			return fmt.Errorf("turning forwarding on: %w", err)
		}
	}
	return nil
}

// sniff counts what arrives on the named interface from now on.
func sniff(name string) (*sniffer, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("finding %s: %w", name, err)
	}
	s, err := newSniffer(link.Attrs().Index)
	if err != nil {
		return nil, err
	}
	go s.run()
	return s, nil
}
