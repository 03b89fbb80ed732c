// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bawn/internal/apitype"
	"bawn/internal/hindsight"
)

// hostileText acts on a terminal, or hides.
const hostileText = "\x1b]52;c;eA==\x07\r\n\u202e\u200b\x9b31m"

// inert checks that nothing of it came through, whichever stream it is.
func inert(t *testing.T, args []string, text string) {
	t.Helper()
	for _, r := range text {
		if r != '\n' && r < ' ' || r == 0x7f || r == '\u202e' || r == '\u200b' || r >= 0x80 && r < 0xa0 {
			t.Errorf("%v prints %q in\n%q", args, r, text)
			return
		}
	}
}

// TestI14WhatAgentsWroteIsInertInPolicysHindsight: replay, suggest, and the
// commands of grants, as tables and as JSON.
func TestI14WhatAgentsWroteIsInertInPolicysHindsight(t *testing.T) {
	root := shortDir(t)
	row := hindsight.Row{Agent: "dev" + hostileText, Host: hostileText, Code: hostileText, Rule: hostileText, By: hostileText, Was: hostileText, Why: hostileText, Sample: "GET " + hostileText, Count: 1}
	rows := []hindsight.Row{row}
	seen := []hindsight.Seen{{Asked: hostileText, Code: hostileText, Count: 1}}
	grant := apitype.Grant{ID: "g1" + hostileText, Agent: hostileText, Allows: hostileText, By: hostileText, Reason: hostileText, Why: hostileText, Ended: &time.Time{}, Warnings: []string{hostileText}}
	fakeAdmin(t, root, map[string]http.HandlerFunc{
		"POST /v1/policy/replay": answer(200, hindsight.Report{Denied: rows, Allowed: rows, Content: rows, Unjudged: rows, Note: hostileText}),
		"GET /v1/policy/suggest": answer(200, hindsight.Suggestions{Note: hostileText,
			Rules: []hindsight.SuggestedRule{{Agent: "dev", Domain: hostileText, Host: hostileText, Ports: []string{hostileText}, Methods: []string{hostileText}, Paths: []string{hostileText}, Marks: []string{hostileText}, Wider: []string{hostileText}, Claims: seen}},
			Apart: []hindsight.Apart{{Agent: hostileText, Code: hostileText, Why: hostileText, Sample: hostileText}}}),
		"GET /v1/grants":         answer(200, []apitype.Grant{grant}),
		"POST /v1/grants":        answer(201, grant),
		"DELETE /v1/grants/{id}": answer(404, apitype.Error{Message: hostileText}),
	})
	file := filepath.Join(root, "p.yaml")
	write(t, file, "version: 1\n")
	for _, args := range [][]string{
		{"policy", "replay", file}, {"policy", "replay", file, "--json"}, {"policy", "suggest"}, {"policy", "suggest", "--json"},
		{"grants"}, {"grants", "--json", "--all"}, {"allow", "dev", "a.example", "--for", "1m"}, {"revoke", hostileText},
	} {
		_, stdout, stderr := call(t, append([]string{"--root", root}, args...)...)
		inert(t, args, stdout)
		inert(t, args, stderr)
		if stdout == "" && args[0] != "revoke" {
			t.Errorf("%v prints nothing: %s", args, stderr)
		}
	}
}

func TestReplayByItsExitStatus(t *testing.T) {
	row := []hindsight.Row{{Agent: "dev", Sample: "GET https://a.example/", Count: 2, Anyway: 2}}
	for name, c := range map[string]struct {
		report hindsight.Report
		status int
		want   string
	}{
		"as it was":      {hindsight.Report{StillAllowed: 1}, 0, "0 records: 1 still allowed"},
		"denied":         {hindsight.Report{Denied: row, Allowed: row}, 3, "would be denied:\n  agent dev\n         2  GET https://a.example/: "},
		"allowed":        {hindsight.Report{Allowed: row, Content: row}, 4, "would be allowed:"},
		"depends":        {hindsight.Report{Content: row}, 5, "depends on what is not on record:"},
		"cannot be told": {hindsight.Report{Unjudged: row}, 5, "cannot be judged again:"},
		"too much":       {hindsight.Report{Beyond: 7}, 5, "7 more records"},
	} {
		root := shortDir(t)
		fakeAdmin(t, root, map[string]http.HandlerFunc{
			"POST /v1/policy/replay": answer(200, c.report),
			"GET /v1/policy":         answer(200, apitype.Revision{YAML: "version: 1\n"}),
		})
		status, stdout, stderr := call(t, "--root", root, "policy", "replay", "current", "--since", "7d")
		if status != c.status || !strings.Contains(stdout, c.want) {
			t.Errorf("%s: exit status %d, want %d; printed\n%s%s", name, status, c.status, stdout, stderr)
		}
	}
	if status, _, stderr := call(t, "policy", "replay", "current", "--since", "x"); status != 2 || !strings.Contains(stderr, "neither a time nor a duration") {
		t.Errorf("--since x: exit status %d: %s", status, stderr)
	}
}
