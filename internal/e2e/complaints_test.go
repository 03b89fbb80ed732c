// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"bawn/internal/world/operator"
)

// TestWhatUsersOfOthersComplainedOf: rows 46, 48, 49, 51, 52 and 54 of the list
// of complaints, and row 205 of the boundary's.
func TestWhatUsersOfOthersComplainedOf(t *testing.T) {
	h := boot(t)
	t.Run("a denial is the same on every path, and ends nothing", h.deniedAlike)
	t.Run("a private address has a reason", h.privateHasAReason)
	t.Run("the agent's loopback is its own", h.ownLoopback)
	t.Run("Bawn's own traffic is in no report", h.ownTrafficIsApart)
	t.Run("each of many at once is on record once", h.manyAtOnce)
}

// deniedAlike: the program goes on after each refusal, and each names its host.
func (h *host) deniedAlike(t *testing.T) {
	evil := h.w.Names.Evil
	for placement, agent := range placements() {
		r := h.sh(t, agent, "curl -s -o /dev/null -w '%{http_connect} ' https://"+evil+"/; curl -s -D - -o /dev/null http://"+evil+"/ | grep -i bawn-code; echo went on")
		if !strings.HasPrefix(r.out, "403 ") || !strings.Contains(r.out, "host_not_allowed") || !strings.HasSuffix(r.out, "went on\n") || r.status != 0 {
			t.Errorf("%s: %+v", placement, r)
		}
		d := h.decisions(t, func(x operator.Record) bool { return x.Agent == agent && x.Host == evil })
		if len(d) != 2 {
			t.Errorf("%s: %d records of it", placement, len(d))
		}
		for _, x := range d {
			if x.Code != "host_not_allowed" || x.Verdict != "deny" {
				t.Errorf("%s: %+v", placement, x)
			}
		}
		table := h.bawn(t, "log", "--agent", agent)
		if n := strings.Count(table, evil); n != 2 || strings.Contains(table, "null") {
			t.Errorf("%s: the log has it %d times\n%s", placement, n, table)
		}
	}
}

// privateHasAReason: a name that resolves to a private address is refused with
// 403 and says why, unless its rule names the range.
func (h *host) privateHasAReason(t *testing.T) {
	if status, code := h.curl(t, "dev", "https://"+h.w.Names.LAN+"/"); status != "403" || code != "address_not_public" {
		t.Errorf("%s %s", status, code)
	}
}

// ownLoopback: services of the agent's own are free, those of the host are not
// there.
func (h *host) ownLoopback(t *testing.T) {
	serve := h.w.Host.Command(t.Context(), "/usr/bin/python3", "-m", "http.server", "8124", "--bind", "127.0.0.1", "--directory", "/usr/share")
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	defer serve.Wait()
	defer serve.Process.Kill()
	for h.root(t, "curl -s -m 1 -o /dev/null http://127.0.0.1:8124/").status != 0 {
		time.Sleep(50 * time.Millisecond)
	}
	r := h.sh(t, "dev", "cd && echo mine >x && (/usr/bin/python3 -m http.server 8123 --bind 127.0.0.1 >/dev/null 2>&1 &) ; for i in 1 2 3 4 5 6 7 8 9; do curl -s -m 2 http://127.0.0.1:8123/x && break; sleep 0.3; done; curl -s -m 5 http://127.0.0.1:8124/ && echo HOST")
	if r.out != "mine\n" {
		t.Errorf("%+v", r)
	}
	if r := h.sh(t, "guest", "curl -s -m 5 http://127.0.0.1:8124/ && echo HOST"); strings.Contains(r.out, "HOST") {
		t.Errorf("guest: %+v", r)
	}
}

// ownTrafficIsApart: what the self-test tried is on record, and in no report
// unless it is asked for.
func (h *host) ownTrafficIsApart(t *testing.T) {
	h.examined(t)
	const canary = "canary.bawn.invalid"
	for _, args := range [][]string{{"log"}, {"usage"}, {"report", "--since", "1h"}} {
		if out := h.bawn(t, args...); strings.Contains(out, canary) || strings.Contains(out, "doctor") {
			t.Errorf("%v:\n%s", args, out)
		}
	}
	if out := h.bawn(t, "log", "--agent", "doctor"); !strings.Contains(out, canary) {
		t.Errorf("asked for, it is not there:\n%s", out)
	}
}

// manyAtOnce: twelve requests at once, half of them refused, are twelve decisions
// with numbers of their own.
func (h *host) manyAtOnce(t *testing.T) {
	api := h.w.Names.API
	var lines []string
	for i := range 12 {
		host := api
		if i%2 == 1 {
			host = h.w.Names.Evil
		}
		lines = append(lines, fmt.Sprintf("curl -s -m 20 -o /dev/null https://%s/at-once-%d &", host, i))
	}
	before, err := h.Decisions(func(operator.Record) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	h.sh(t, "dev", strings.Join(lines, "\n")+"\nwait; true")
	var requests []string
	all := h.decisions(t, func(x operator.Record) bool {
		return x.Agent == "dev" && !slices.ContainsFunc(before, func(y operator.Record) bool { return y.Request == x.Request })
	})
	allowed, denied := 0, 0
	for _, x := range all {
		requests = append(requests, x.Request)
		switch {
		case x.Host == api && x.Verdict == "allow" && strings.HasPrefix(x.Path, "/at-once-"):
			allowed++
		case x.Host == h.w.Names.Evil && x.Verdict == "deny":
			denied++
		case x.Host == api && x.Verdict == "allow": // the tunnel's own
		default:
			t.Errorf("%+v", x)
		}
	}
	slices.Sort(requests)
	if n := len(slices.Compact(slices.Clone(requests))); allowed != 6 || denied != 6 || n != len(requests) {
		t.Errorf("%d allowed, %d denied, %d of %d requests", allowed, denied, n, len(requests))
	}
}
