// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netkern_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"bawn/internal/netkern"
	"bawn/internal/netplan"
)

// A liveRule is one rule of a table as nft names it.
type liveRule struct{ chain, handle, text string }

var handleForm = regexp.MustCompile(`^\t\t(.*) # handle (\d+)$`)

// liveRules lists the rules of table inet bawn in ns.
func liveRules(t *testing.T, ns *os.File) []liveRule {
	t.Helper()
	return rulesIn(command(t, ns, "nft", "-a", "list", "table", "inet", "bawn"))
}

// rulesIn reads them out of what nft lists.
func rulesIn(list string) (rules []liveRule) {
	chain := ""
	for _, line := range splitLines(list) {
		if name, ok := strings.CutPrefix(line, "\tchain "); ok {
			chain, _, _ = strings.Cut(name, " ")
			continue
		}
		m := handleForm.FindStringSubmatch(line)
		if m != nil && chain != "" && !strings.HasPrefix(m[1], "type ") {
			rules = append(rules, liveRule{chain, m[2], m[1]})
		}
	}
	return rules
}

// killMutants deletes each rule in turn from a table that build makes, and
// expects probe to see a difference. Both get a fresh place each time.
func killMutants(t *testing.T, build func(t *testing.T, without string) (ns *os.File, probe func() []string)) {
	var rules []liveRule
	var whole []string
	t.Run("whole", func(t *testing.T) {
		ns, probe := build(t, "")
		rules = liveRules(t, ns)
		whole = probe()
	})
	for _, r := range rules {
		t.Run(r.chain+" "+r.handle, func(t *testing.T) {
			ns, probe := build(t, r.text)
			command(t, ns, "nft", "delete", "rule", "inet", "bawn", r.chain, "handle", r.handle)
			seen := probe()
			var changed []string
			for i := range whole {
				if whole[i] != seen[i] {
					changed = append(changed, fmt.Sprintf("%s (with the rule %s)", seen[i], whole[i]))
				}
			}
			if len(changed) == 0 {
				t.Errorf("nothing shows that rule %q is gone", r.text)
			}
			t.Logf("without %q: %s", r.text, strings.Join(changed, "; "))
		})
	}
}

// TestEveryRuleOfTheHostTableIsNeeded.
func TestEveryRuleOfTheHostTableIsNeeded(t *testing.T) {
	killMutants(t, func(t *testing.T, without string) (*os.File, func() []string) {
		h := newHost(t)
		w := h.wiredHost()
		if without == "" || strings.HasPrefix(without, "goto") || strings.Contains(without, "goto agents") {
			w.closeEarly() // slow, and shows these rules only
		}
		w.openFirewall()
		return h.ns, w.probe
	})
}

// A wired is a host with everybody who tries something.
type wired struct {
	firewall                                  *netkern.Firewall
	h                                         *host
	agent, second, escaped, grouped, stranger *agent
	service                                   *agent
	early                                     net.Conn // the attacker's end of a connection from before
	filled                                    string
	slow                                      net.Listener // the second agent's proxy, which reads late
}

func (h *host) wiredHost() *wired {
	h.t.Helper()
	ln := h.attackerListens(80)
	groupA, groupB := h.slot(1), h.slot(2)
	w := &wired{h: h}
	start := func(uid uint32, group string) *agent {
		a := startAgent(h.t, h.ns, uid, group)
		a.do("patience 150")
		return a
	}
	w.agent, w.second = start(uidA, groupA), start(uidB, groupB)
	// Connected before the firewall stood.
	w.agent.do("patience 2000")
	if got := w.agent.do("tcp early %s:80", attacker4); got != "ok" {
		h.t.Fatal(got)
	}
	w.agent.do("patience 150")
	var err error
	if w.early, err = ln.Accept(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { w.early.Close() })
	h.proxy(1)
	var l netkern.Listener
	in(h.t, h.ns, func() (err error) {
		l, err = netkern.OpenUIDListener(2)
		return err
	})
	w.slow = accepting(h.t, l.File)
	l.File.Close()
	w.escaped, w.grouped = start(uidA, ""), start(uidB, groupA)
	w.stranger, w.service = start(stranger, ""), start(0, "")
	for name, at := range map[string]string{"s": "127.0.0.1:8000", "t": "[::1]:8000"} {
		w.service.do("listen %s %s", name, at)
	}
	w.agent.do("listen l 127.0.0.1:9000")
	w.agent.do("bind u 127.0.0.1:9001")
	h.exposeLoopback()
	return w
}

// closeEarly has the agent close the connection from before with data queued,
// and waits until the kernel's next try to send it is far enough away: nothing
// must happen on it while the firewall opens and loses its rule.
func (w *wired) closeEarly() {
	w.filled = strings.TrimPrefix(w.agent.do("fill early"), "ok ")
	w.agent.do("close early")
	eventually(w.h.t, "a pause", func() bool {
		out := command(w.h.t, w.h.ns, "ss", "-tanoH", "dst", attacker4)
		m := persistForm.FindStringSubmatch(out)
		if m == nil {
			return false
		}
		left, err := time.ParseDuration(m[1] + strings.TrimSuffix(m[2], "ec"))
		return err == nil && left > 900*time.Millisecond
	})
}

var persistForm = regexp.MustCompile(`timer:\(persist,([0-9.]+)(ms|sec),`)

// openFirewall comes last.
func (w *wired) openFirewall() {
	h := w.h
	f := h.firewall()
	f.WithoutPrograms()
	w.firewall = f
	for slot, uid := range map[int]uint32{1: uidA, 2: uidB} {
		if err := f.Add(netplan.UIDSlot{Slot: slot, UID: uid}); err != nil {
			h.t.Fatal(err)
		}
	}
	command(h.t, h.ns, "ip", "rule", "del", "pref", "1")
	command(h.t, h.ns, "ip", "-6", "rule", "del", "pref", "1")
}

// exposeLoopback makes the host take packets for 127/8 from the link, as some
// orchestrators do, and the attacker send them.
func (h *host) exposeLoopback() {
	command(h.t, h.ns, "sysctl", "-qw", "net.ipv4.conf.out.route_localnet=1", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.out.rp_filter=0")
	command(h.t, h.attacker, "sysctl", "-qw", "net.ipv4.conf.in.route_localnet=1")
	command(h.t, h.attacker, "ip", "route", "del", "table", "local", "local", "127.0.0.0/8", "dev", "lo")
	command(h.t, h.attacker, "ip", "route", "add", "127.66.0.0/16", "via", host4, "src", attacker4)
}

// probe tries everything, and says for each try what came of it.
func (w *wired) probe() []string {
	h := w.h
	var seen []string
	note := func(what, got string) { seen = append(seen, what+": "+got) }
	note("what a closed socket sends to the attacker", w.closedToAttacker())
	proxy1 := netplan.UIDProxy(1).String()
	note("agent to its proxy", w.agent.do("tcp p %s", proxy1))
	w.agent.do("say p hello")
	note("agent hears", w.agent.do("hear p"))
	for _, to := range []string{attacker4 + ":80", "[" + attacker6 + "]:80", "127.0.0.1:8000", "[::1]:8000"} {
		note("agent tcp to "+to, w.agent.do("tcp x %s", to))
	}
	for _, to := range []string{attacker4 + ":9", "[" + attacker6 + "]:9"} {
		before := w.count(netplan.CountDenied6)
		note("agent udp to "+to, w.agent.do("udp %s", to))
		note("counted as IPv6", fmt.Sprint(w.count(netplan.CountDenied6)-before))
		note("the error that comes back", w.agent.do("error %s", to))
	}
	note("agent's uid outside of its cgroup", w.escaped.do("tcp x %s:80", attacker4))
	note("another's uid in the cgroup to the proxy", w.grouped.do("tcp x %s", proxy1))
	note("stranger to the proxy", w.stranger.do("tcp x %s", proxy1))
	note("host to the agent's port", w.service.do("tcp x 127.0.0.1:9000"))
	note("host to the agent's UDP port", w.service.do("udp 127.0.0.1:9001"))
	note("the agent's port hears", w.agent.do("accept l"))
	note("attacker to the proxy", h.attackerTries(proxy1))
	note("what a closed socket sends to the proxy", w.closedToProxy())
	return seen
}

func (h *host) attackerTries(to string) string {
	a := startAgent(h.t, h.attacker, 0, "")
	a.do("patience 150")
	return a.do("tcp x %s", to)
}

// closedToProxy has the second agent close a connection with data queued,
// which its proxy reads only then.
func (w *wired) closedToProxy() string {
	if got := w.second.do("tcp c %s", netplan.UIDProxy(2)); got != "ok" {
		return got
	}
	c, err := w.slow.Accept()
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	return closedWithData(w.second, "c", c)
}

// closedToAttacker waits for the kernel's next try to send what was queued on
// the connection from before. It either reaches the attacker or is rejected.
// (Nothing comes of its answer: the input chain rejects that.)
func (w *wired) closedToAttacker() string {
	if w.filled == "" {
		return "arrives: false" // not tried
	}
	arrived, denied := w.h.arrived.Load(), w.count(netplan.CountDenied4)
	eventually(w.h.t, "the next try", func() bool {
		return w.h.arrived.Load() > arrived || w.count(netplan.CountDenied4) > denied
	})
	return fmt.Sprint("arrives: ", w.h.arrived.Load() > arrived)
}

func (w *wired) count(name string) uint64 {
	w.h.t.Helper()
	c, err := w.firewall.Counters()
	if err != nil {
		w.h.t.Fatal(err)
	}
	return c[name].Packets
}

// closedWithData fills the agent's connection, closes it, and only then reads
// at the other end.
func closedWithData(a *agent, name string, far net.Conn) string {
	filled := strings.TrimPrefix(a.do("fill %s", name), "ok ")
	a.do("close %s", name)
	far.SetReadDeadline(time.Now().Add(time.Second))
	n, _ := io.Copy(io.Discard, far)
	return fmt.Sprint("all arrives: ", fmt.Sprint(n) == filled)
}

// TestEveryRuleOfTheAgentsTableIsNeeded.
func TestEveryRuleOfTheAgentsTableIsNeeded(t *testing.T) {
	killMutants(t, func(t *testing.T, _ string) (*os.File, func() []string) {
		n := build(t)
		return n.File(), func() []string { return probeNamespace(t, n) }
	})
}

// probeNamespace tries everything from inside an agent's namespace.
func probeNamespace(t *testing.T, n *netkern.Namespace) []string {
	t.Helper()
	for _, arrival := range []netplan.Arrival{netplan.Explicit, netplan.Transparent} {
		ln := accepting(t, listener(t, n, arrival, "tcp"))
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				c.Write([]byte(arrival))
				c.Close()
			}
		}()
	}
	// Should somebody give it a way for IPv6 after all:
	command(t, n.File(), "ip", "-6", "addr", "add", "2001:db8::5/128", "dev", "lo")
	command(t, n.File(), "ip", "-6", "route", "add", "2001:db8:1::/64", "dev", "lo")
	a := startAgent(t, n.File(), uidA, "")
	a.do("patience 150")
	var seen []string
	note := func(what, got string) { seen = append(seen, what+": "+got) }
	for name, at := range map[string]string{"l": "127.0.0.1:8080", "m": "198.18.0.2:8080", "n": "[::1]:8080"} {
		a.do("listen %s %s", name, at)
	}
	for _, to := range []string{"198.18.0.1:3128", "203.0.113.7:443"} {
		a.do("tcp c %s", to)
		note("tcp to "+to, a.do("hear c"))
	}
	for _, own := range [][2]string{{"l", "127.0.0.1:8080"}, {"m", "198.18.0.2:8080"}, {"n", "[::1]:8080"}} {
		note("tcp to own "+own[1], a.do("tcp c %s", own[1])+" "+a.do("accept %s", own[0]))
	}
	for _, to := range []string{"198.18.0.1:53", "8.8.8.8:53", "[2001:db8:1::1]:53"} {
		note("udp to "+to, a.do("udp %s", to))
	}
	root := startAgent(t, n.File(), 0, "")
	note("ping", root.do("raw 1 8.8.8.8"))
	note("another protocol", root.do("raw 253 8.8.8.8"))
	counters, err := n.Counters()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range netplan.ForAgent().Table.Counters {
		note(name, fmt.Sprint(counters[name].Packets))
	}
	return seen
}
