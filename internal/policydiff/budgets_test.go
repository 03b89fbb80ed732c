// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package policydiff_test

import (
	"fmt"
	"testing"

	"bawn/internal/policydiff"
)

func TestBudgetsAreCompared(t *testing.T) {
	text := func(profile, rule string) string {
		return "version: 1\nprofiles:\n  p:\n    rules:\n      - {host: a.example, id: a, budgets: {" + rule + "}}\n    budgets: {" + profile + "}\nagents: {dev: {profile: p}}\n"
	}
	for _, c := range []struct {
		from, to string
		kind     policydiff.Kind
		says     string
	}{
		{text("requests: 60/min", ""), text("", ""), policydiff.Widened, "budget requests 60/min of the agent is gone"},
		{text("requests: 60/min", ""), text("requests: 61/min", ""), policydiff.Widened, "budget requests 61/min of the agent was 60/min"},
		{text("requests: 60/min", ""), text("requests: 59/min", ""), policydiff.Narrowed, "budget requests 59/min of the agent was 60/min"},
		{text("", ""), text("egress_bytes: 1MB/day", ""), policydiff.Narrowed, "budget egress_bytes 1MB/day of the agent is new"},
		{text("", "names: 5/day"), text("", ""), policydiff.Widened, "budget names 5/day of rule a is gone"},
		{text("", "names: 5/day"), text("", "names: 4/day"), policydiff.Narrowed, "budget names 4/day of rule a was 5/day"},
		{text("", "names: 5/day"), "version: 1\nprofiles: {p: {rules: [{host: '*.example', accept_risk: all of it}]}}\nagents: {dev: {profile: p}}\n", policydiff.Widened, "budget names 5/day of rule a is gone"},
	} {
		changes := policydiff.Agent(load(t, c.from).Agent("dev"), load(t, c.to).Agent("dev"), now)
		found := false
		for _, x := range changes {
			found = found || x.Text == c.says && x.Kind == c.kind
		}
		if !found {
			t.Errorf("want %s %q, got %+v", c.kind, c.says, changes)
		}
	}
	// A rule that keeps its budget and lets go of what it counted.
	const both = "version: 1\nprofiles: {p: {rules: [{host: a.example, id: a, %sbudgets: {requests: 5/day}}, {host: a.example, id: b}]}}\nagents: {dev: {profile: p}}\n"
	less := policydiff.Agent(load(t, fmt.Sprintf(both, "")).Agent("dev"), load(t, fmt.Sprintf(both, "paths: [/x], ")).Agent("dev"), now)
	if len(less) != 1 || less[0].Kind != policydiff.Widened || less[0].Text != "a.example port 443: every method on other paths: does not count any more for budget requests/day of rule a, by rule b" {
		t.Errorf("a budget that counts less: %+v", less)
	}
	gone := policydiff.Agent(load(t, text("", "names: 5/day")).Agent("dev"), load(t, "version: 1\nprofiles: {p: {rules: []}}\nagents: {dev: {profile: p}}\n").Agent("dev"), now)
	for _, x := range gone {
		if x.Kind == policydiff.Widened {
			t.Errorf("a rule that is gone widens: %+v", x)
		}
	}
}
