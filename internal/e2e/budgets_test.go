// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bawn/internal/apitype"
	"bawn/internal/world/operator"
)

// budgets is usual, in short, with a budget for what an agent may do in a day.
func budgets(requests int) string {
	return fmt.Sprintf(`version: 1
profiles:
  coder:
    rules:
      - host: api.example.com
    budgets: {requests: %d/day, egress_bytes: 1MB/day}
agents:
  dev: {profile: coder}
  guest: {profile: coder}
`, requests)
}

// spent asks what an agent has used of a budget.
func (h *host) spent(t *testing.T, agent, budget string) apitype.BudgetUse {
	t.Helper()
	var b apitype.Budgets
	if err := json.Unmarshal([]byte(h.bawn(t, "budget", "--json", agent)), &b); err != nil {
		t.Fatal(err)
	}
	for _, u := range b.Budgets {
		if u.Budget == budget {
			return u
		}
	}
	return apitype.BudgetUse{}
}

// TestI13BudgetsOutliveWhatCounts: no kill, no restart and no other session gives
// an agent its budget anew; another agent has its own.
func TestI13BudgetsOutliveWhatCounts(t *testing.T) {
	h := boot(t)
	url := func() string { return "https://" + h.w.Names.API + "/" + token() }
	through := 0
	try := func(agent string) (status, code string) {
		status, code = h.curl(t, agent, url())
		if status == "200" && agent == "dev" {
			through++
		}
		return status, code
	}
	serves := func() {
		t.Helper()
		eventually(t, "another agent is served", func() bool { status, _ := try("guest"); return status == "200" })
	}
	h.apply(t, budgets(60))
	for range 3 {
		if status, code := try("dev"); status != "200" {
			t.Fatalf("within the budget: %s %s", status, code)
		}
	}
	h.signal(t, "proxy", "KILL")
	serves()
	h.apply(t, budgets(8)) // smaller: what was used counts
	for range 8 {
		try("dev")
	}
	if status, code := try("dev"); status != "429" || code != "budget_exceeded" {
		t.Errorf("beyond the budget: %s %s", status, code)
	}
	if through > 8 || through < 6 {
		t.Errorf("%d requests went through, of 8", through)
	}
	eventually(t, "bawn budget shows it", func() bool { u := h.spent(t, "dev", "requests"); return u.Used == 8 && u.Limit == 8 })
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := h.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	if status, code := try("dev"); status != "429" || code != "budget_exceeded" {
		t.Errorf("after another start: %s %s", status, code)
	}
	if u := h.spent(t, "guest", "requests"); u.Used < 1 || u.Used > 7 {
		t.Errorf("the other agent has used %d", u.Used)
	}
	h.apply(t, budgets(100))
	if status, code := try("dev"); status != "200" {
		t.Errorf("with a larger budget: %s %s", status, code)
	}
	h.apply(t, strings.Replace(budgets(100), "  dev: {profile: coder}\n", "", 1))
	h.bawn(t, "agent", "remove", "dev")
	h.bawn(t, "agent", "create", "dev", "--user", "alice", "--placement", "netns")
	h.apply(t, budgets(100))
	eventually(t, "an agent that is made again begins anew", func() bool { u := h.spent(t, "dev", "requests"); return u.Limit == 100 && u.Used == 0 })
	if table := h.bawn(t, "budget"); !strings.Contains(table, "requests 100/day") || !strings.Contains(table, "profile coder, line 6") {
		t.Errorf("bawn budget says\n%s", table)
	}
}

// TestMetricsAreScraped: what Bawn counts is what promtool takes, and comes over a
// port of the loopback as the documentation says.
func TestMetricsAreScraped(t *testing.T) {
	h := boot(t)
	if status, _ := h.curl(t, "dev", "https://"+h.w.Names.API+"/"+token()); status != "200" {
		t.Fatal(status)
	}
	if status, _ := h.curl(t, "dev", "https://evil.example/"); status != "403" {
		t.Fatal(status)
	}
	h.bawn(t, "doctor")
	var text string
	eventually(t, "the proxy has reported", func() bool {
		text = h.bawn(t, "metrics")
		return strings.Contains(text, `bawn_decisions_total{plane="egress",verdict="deny",code="host_not_allowed"}`)
	})
	for _, want := range []string{
		"bawn_ready 1", `bawn_process_up{process="netd"} 1`, `bawn_process_up{process="proxy"} 1`, `bawn_process_start_time_seconds{process="netd"}`,
		`bawn_process_start_time_seconds{process="proxy"}`, `bawn_lease_held{process="proxy"} 1`, `bawn_journal_available{journal="proxy"} 1`,
		`bawn_stage_duration_seconds_bucket{stage="dial",le="+Inf"}`, `bawn_stage_duration_seconds_bucket{stage="judge",le="+Inf"}`,
		`bawn_checkpoint_timestamp_seconds{journal="proxy"}`, "bawn_index_lag_seconds", "bawn_doctor_run_timestamp_seconds", "bawn_agents 2",
	} {
		if !strings.Contains(text, "\n"+want) {
			t.Errorf("no %s", want)
		}
	}
	for _, foreign := range []string{"evil.example", h.w.Names.API, "dev", "alice"} {
		if strings.Contains(text, `"`+foreign+`"`) {
			t.Errorf("%s is a label", foreign)
		}
	}
	if t.Failed() {
		t.Logf("%s", text)
	}
	h.scraped(t, text)
}

// scraped runs what docs/metrics.md says about a port of the loopback.
func (h *host) scraped(t *testing.T, text string) {
	t.Helper()
	docs, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, line, found := strings.Cut(string(docs), "```\nsocat ")
	line, _, ended := strings.Cut(line, "\n```")
	if !found || !ended {
		t.Fatal("docs/metrics.md has no line of socat")
	}
	answer, err := os.ReadFile("../../contrib/prometheus/answer.sh")
	if err != nil {
		t.Fatal(err)
	}
	const place = "/opt/answer.sh" // one that the world keeps apart
	if err := os.WriteFile(h.w.Host.File(place), answer, 0o755); err != nil {
		t.Fatal(err)
	}
	line = strings.Replace(line, "/usr/local/lib/bawn/answer.sh", place, 1)
	script := "PATH=" + filepath.Dir(operator.Binary) + ":$PATH; export PATH; timeout 20 socat " + line + " & keeper=$!\n" +
		"for i in 1 2 3 4 5 6 7 8 9 10; do curl -sS -m 5 http://127.0.0.1:9464/metrics >/tmp/scraped && break; sleep 0.3; done\n" +
		"kill $keeper; promtool check metrics </tmp/scraped && cat /tmp/scraped"
	r := h.root(t, script)
	if r.status != 0 || !strings.Contains(r.out, "\nbawn_ready 1\n") || strings.Count(r.out, "\n") < strings.Count(text, "\n")/2 {
		t.Errorf("status %d: %s\n%s", r.status, r.err, r.out)
	}
}
