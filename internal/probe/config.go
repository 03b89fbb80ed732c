// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"bawn/internal/ids"
	"bawn/internal/netplan"
)

// A Config says where the probe stands and what it tries. [Default] fills in
// what is the same on every host.
type Config struct {
	Placement ids.Placement `json:"placement"`
	// Proxy is the explicit proxy of the session.
	Proxy netip.AddrPort `json:"proxy"`
	// Nameservers are Bawn's own resolvers in this place; all others must not
	// answer.
	Nameservers []netip.Addr `json:"nameservers,omitempty"`
	// Canary is a host name that no policy allows.
	Canary string `json:"canary"`
	// CA and Bundle are files in the view.
	CA     string `json:"ca"`
	Bundle string `json:"bundle"`
	// Timeout bounds each try.
	Timeout time.Duration `json:"timeout"`

	TCP      []netip.AddrPort `json:"tcp,omitempty"`      // addresses that look public
	UDP      []netip.AddrPort `json:"udp,omitempty"`      // the same
	Ping     []netip.Addr     `json:"ping,omitempty"`     // the same
	DNS      []netip.Addr     `json:"dns,omitempty"`      // other people's resolvers
	Metadata []netip.Addr     `json:"metadata,omitempty"` // of cloud providers
	// Loopback are services of the host. The caller adds a listener of its own,
	// so that there is something to find.
	Loopback []netip.AddrPort `json:"loopback,omitempty"`
	Abstract []string         `json:"abstract,omitempty"` // names of abstract sockets on the host, without the leading NUL
	Services []string         `json:"services,omitempty"` // paths of local services' sockets
	Own      []string         `json:"own,omitempty"`      // paths of Bawn's own sockets
	Files    []string         `json:"files,omitempty"`    // paths of Bawn's own files and directories
	Spools   []string         `json:"spools,omitempty"`   // directories by which others would run something for the agent
	// Datagrams are UDP services of the host that answer, as Loopback's do.
	Datagrams []netip.AddrPort `json:"datagrams,omitempty"`
	// Sources are ports from which a connection is tried.
	Sources []uint16 `json:"sources,omitempty"`
}

// Default is the configuration for a session in the placement given, whose
// explicit proxy is proxy.
func Default(placement ids.Placement, proxy netip.AddrPort) Config {
	c := Config{
		Placement: placement, Proxy: proxy, Canary: "canary.bawn.invalid", Timeout: 700 * time.Millisecond,
		CA: public + "/ca.crt", Bundle: public + "/bundle.crt",
		TCP: ports(publicAddrs, 22, 25, 53, 80, 443, 853, 8443, 9418), UDP: ports(publicAddrs, 53, 123, 443, 3478, 51820),
		Ping: publicAddrs, DNS: resolvers, Metadata: metadata,
		Loopback: ports(loopback, 22, 25, 80, 111, 443, 631, 2375, 3306, 5432, 5900, 6379, 8000, 8080, 9200, 11434),
		Services: services, Own: []string{"/run/bawn/admin.sock", "/run/bawn/netd.sock"},
		Spools: spools, Sources: sources,
	}
	if placement == ids.PlacementNetns {
		c.Nameservers = []netip.Addr{netplan.Gateway}
	}
	return c
}

// public is where Bawn's public files lie in every view (proc.PublicPath).
const public = "/run/bawn/public"

// Addresses that look public to a firewall and are nobody's (RFC 5737, RFC
// 3849): should the wall be open, what is sent there reaches nobody.
var publicAddrs = addrs("192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1")

// resolvers are such addresses, and the stubs of systemd and Docker, which
// answer for a name below "invalid" themselves (RFC 6761).
var resolvers = addrs("192.0.2.53", "198.51.100.53", "127.0.0.53", "127.0.0.54", "127.0.0.11", "::1", "2001:db8::53")

// spools are where cron, at and systemd look for what others want done.
var spools = []string{
	"/var/spool/cron", "/var/spool/cron/crontabs", "/var/spool/cron/atjobs", "/var/spool/at", "/var/spool/atjobs", "/etc/cron.d", "/etc/sudoers.d",
	"/var/lib/systemd/linger", "/run/systemd/transient", "/run/systemd/system", "/etc/systemd/system", "/usr/lib/systemd/system", "/etc/ld.so.preload.d",
}

// sources are ports that a rule of another kind might trust: those of the
// proxy, of resolvers, and usual ones of previews.
var sources = []uint16{netplan.ProxyPort, 3000, 5173, 8080}

// metadata are where clouds keep their machines' credentials.
var metadata = addrs(
	"169.254.169.254", "fd00:ec2::254", // AWS, Google, Azure, and others
	"169.254.170.2",   // AWS containers
	"100.100.100.200", // Alibaba
	"168.63.129.16",   // Azure's wire server
)

var loopback = addrs("127.0.0.1", "::1")

// services are sockets by which a local service would do something for the
// agent: resolve, start a process, tell a name.
var services = []string{
	"/run/dbus/system_bus_socket", "/run/systemd/private", "/run/systemd/resolve/io.systemd.Resolve",
	"/run/systemd/resolve/io.systemd.Resolve.Monitor", "/run/systemd/userdb/io.systemd.DynamicUser", "/run/systemd/io.systemd.Manager",
	"/run/nscd/socket", "/var/run/nscd/socket", "/run/avahi-daemon/socket", "/run/docker.sock", "/var/run/docker.sock",
	"/run/containerd/containerd.sock", "/run/podman/podman.sock", "/run/crio/crio.sock", "/run/snapd.socket", "/run/lxd.socket",
	"/var/lib/lxd/unix.socket", "/run/libvirt/libvirt-sock", "/run/rpcbind.sock", "/run/cups/cups.sock", "/tmp/.X11-unix/X0",
}

func addrs(list ...string) (a []netip.Addr) {
	for _, s := range list {
		a = append(a, netip.MustParseAddr(s))
	}
	return a
}

func ports(list []netip.Addr, numbers ...uint16) (a []netip.AddrPort) {
	for _, addr := range list {
		for _, n := range numbers {
			a = append(a, netip.AddrPortFrom(addr, n))
		}
	}
	return a
}

// maxConfig bounds a Config on its way to the probe, in bytes.
const maxConfig = 256 << 10

// ReadConfig reads one Config, and nothing else, from r.
func ReadConfig(r io.Reader) (Config, error) {
	var c Config
	dec := json.NewDecoder(io.LimitReader(r, maxConfig))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		return Config{}, fmt.Errorf("reading the probe's configuration: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Config{}, errors.New("reading the probe's configuration: more than one value")
	}
	if _, err := ids.ParsePlacement(string(c.Placement)); err != nil || !c.Proxy.IsValid() || c.Canary == "" || c.Timeout <= 0 {
		return Config{}, errors.New("reading the probe's configuration: placement, proxy, canary and timeout are needed")
	}
	return c, nil
}
