// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"bawn/internal/apitype"

	"github.com/google/go-cmp/cmp"
)

// unwell is a result with a line of each state.
func unwell() apitype.Doctor {
	return apitype.Doctor{OK: true, Failed: 1, Warned: 1, Lines: []apitype.DoctorLine{
		{Placement: "netns", Name: "tcp", Group: "place", Check: "direct TCP", State: "ok", OK: true, Detail: "40 tries, none got out"},
		{Placement: "uid", Name: "abstract", Group: "place", Check: "abstract sockets", State: "warn", OK: true, Detail: "\x1b[2J open", Fix: "a newer kernel"},
		{Name: "ca_key", Group: "files", Check: "the CA's key", State: "fail", Detail: "mode 0644", Fix: "chmod 0600 ca.key"},
		{Name: "units", Group: "processes", Check: "systemd units", State: "not_applicable", OK: true, Detail: "not installed"},
	}}
}

func TestDoctorSaysHowToMendWhatFailed(t *testing.T) {
	root := shortDir(t)
	fakeAdmin(t, root, map[string]http.HandlerFunc{"POST /v1/doctor": answer(200, unwell())})
	status, stdout, _ := call(t, "--root", root, "doctor")
	want := `From an agent's place: 1 of 2
  warn    uid    abstract sockets  \x1b[2J open
          fix: a newer kernel
Files: 0 of 1
  FAILED         the CA's key      mode 0644
          fix: chmod 0600 ca.key
Processes: 1 of 1
1 check failed; agents are handed out: nothing got out
`
	if diff := cmp.Diff(want, stdout); diff != "" || status != 3 {
		t.Errorf("status %d (-want +got)\n%s", status, diff)
	}
	status, stdout, _ = call(t, "--root", root, "doctor", "-v")
	for _, line := range []string{"  ok      netns  direct TCP        40 tries, none got out\n", "  n/a            systemd units     not installed\n"} {
		if !strings.Contains(stdout, line) || status != 3 {
			t.Errorf("status %d, %q is not in\n%s", status, line, stdout)
		}
	}
}

// TestDoctorsExitStatus: 0 all well, 1 could not run, 2 wrong use, 3 failed.
func TestDoctorsExitStatus(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		args   []string
		status int
	}{
		"all is well":        {answer(200, apitype.Doctor{OK: true}), nil, 0},
		"a warning":          {answer(200, apitype.Doctor{OK: true, Warned: 2}), nil, 0},
		"a check has failed": {answer(200, apitype.Doctor{OK: true, Failed: 1}), nil, 3},
		"a placement leaks":  {answer(200, apitype.Doctor{Failed: 1}), nil, 3},
		"it could not run":   {answer(503, apitype.Error{Message: "netd does not answer"}), nil, 1},
		"wrong use":          {answer(200, apitype.Doctor{OK: true}), []string{"--no-such-flag"}, 2},
	} {
		root := shortDir(t)
		fakeAdmin(t, root, map[string]http.HandlerFunc{"POST /v1/doctor": c.answer})
		for _, form := range [][]string{nil, {"--json"}} {
			status, stdout, _ := call(t, append(append([]string{"--root", root, "doctor"}, c.args...), form...)...)
			if status != c.status {
				t.Errorf("%s, %v: status %d, want %d", name, form, status, c.status)
			}
			if form != nil && c.status != 1 && c.status != 2 && !json.Valid([]byte(stdout)) {
				t.Errorf("%s: no JSON: %s", name, stdout)
			}
		}
	}
}

func TestStatusSaysSinceWhenAndDoctorTheLastResult(t *testing.T) {
	root := shortDir(t)
	d := unwell()
	d.At = time.Now().Add(-time.Minute)
	d.Lines[2].Since = time.Date(2026, 3, 4, 5, 6, 7, 0, time.Local)
	fakeAdmin(t, root, map[string]http.HandlerFunc{"GET /v1/status": answer(200, apitype.Status{Version: "v1", Ready: true, Doctor: &d})})
	status, stdout, _ := call(t, "--root", root, "status")
	for _, line := range []string{"  doctor    FAILED  1m0s ago, 1 check has failed, 1 warning\n", "    ca_key: failed since 2026-03-04 05:06:07: mode 0644\n"} {
		if !strings.Contains(stdout, line) || status != 0 {
			t.Errorf("status %d, %q is not in\n%s", status, line, stdout)
		}
	}
	status, stdout, _ = call(t, "--root", root, "doctor", "--last")
	if status != 3 || !strings.Contains(stdout, "the CA's key") {
		t.Errorf("status %d\n%s", status, stdout)
	}
}

func TestDoctorThatHasNotRunHasNoResult(t *testing.T) {
	root := shortDir(t)
	fakeAdmin(t, root, map[string]http.HandlerFunc{"GET /v1/status": answer(200, apitype.Status{Version: "v1"})})
	if status, _, stderr := call(t, "--root", root, "doctor", "--last"); status != 1 || !strings.Contains(stderr, "has not run yet") {
		t.Errorf("status %d: %s", status, stderr)
	}
}

func TestReadySaysWhatDidNotPass(t *testing.T) {
	lines := []apitype.DoctorLine{{State: "ok"}, {State: "ok"}, {State: "fail"}, {State: "warn"}, {State: "n/a"}}
	for want, d := range map[string]apitype.Doctor{
		"bawn: ready: 2 self-test checks passed":                       {Lines: lines},
		"bawn: ready: 2 self-test checks passed, 1 failed, 3 warnings": {Lines: lines, Failed: 1, Warned: 3},
		"bawn: ready: 1 self-test check passed, 1 warning":             {Lines: lines[:1], Warned: 1},
	} {
		if got := readyLine(d); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
