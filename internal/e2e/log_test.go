// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"bawn/internal/apitype"
	"bawn/internal/audit"
)

// entries are what a command prints as JSON lines.
func (h *host) entries(t *testing.T, args ...string) (list []audit.Entry) {
	t.Helper()
	for line := range strings.Lines(h.bawn(t, args...)) {
		var e audit.Entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		list = append(list, e)
	}
	return list
}

// TestI8WhoDidWhat: requests that run at once are entries each, and each end of
// each connection leads back to the session.
func TestI8WhoDidWhat(t *testing.T) {
	h := boot(t)
	for placement, agent := range placements() {
		s, path := h.shell(t, agent), "/"+token()
		s.run(t, `for i in 1 2 3 4 5 6 7 8 9 10 11 12; do curl -sS -o /dev/null https://`+h.w.Names.API+path+`/$i & done; wait`)
		list := h.entries(t, "log", "--json", "--path", path+"/")
		seen := map[uint64]bool{}
		for _, e := range list {
			seen[e.Decision.Seq] = true
			if e.Decision.Agent != agent || e.Outcome == nil && len(list) != 12 {
				t.Errorf("%s: %+v", placement, e.Decision)
			}
		}
		if len(list) != 12 || len(seen) != 12 {
			t.Fatalf("%s: %d entries with %d numbers for 12 requests", placement, len(list), len(seen))
		}
		eventually(t, "the outcomes follow", func() bool {
			list = h.entries(t, "log", "--json", "--path", path+"/", "--status", "200")
			return len(list) == 12
		})
		got, err := h.w.Upstream.Requests(h.w.Names.API)
		if err != nil || len(got) < 12 {
			t.Fatalf("the server got %d requests, %v", len(got), err)
		}
		e := list[0]
		at := e.Decision.Time.Add(time.Millisecond).Format(time.RFC3339Nano)
		for side, args := range map[string][]string{
			"client": {e.Decision.Client}, "local": {e.Outcome.Local, "--upstream"}, "server": {e.Outcome.Upstream, "--upstream"},
		} {
			var w apitype.Who
			if err := json.Unmarshal([]byte(h.bawn(t, append([]string{"who", "--json", "--at", at}, args...)...)), &w); err != nil {
				t.Fatal(err)
			}
			if w.Side != side || len(w.Found) == 0 || w.Found[0].Agent != agent || w.Found[0].Session != e.Decision.Session {
				t.Errorf("%s: who %v: %+v", placement, args, w)
			}
		}
		if out := h.bawn(t, "usage", "--agent", agent); !strings.Contains(out, h.w.Names.API) {
			t.Errorf("%s: usage:\n%s", placement, out)
		}
	}
	if out := h.bawn(t, "report", "--since", "1h"); !strings.Contains(out, "## `dev` (new)") || !strings.Contains(out, h.w.Names.API) {
		t.Errorf("report:\n%s", out)
	}
	// An index that is taken away under its feet is made anew, and nothing is
	// missing meanwhile.
	before := len(h.entries(t, "log", "--json"))
	h.root(t, "rm -f /var/lib/bawn/admin/index.db*")
	if after := len(h.entries(t, "log", "--json")); after != before || before < 24 {
		t.Errorf("%d entries before the index was lost, %d after", before, after)
	}
	eventually(t, "the index is back", func() bool { return h.root(t, "test -s /var/lib/bawn/admin/index.db").status == 0 })
}
