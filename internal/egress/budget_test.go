// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"

	"bawn/internal/budget"
	"bawn/internal/codes"
	"bawn/internal/egress"
	"bawn/internal/labels"
	"bawn/internal/names"
	"bawn/internal/netplan"
	"bawn/internal/verdict"
)

const wildcards = `
version: 1
profiles:
  p:
    rules:
      - {host: "*.example.com", ports: [443, 80]}
      - {host: named.example.com}
      - {host: "*.db.example.com", ports: [5432/tcp], inspect: none}
agents:
  dev: {profile: p}
`

// TestNamesUnderWildcardsAreCounted: a name that the agent makes up is counted
// before anybody is asked for it, by whichever way it comes, once; beyond the
// budget it is refused, and nobody is asked.
func TestNamesUnderWildcardsAreCounted(t *testing.T) {
	limit := func(r *rig) { r.cfg.Budget = budget.NewLabels(labels.Limits{Names: 3}) }
	r := newRig(t, wildcards, limit)
	r.upstream("a.example.com", apiAddr, 443, echo)
	r.upstream("b.example.com", "93.184.215.15", 80, echo)
	for _, other := range []string{"c.example.com", "d.example.com", "named.example.com"} {
		r.net.add(other, apiAddr)
	}
	client := r.client(r.listen(netplan.Explicit))
	for i, c := range []struct {
		url  string
		code codes.Code // of the refusal; "": it goes out
		asks int        // of the resolver, up to here
	}{
		{"https://a.example.com/1", "", 1},
		{"https://a.example.com/2", "", 1},
		{"http://b.example.com/", "", 2},
		{"http://c.example.com/", codes.UpstreamUnreachable, 3}, // it was allowed, and asked for
		{"http://d.example.com/", codes.DNSLabelBudget, 3},
		{"http://sk-ant.aabb.ccdd.x.example.com/", codes.DNSLabelBudget, 3},
		{"https://a.example.com/3", "", 3},
		{"http://named.example.com/", codes.DNSLabelBudget, 3}, // named for another port only
	} {
		res, err := client.Get(c.url)
		must(t, err)
		io.Copy(io.Discard, res.Body)
		res.Body.Close()
		if got := codes.Code(res.Header.Get("Bawn-Code")); got != c.code || (c.code == codes.DNSLabelBudget && res.StatusCode != 429) {
			t.Errorf("%d: %s: %s, code %q, want %q", i, c.url, res.Status, got, c.code)
		}
		if n := r.net.lookups(); n != c.asks {
			t.Errorf("%d: %s: %d look-ups, want %d", i, c.url, n, c.asks)
		}
	}
	conn := r.dial(r.listen(netplan.Explicit))
	fmt.Fprint(conn, "CONNECT e.example.com:443 HTTP/1.1\r\nHost: e.example.com:443\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: "CONNECT"})
	must(t, err)
	wantDenial(t, res, 429, codes.DNSLabelBudget)
	if d, _ := r.journal.all(); d[len(d)-1].Code != codes.DNSLabelBudget || d[len(d)-1].Verdict != verdict.Deny || d[len(d)-1].Host != "e.example.com" {
		t.Errorf("decision %+v", d[len(d)-1])
	}
	if n := r.net.lookups(); n != 3 {
		t.Errorf("%d look-ups", n)
	}
}

// madeUp is a table in which every address stands for a name of its own.
type madeUp struct{}

func (madeUp) Name(_ string, a netip.Addr) (names.Host, bool) {
	return names.MustParse(fmt.Sprintf("n%d.db.example.com", a.As4()[3])), true
}

// TestNamesOfAnyTCPAreCounted: a redirected connection of another protocol than
// HTTP is counted too, before its name is looked up.
func TestNamesOfAnyTCPAreCounted(t *testing.T) {
	shared := budget.NewLabels(labels.Limits{Names: 2})
	looked := 0
	for i := range 4 {
		limit := func(r *rig) { r.cfg.Budget, r.cfg.Names = shared, madeUp{} }
		r := newRig(t, wildcards, limit, redirectedTo(fmt.Sprintf("198.18.1.%d:5432", i+1)))
		conn, err := net.Dial("tcp", r.listen(netplan.Transparent))
		if err == nil { // else the reset was faster
			io.Copy(io.Discard, conn)
			conn.Close()
		}
		if i < 2 {
			if o := r.journal.lastOutcome(t, 1); o.Code != codes.AddressUnresolved { // let through, and asked for
				t.Errorf("connection %d: %+v", i, o)
			}
		} else if d := r.journal.lastDecision(t, 1); d.Code != codes.DNSLabelBudget || d.Verdict != verdict.Deny {
			t.Errorf("connection %d: %+v", i, d)
		}
		looked += r.net.lookups()
	}
	if looked != 2 {
		t.Errorf("%d look-ups, want 2", looked)
	}
}

var _ egress.Names = madeUp{}
