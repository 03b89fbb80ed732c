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

	"bawn/internal/doctor"
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
		probe.CheckServices, probe.CheckAbstract, probe.CheckOwn, probe.CheckKernel, probe.CheckProtocols, probe.CheckSource, probe.CheckOwnFiles,
		probe.CheckRights, probe.CheckOthers,
	} {
		tries = append(tries, probe.Try{Check: c, Target: "a", Outcome: probe.Blocked}, probe.Try{Check: c, Target: "b", Outcome: probe.Answered})
	}
	for _, c := range []probe.Check{probe.CheckProxy, probe.CheckTransparent, probe.CheckResolver, probe.CheckCertificates} {
		tries = append(tries, probe.Try{Check: c, Target: "a", Outcome: probe.Answered, Code: "host_not_allowed"})
	}
	for _, path := range []string{"CONNECT", "GET"} {
		tries = append(tries, probe.Try{Check: probe.CheckProxy, Target: path, Outcome: probe.Answered, Code: "host_not_allowed", Canary: true})
	}
	return tries
}

var placements = []ids.Placement{ids.PlacementNetns, ids.PlacementUID}

func counted(n uint64) map[string]uint64 {
	return map[string]uint64{netplan.CountRedirected: n, netplan.CountUDP: n, netplan.CountDenied4: n}
}

func failed(list []doctor.Finding) (checks []doctor.Name) {
	for _, f := range list {
		if f.State != doctor.OK && f.State != doctor.Warn {
			checks = append(checks, f.Name)
		}
	}
	return checks
}

func TestAGoodRunIsGood(t *testing.T) {
	for _, p := range placements {
		list := probe.Evaluate(p, good(), counted(1), counted(2))
		if bad := failed(list); len(bad) > 0 || len(list) < 12 {
			t.Errorf("%s: %v of %d", p, bad, len(list))
		}
	}
}

// only are the checks that a placement does not have.
func only(p ids.Placement, c probe.Check) bool {
	row, _ := doctor.Find(c)
	return row.Only == "" || row.Only == p
}

// Each check has a run in which it, and it alone, fails, and then says how to
// mend it.
func TestI12EachCheckCanFail(t *testing.T) {
	for _, p := range placements {
		seen := map[doctor.Name]bool{}
		for i, try := range good() {
			if !only(p, try.Check) {
				continue
			}
			tries := good()
			tries[i].Outcome, tries[i].Target, tries[i].Detail = probe.GotOut, "the hole", "bytes came"
			tries[i].Canary = false
			if try.Canary {
				continue // without it there is one path left, which is another failure
			}
			list := probe.Evaluate(p, tries, counted(1), counted(2))
			bad := failed(list)
			if len(bad) != 1 {
				t.Errorf("%s, %s: %v", p, try.Check, bad)
				continue
			}
			seen[bad[0]] = true
			n := slices.IndexFunc(list, func(f doctor.Finding) bool { return f.State == doctor.Fail })
			if l := list[n].Line(); l.Fix == "" || l.Detail != "the hole bytes came" || l.Placement != p {
				t.Errorf("%s, %s: %+v", p, try.Check, l)
			}
		}
		still := probe.Evaluate(p, good(), counted(2), counted(2))
		if bad := failed(still); len(bad) != 1 {
			t.Errorf("%s, counters: %v", p, bad)
		} else {
			seen[bad[0]] = true
		}
		two := good()
		two[len(two)-1].Code = "path_not_allowed"
		if bad := failed(probe.Evaluate(p, two, counted(1), counted(2))); len(bad) != 1 {
			t.Errorf("%s, two codes: %v", p, bad)
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
		for _, f := range all {
			if f.Line().Fix == "" {
				t.Errorf("%s: no fix", f.Name)
			}
		}
	}
}

// TestI1SilenceIsNoRefusal: in the host's network what nothing refused may be on
// its way out. In a namespace Bawn's own listener may hold a connection.
func TestI1SilenceIsNoRefusal(t *testing.T) {
	for _, check := range []probe.Check{probe.CheckTCP, probe.CheckUDP, probe.CheckDNS, probe.CheckMetadata, probe.CheckLoopback, probe.CheckSource} {
		for p, want := range map[ids.Placement][]doctor.Name{ids.PlacementNetns: nil, ids.PlacementUID: {check}} {
			tries := append(good(), probe.Try{Check: check, Target: "x", Outcome: probe.Blocked, Silent: true})
			if bad := failed(probe.Evaluate(p, tries, counted(1), counted(2))); !slices.Equal(bad, want) {
				t.Errorf("%s %s: %v", p, check, bad)
			}
		}
	}
}

// TestOneDenialHasOneCode on every path; a path without a code has none.
func TestOneDenialHasOneCode(t *testing.T) {
	for name, c := range map[string]struct {
		change func([]probe.Try) []probe.Try
		want   string
	}{
		"all the same": {func(l []probe.Try) []probe.Try { return l }, "host_not_allowed, on 2 paths"},
		"another code": {func(l []probe.Try) []probe.Try { l[len(l)-1].Code = "x"; return l }, `"host_not_allowed" by CONNECT; "x" by GET`},
		"no code":      {func(l []probe.Try) []probe.Try { l[len(l)-1].Code = ""; return l }, `"" by GET; "host_not_allowed" by CONNECT`},
		"one path":     {func(l []probe.Try) []probe.Try { return l[:len(l)-1] }, "the canary was refused on 1 paths"},
		"not refused":  {func(l []probe.Try) []probe.Try { l[len(l)-1].Outcome = probe.GotOut; return l }, "the canary was refused on 1 paths"},
	} {
		list := probe.Evaluate(ids.PlacementUID, c.change(good()), counted(1), counted(2))
		n := slices.IndexFunc(list, func(f doctor.Finding) bool { return f.Name == doctor.OneCode })
		if f := list[n]; f.Seen != c.want || (f.State == doctor.OK) != (name == "all the same") {
			t.Errorf("%s: %+v", name, f)
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
		list := probe.Evaluate(c.placement, append(good(), c.try), counted(1), counted(2))
		if bad := failed(list); len(bad) != c.failures {
			t.Errorf("%s %s: %q", c.placement, c.try.Check, bad)
		}
		told := slices.ContainsFunc(list, func(f doctor.Finding) bool {
			return f.State == doctor.Warn && f.Seen == "open on this kernel: unix @x" && strings.HasPrefix(f.Line().Fix, "Linux 6.12")
		})
		if told != (c.failures == 0) {
			t.Errorf("%s %s: told %v", c.placement, c.try.Check, told)
		}
	}
}

func TestSilenceOfTheProxyIsNoRefusal(t *testing.T) {
	for i, try := range good() {
		if try.Check != probe.CheckProxy && try.Check != probe.CheckCertificates || try.Canary {
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
	for _, f := range probe.Evaluate(ids.PlacementNetns, tries, counted(1), counted(2)) {
		if f.State == doctor.Fail && f.Seen != "x; x; x; and 6 more" {
			t.Errorf("%q", f.Seen)
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
