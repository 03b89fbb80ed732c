// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/json"
	"errors"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
	if got := d.Lines[code].Detail; got != "host_not_allowed, on 4 paths" {
		t.Errorf("the canary's code: %s", got)
	}
}

// A wound is one thing that is broken on a host that runs.
type wound struct {
	cut, heal string // shell lines of root's
	red       map[string]string
	also      []string // checks that the same thing may break
	status    int
	shut      string // the placement in which no agent is handed out
}

// TestI12WhatIsBrokenOnALiveHostTurnsRed, and nothing else does; what shows a
// hole keeps agents from being handed out, and opens again once it is mended.
func TestI12WhatIsBrokenOnALiveHostTurnsRed(t *testing.T) {
	h := boot(t)
	sound, status := h.examined(t)
	if status != 0 {
		t.Fatalf("status %d: %+v", status, sound)
	}
	session := h.session(t.Context(), "dev", "sleep", "600")
	if err := session.Start(); err != nil {
		t.Fatal(err)
	}
	defer session.Wait()
	for h.root(t, "pgrep -x sleep").status != 0 {
		time.Sleep(20 * time.Millisecond)
	}
	const journal = "$(ls -t /var/lib/bawn/proxy/journal/*.jsonl | head -n 1)"
	for name, w := range map[string]wound{
		"a key that others read": {
			cut: "chmod 0644 /var/lib/bawn/admin/ca.key", heal: "chmod 0600 /var/lib/bawn/admin/ca.key", red: map[string]string{" ca_key": "fail"}, status: 3,
		},
		"a rule that is gone from an agent's namespace": {
			cut:  "nsenter -t $(pgrep -x sleep) -n nft flush chain inet bawn output",
			heal: "pkill -x sleep; while pgrep -x sleep; do sleep 0.05; done", red: map[string]string{"netns firewall_rules": "fail"}, status: 3, shut: "netns",
		},
		"a firewall of somebody else's": {
			cut:  "nft 'add table inet strict; add chain inet strict f { type filter hook forward priority 0 ; policy drop ; }'",
			heal: "nft delete table inet strict", red: map[string]string{" firewall_forward": "warn"},
		},
		"an account with an agent's uid": {
			cut: "useradd -M -N -u 1900000500 -s /usr/sbin/nologin bob", heal: "userdel bob", red: map[string]string{" uid_range": "fail"}, status: 3,
		},
		"a journal that admin cannot read": {
			cut: "chmod 0600 " + journal, heal: "chmod 0640 " + journal, status: 3, shut: "netns",
			red:  map[string]string{"netns on_record": "fail", "uid on_record": "fail"},
			also: []string{" checkpoint", " index_lag"},
		},
	} {
		if r := h.root(t, w.cut); r.status != 0 {
			t.Fatalf("%s: %+v", name, r)
		}
		d, status := h.examined(t)
		got, want := states(d), states(sound)
		maps.Copy(want, w.red)
		for _, c := range w.also {
			want[c] = got[c]
		}
		if diff := cmp.Diff(want, got); diff != "" || status != w.status {
			t.Errorf("%s: status %d (-want +got)\n%s", name, status, diff)
		}
		opens := h.sh(t, "guest", "true").status == 0
		if w.shut != "" {
			opens = h.sh(t, "dev", "true").status == 0
		}
		if opens != (w.shut == "") {
			t.Errorf("%s: agents are handed out: %v", name, opens)
		}
		if r := h.root(t, w.heal); r.status != 0 {
			t.Fatalf("%s: %+v", name, r)
		}
		healed, status := h.examined(t)
		for try := 0; status != 0 && try < 10; try++ { // what signs looks again every second
			time.Sleep(500 * time.Millisecond)
			healed, status = h.examined(t)
		}
		if diff := cmp.Diff(states(sound), states(healed)); diff != "" || status != 0 {
			t.Errorf("%s, healed: status %d (-want +got)\n%s", name, status, diff)
		}
	}
	for _, said := range []string{"a check has failed\" process=admin check=ca_key", "is well again\" process=admin check=ca_key"} {
		if n := strings.Count(h.Log(), said); n != 1 {
			t.Errorf("%q is told %d times", said, n)
		}
	}
}
