// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"bawn/internal/apitype"
	"bawn/internal/doctor"
	"bawn/internal/metrics"
	"bawn/internal/roottest"
)

// tell reports as the proxy would.
func tell(t *testing.T, s *Server, r apitype.PlaneReport) error {
	t.Helper()
	body, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return s.report(httptest.NewRecorder(), httptest.NewRequest("POST", "/v1/plane/report", bytes.NewReader(body)), peerOf(proxyUID))
}

// TestMetricsOfAll: admin's own and what the proxy has reported, in a form that
// Prometheus takes.
func TestMetricsOfAll(t *testing.T) {
	s, c, _ := newServer(t)
	addAgent(t, s, "dev")
	if _, err := c.ApplyPolicy(t.Context(), apitype.ApplyPolicy{YAML: someYAML}); err != nil {
		t.Fatal(err)
	}
	s.planes.asked("proxy", 10, s.planes.snapshot().Tag)
	counts := metrics.NewProxy()
	counts.Judged(time.Millisecond)
	err := tell(t, s, apitype.PlaneReport{Plane: "proxy", Samples: append(counts.Samples(), metrics.Value("bawn_connections", 3))})
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.doctored = &apitype.Doctor{At: time.Unix(1000, 0), Lines: []apitype.DoctorLine{
		{Placement: "netns", Group: "place", State: "ok", Check: "x\nbawn_ready 9", OK: true}, {Placement: "uid", Group: "gate", State: "fail", Check: "y"},
		{Group: "clock", State: "warn", Check: "z", OK: true}, {Group: "\x1b]52;", State: "ok", OK: true},
	}}
	s.mu.Unlock()
	text, err := c.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"bawn_connections 3", `bawn_stage_duration_seconds_count{stage="judge"} 1`, "bawn_agents 1", "bawn_policy_revision 1",
		`bawn_lease_held{process="proxy"} 1`, `bawn_lease_revision{process="proxy"} 1`, `bawn_process_up{process="admin"} 1`,
		`bawn_process_up{process="netd"} 0`, `bawn_process_up{process="proxy"} 1`, "bawn_ready 0", `bawn_journal_available{journal="admin"} 1`,
		`bawn_doctor_checks{group="place",about="netns",result="ok"} 1`, `bawn_doctor_checks{group="place",about="netns",result="fail"} 0`,
		`bawn_doctor_checks{group="gate",about="uid",result="fail"} 1`, `bawn_doctor_checks{group="clock",about="host",result="warn"} 1`,
		`bawn_doctor_checks{group="other",about="host",result="ok"} 1`,
		"bawn_doctor_run_timestamp_seconds 1000", `bawn_sessions{placement="netns"} 0`,
	} {
		if !strings.Contains(string(text), want+"\n") {
			t.Errorf("no line %s", want)
		}
	}
	if t.Failed() {
		t.Logf("%s", text)
	}
	path, err := exec.LookPath("promtool")
	if err != nil {
		roottest.Skip(t, "no promtool here: make need installs it")
	}
	cmd := exec.CommandContext(t.Context(), path, "check", "metrics")
	cmd.Stdin = bytes.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}

// TestReportsAreCheckedAndEnd: a plane is believed in its numbers alone, and for a
// while.
func TestReportsAreCheckedAndEnd(t *testing.T) {
	s, c, _ := newServer(t)
	addAgent(t, s, "dev")
	for _, r := range []apitype.PlaneReport{
		{Plane: "evil"},
		{Plane: "proxy", Samples: []apitype.Sample{metrics.Value("bawn_connections", 1, "evil.example")}},
		{Plane: "proxy", Samples: []apitype.Sample{metrics.Value("evil", 1)}},
		{Plane: "proxy", Samples: make([]apitype.Sample, maxSamples+1)},
	} {
		if tell(t, s, r) == nil {
			t.Errorf("%.200v is taken", r)
		}
	}
	if b, err := c.Budgets(t.Context(), ""); err != nil || !b.At.IsZero() || len(b.Budgets) > 0 {
		t.Errorf("%+v, %v", b, err)
	}
	uses := []apitype.BudgetUse{{Agent: "other", Budget: "requests", Per: "min", Limit: 600, Used: 6}, {Agent: "dev", Budget: "names", Per: "day", Limit: 10, Used: 1}}
	if err := tell(t, s, apitype.PlaneReport{Plane: "proxy", Budgets: uses}); err != nil {
		t.Fatal(err)
	}
	if b, err := c.Budgets(t.Context(), ""); err != nil || len(b.Budgets) != 2 || b.Budgets[0].Agent != "dev" || b.At.IsZero() {
		t.Errorf("%+v, %v", b, err)
	}
	if b, err := c.Budgets(t.Context(), "dev"); err != nil || len(b.Budgets) != 1 || b.Budgets[0].Used != 1 {
		t.Errorf("%+v, %v", b, err)
	}
	for _, agent := range []string{"nobody", "../x"} {
		if b, err := c.Budgets(t.Context(), agent); err == nil {
			t.Errorf("%s: %+v", agent, b)
		}
	}
	if list := s.reports.all(time.Now().Add(reportLife)); len(list) != 0 {
		t.Errorf("%d reports of a plane that is gone", len(list))
	}
}

// TestEveryGroupOfChecksIsAValue: a check that metrics do not know would be one of
// "other".
func TestEveryGroupOfChecksIsAValue(t *testing.T) {
	for _, c := range doctor.All {
		for _, state := range []doctor.State{doctor.OK, doctor.Warn, doctor.Fail, doctor.NotApplicable} {
			if err := metrics.Check(metrics.Value("bawn_doctor_checks", 1, string(c.Group), "host", string(state))); err != nil {
				t.Error(err)
			}
		}
	}
}
