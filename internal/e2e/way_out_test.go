// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"bawn/internal/world"
	"bawn/internal/world/attempts"
	"bawn/internal/world/operator"
)

// wantCodes says which code an agent is told for an attempt.
func wantCodes() map[string]string {
	return map[string]string{
		"name":           "host_not_allowed",
		"ip_literal":     "ip_literal_denied",
		"other_port":     "port_not_allowed",
		"host_front":     "host_header_invalid",
		"plain":          "host_not_allowed",
		"metadata_proxy": "ip_literal_denied",
		"metadata_name":  "address_not_public",
		"redirect":       "host_not_allowed",
	}
}

func TestI1NoWayOutButOne(t *testing.T) {
	h := boot(t)
	for placement, agent := range placements() {
		t.Run(placement, func(t *testing.T) {
			if err := h.w.ForgetWire(); err != nil {
				t.Fatal(err)
			}
			r := h.in(t, agent, attempts.Argv(attempts.All()...)...)
			results, err := attempts.Parse(r.out)
			if err != nil || len(results) != len(attempts.All()) {
				t.Fatalf("%d results (%v): %s%s", len(results), err, r.out, r.err)
			}
			for _, a := range results {
				t.Logf("%-14s %s [%s]", a.Attempt, a.What, a.Code)
				if want := wantCodes()[a.Attempt]; want != "" && a.Code != want {
					t.Errorf("%s: the agent was told %q (%s), want %s", a.Attempt, a.Code, a.What, want)
				}
			}
			if found := h.evil(t); len(found) > 0 {
				t.Errorf("got out:\n%s", strings.Join(found, "\n"))
			}
			h.onlyAllowedFlows(t)
			if placement == "netns" {
				h.directOnRecord(t)
			}
		})
	}
	if found := h.strangers(t); len(found) > 0 {
		t.Errorf("I3: asked of the resolver:\n%s", strings.Join(found, "\n"))
	}
}

// directOnRecord looks for the connections past the proxy: in a namespace they
// are led to Bawn, which says on record that they were tried.
func (h *host) directOnRecord(t *testing.T) {
	t.Helper()
	for _, addr := range []string{world.AttackerAddr, world.MetadataAddr, world.LANAddr} {
		tried := h.decisions(t, func(r operator.Record) bool {
			return r.Arrival == "transparent" && strings.Contains(r.Host+r.Asked+r.Detail, addr)
		})
		if len(tried) == 0 || tried[0].Verdict != "deny" || tried[0].Code != "ip_literal_denied" {
			t.Errorf("records of the connection to %s: %+v", addr, tried)
		}
	}
}

// onlyAllowedFlows looks at everything that left the host: questions to the
// resolver and connections to servers of allowed names, nothing else.
func (h *host) onlyAllowedFlows(t *testing.T) {
	t.Helper()
	flows, err := h.w.Wire()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range flows {
		dst := fmt.Sprintf("%s %s:%d", f.Proto, f.Dst, f.DstPort)
		switch dst {
		case "udp " + world.DNSAddr + ":53", "tcp " + world.APIAddr + ":443", "tcp " + world.APIAddr6 + ":443":
		default:
			t.Errorf("left the host: %s", f)
		}
	}
}

// TestI1FlushedRulesetLetsNothingOut flushes all rules of the host, again and
// again, under an agent that sends as fast as it can.
func TestI1FlushedRulesetLetsNothingOut(t *testing.T) {
	h := boot(t)
	const sender = `
import socket, sys
to = (sys.argv[1], 443)
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
print("sending", flush=True)
while True:
    for f in (lambda: u.sendto(b"secret", to), lambda: socket.create_connection(to, 0.05)):
        try:
            f()
        except OSError:
            pass
`
	for placement, agent := range placements() {
		t.Run(placement, func(t *testing.T) {
			busy := h.shell(t, agent)
			busy.run(t, "/usr/bin/python3 -c '"+sender+"' "+world.AttackerAddr+" >/tmp/sender 2>&1 & sleep 0.5; cat /tmp/sender")
			for range 5 {
				h.root(t, "nft flush ruleset")
				h.root(t, "sleep 0.3")
				if placement == "uid" {
					eventually(t, "the table stands again", func() bool {
						return h.root(t, "nft list table inet bawn").status == 0
					})
				}
			}
			eventually(t, "an allowed request succeeds again", func() bool {
				status, _ := busy.curl(t, "https://"+h.w.Names.API+"/after")
				return status == "200"
			})
			if found := h.evil(t); len(found) > 0 {
				t.Errorf("got out: %d packets, the first %s", len(found), found[0])
			}
		})
	}
}

// TestAgentsCannotReachEachOther has agents of both placements listen, and
// each try every address at which another might be.
func TestAgentsCannotReachEachOther(t *testing.T) {
	h := bootTwoOfEach(t)
	names := []string{"dev", "dev2", "guest", "guest2"}
	const listener = `
import socket, sys, threading
def serve(family, at):
    s = socket.socket(family, socket.SOCK_STREAM)
    if family != socket.AF_UNIX:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(at)
    s.listen()
    while True:
        c, _ = s.accept()
        print("reached by", c.recv(100), flush=True)
port = int(sys.argv[1])
for family, at in ((socket.AF_INET, ("0.0.0.0", port)), (socket.AF_UNIX, "\0bawn-e2e-%d" % port)):
    threading.Thread(target=serve, args=(family, at), daemon=False).start()
print("listening", flush=True)
`
	const caller = `
import socket, sys
me = sys.argv[1].encode()
for port in range(7101, 7105):
    if port == int(sys.argv[2]):
        continue
    for family, at in [(socket.AF_INET, (a, port)) for a in ("127.0.0.1", "192.168.50.2", "198.18.0.1", "198.18.0.2", "0.0.0.0")] + [(socket.AF_UNIX, "\0bawn-e2e-%d" % port)]:
        try:
            s = socket.socket(family, socket.SOCK_STREAM)
            s.settimeout(1)
            s.connect(at)
            s.sendall(me)
        except OSError:
            pass
print("tried")
`
	shells := map[string]*shell{}
	for i, n := range names {
		shells[n] = h.shell(t, n)
		out := shells[n].run(t, fmt.Sprintf("/usr/bin/python3 -c '%s' %d >$HOME/reached 2>&1 & sleep 0.5; cat $HOME/reached", listener, 7101+i))
		if !strings.Contains(out, "listening") {
			t.Fatalf("%s does not listen: %s", n, out)
		}
	}
	for i, n := range names {
		if out := shells[n].run(t, fmt.Sprintf("/usr/bin/python3 -c '%s' %s %d", caller, n, 7101+i)); !strings.Contains(out, "tried") {
			t.Fatalf("%s could not try: %s", n, out)
		}
	}
	for _, n := range names {
		out := shells[n].run(t, "cat $HOME/reached; ls -d /var/lib/bawn/agents/* 2>/dev/null; ps ax -o user= 2>/dev/null | sort -u")
		if strings.Contains(out, "reached by") {
			t.Errorf("%s was reached: %s", n, out)
		}
		for _, other := range names {
			if other != n && strings.Contains(out, "agents/"+other) {
				t.Errorf("%s sees files of %s: %s", n, other, out)
			}
		}
	}
}

// bootTwoOfEach starts Bawn with two agents of each placement.
func bootTwoOfEach(t *testing.T) *host {
	t.Helper()
	h := boot(t)
	h.bawn(t, "agent", "create", "dev2", "--user", "bob", "--placement", "netns")
	h.bawn(t, "agent", "create", "guest2", "--user", "bob", "--placement", "uid")
	h.apply(t, usual+"  dev2: {profile: coder}\n  guest2: {profile: coder}\n")
	return h
}
