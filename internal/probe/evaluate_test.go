// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"bawn/internal/apitype"
	"bawn/internal/ids"
	"bawn/internal/netplan"
	"bawn/internal/probe"

	"github.com/google/go-cmp/cmp"
)

// good is a run in which everything held.
func good() []probe.Try {
	var tries []probe.Try
	for _, c := range []probe.Check{
		probe.CheckLinks, probe.CheckTCP, probe.CheckUDP, probe.CheckICMP, probe.CheckDNS, probe.CheckMetadata, probe.CheckLoopback,
		probe.CheckServices, probe.CheckAbstract, probe.CheckOwn, probe.CheckKernel,
	} {
		tries = append(tries, probe.Try{Check: c, Target: "a", Outcome: probe.Blocked}, probe.Try{Check: c, Target: "b", Outcome: probe.Answered})
	}
	for _, c := range []probe.Check{probe.CheckProxy, probe.CheckResolver, probe.CheckCertificates} {
		tries = append(tries, probe.Try{Check: c, Target: "a", Outcome: probe.Answered, Code: "host_not_allowed"})
	}
	return tries
}

var placements = []ids.Placement{ids.PlacementNetns, ids.PlacementUID}

func counted(n uint64) map[string]uint64 {
	return map[string]uint64{netplan.CountRedirected: n, netplan.CountUDP: n, netplan.CountDenied4: n}
}

func failed(lines []apitype.DoctorLine) (checks []string) {
	for _, l := range lines {
		if !l.OK {
			checks = append(checks, l.Check)
		}
	}
	return checks
}

func TestAGoodRunIsGood(t *testing.T) {
	for _, p := range placements {
		lines := probe.Evaluate(p, good(), counted(1), counted(2))
		if bad := failed(lines); len(bad) > 0 || len(lines) < 12 {
			t.Errorf("%s: %v of %d", p, bad, len(lines))
		}
	}
}

// Each check has a run in which it, and it alone, fails, and then says how to
// mend it.
func TestI12EachCheckCanFail(t *testing.T) {
	for _, p := range placements {
		seen := map[string]bool{}
		for i, try := range good() {
			if p == ids.PlacementUID && (try.Check == probe.CheckLinks || try.Check == probe.CheckResolver) {
				continue // the host has links, and no resolver of Bawn's
			}
			tries := good()
			tries[i].Outcome, tries[i].Target, tries[i].Detail = probe.GotOut, "the hole", "bytes came"
			lines := probe.Evaluate(p, tries, counted(1), counted(2))
			bad := failed(lines)
			if len(bad) != 1 {
				t.Errorf("%s, %s: %v", p, try.Check, bad)
				continue
			}
			seen[bad[0]] = true
			n := slices.IndexFunc(lines, func(l apitype.DoctorLine) bool { return !l.OK })
			if l := lines[n]; l.Fix == "" || l.Detail != "the hole bytes came" || l.Placement != p {
				t.Errorf("%s, %s: %+v", p, try.Check, l)
			}
		}
		still := probe.Evaluate(p, good(), counted(2), counted(2))
		if bad := failed(still); len(bad) != 1 {
			t.Errorf("%s, counters: %v", p, bad)
		} else {
			seen[bad[0]] = true
		}
		if len(seen) != len(still) {
			t.Errorf("%s: %d of %d lines were seen to fail", p, len(seen), len(still))
		}
	}
}

func TestI12WhatWasNotTriedHasFailed(t *testing.T) {
	for _, p := range placements {
		all := probe.Evaluate(p, nil, nil, nil)
		if bad := failed(all); len(bad) != len(all) {
			t.Errorf("%s: %d of %d failed", p, len(bad), len(all))
		}
		for _, l := range all {
			if l.Fix == "" {
				t.Errorf("%s: no fix", l.Check)
			}
		}
	}
}

func TestADocumentedLimitIsToldAndIsNoFailure(t *testing.T) {
	limit := probe.Try{Check: probe.CheckAbstract, Target: "unix @x", Outcome: probe.GotOut, Limit: true}
	elsewhere := limit
	elsewhere.Check = probe.CheckTCP
	for _, c := range []struct {
		placement ids.Placement
		try       probe.Try
		failures  int
	}{
		{ids.PlacementUID, limit, 0},
		{ids.PlacementNetns, limit, 1}, // there is no such limit there
		{ids.PlacementUID, elsewhere, 1},
	} {
		lines := probe.Evaluate(c.placement, append(good(), c.try), counted(1), counted(2))
		if bad := failed(lines); len(bad) != c.failures {
			t.Errorf("%s %s: %q", c.placement, c.try.Check, bad)
		}
		told := slices.ContainsFunc(lines, func(l apitype.DoctorLine) bool {
			return l.OK && strings.HasPrefix(l.Detail, "open on this kernel: unix @x: Linux 6.12")
		})
		if told != (c.failures == 0) {
			t.Errorf("%s %s: told %v", c.placement, c.try.Check, told)
		}
	}
}

func TestSilenceOfTheProxyIsNoRefusal(t *testing.T) {
	for i, try := range good() {
		if try.Check != probe.CheckProxy && try.Check != probe.CheckCertificates {
			continue
		}
		tries := good()
		tries[i].Outcome = probe.Blocked
		if bad := failed(probe.Evaluate(ids.PlacementNetns, tries, counted(1), counted(2))); len(bad) != 1 {
			t.Errorf("%s: %v", try.Check, bad)
		}
	}
}

func TestTheFirstFewAreNamed(t *testing.T) {
	tries := good()
	for range 9 {
		tries = append(tries, probe.Try{Check: probe.CheckTCP, Target: "x", Outcome: probe.GotOut})
	}
	for _, l := range probe.Evaluate(ids.PlacementNetns, tries, counted(1), counted(2)) {
		if !l.OK && l.Detail != "x; x; x; and 6 more" {
			t.Errorf("%q", l.Detail)
		}
	}
}

func TestLinesAreReadBack(t *testing.T) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for _, try := range good() {
		if err := enc.Encode(try); err != nil {
			t.Fatal(err)
		}
	}
	got, err := probe.Read(&b)
	if diff := cmp.Diff(good(), got); diff != "" || err != nil {
		t.Error(err, diff)
	}
	for _, bad := range []string{
		"x", "{}", `{"check":"tcp","outcome":"fine"}`, `{"outcome":"blocked"}`, `{"check":"tcp","outcome":"blocked"}` + "\n{",
		`{"check":"tcp","outcome":"blocked","detail":"` + strings.Repeat("x", 1<<20) + `"}`,
		strings.Repeat(`{"check":"tcp","outcome":"blocked"}`+"\n", 5000),
	} {
		if _, err := probe.Read(strings.NewReader(bad)); err == nil {
			t.Errorf("%.60q was taken", bad)
		}
	}
}

func TestConfigurationIsReadStrictly(t *testing.T) {
	c := probe.Default(ids.PlacementNetns, netip.MustParseAddrPort("198.18.0.1:3128"))
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	got, err := probe.ReadConfig(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(got)
	if err != nil || string(again) != string(b) {
		t.Errorf("%v\n%s\n%s", err, again, b)
	}
	for _, bad := range []string{"", "{}", string(b) + "{}", `{"placement":"vm"}`, `{"x":1}`, "null", strings.Replace(string(b), "198.18.0.1:3128", "", 1)} {
		if _, err := probe.ReadConfig(strings.NewReader(bad)); err == nil {
			t.Errorf("%.40q was taken", bad)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"check":"tcp","target":"t","outcome":"got_out","detail":"d"}` + "\n"))
	f.Add([]byte("\n\n{}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		tries, err := probe.Read(bytes.NewReader(b))
		if err != nil {
			return
		}
		// Oracle: what was read is written and read as the same.
		var out bytes.Buffer
		enc := json.NewEncoder(&out)
		for _, try := range tries {
			if err := enc.Encode(try); err != nil {
				t.Fatal(err)
			}
		}
		again, err := probe.Read(&out)
		if err != nil || !slices.Equal(again, tries) {
			t.Errorf("%v: %v, %v", tries, again, err)
		}
	})
}
