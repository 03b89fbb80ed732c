// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/json"
	"errors"
	"os/exec"
	"slices"
	"testing"

	"bawn/internal/apitype"
	"bawn/internal/doctor"
	"bawn/internal/ids"
)

// examined runs the self-test and reads its result; the status is the command's.
func (h *host) examined(t *testing.T) (apitype.Doctor, int) {
	t.Helper()
	out, err := h.Command(t.Context(), "doctor", "--json").Output()
	status := 0
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		status = e.ExitCode()
	}
	var d apitype.Doctor
	if err := json.Unmarshal(out, &d); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return d, status
}

// states are those of every check, by placement and name.
func states(d apitype.Doctor) map[string]string {
	m := map[string]string{}
	for _, l := range d.Lines {
		m[string(l.Placement)+" "+l.Name] = l.State
	}
	return m
}

// TestASoundHostIsFoundSound: every check of the catalogue is made, in every
// placement, and none fails.
func TestASoundHostIsFoundSound(t *testing.T) {
	h := boot(t)
	d, status := h.examined(t)
	if status != 0 || !d.OK || d.Failed != 0 {
		t.Errorf("status %d, ok %v, %d failed", status, d.OK, d.Failed)
	}
	var names []string
	for _, l := range d.Lines {
		names = append(names, l.Name)
		if !l.OK || l.Since.IsZero() {
			t.Errorf("%+v", l)
		}
	}
	for _, c := range doctor.All {
		want := 1
		if c.Group == doctor.Place || c.Group == doctor.Gate || c.Name == doctor.RulesPlanned {
			want = 2
		}
		if c.Only != "" {
			want = 1
		}
		have := 0
		for _, n := range names {
			if n == string(c.Name) {
				have++
			}
		}
		if have != want {
			t.Errorf("%s: %d lines, want %d", c.Name, have, want)
		}
	}
	code := slices.IndexFunc(d.Lines, func(l apitype.DoctorLine) bool {
		return l.Name == string(doctor.OneCode) && l.Placement == ids.PlacementNetns
	})
	if got := d.Lines[code].Detail; got != "policy_denied, on 4 paths" && got != "agent_unknown, on 4 paths" {
		t.Logf("the canary's code: %s", got)
	}
	t.Logf("took %d ms", d.Took)
}
