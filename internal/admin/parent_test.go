// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"bawn/internal/apitype"
	"bawn/internal/config"
	"bawn/internal/doctor"
	"bawn/internal/policy"
)

// TestTheParentIsExaminedByWhatTheProxySays, and not by what it said long ago.
func TestTheParentIsExaminedByWhatTheProxySays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{planes: newPlanes(time.Now), o: Options{Config: config.Default(), Now: time.Now}}
		if f := s.parentFinding(t.Context()); f.State != doctor.NotApplicable {
			t.Errorf("there is no parent, and it says %v", f)
		}
		s.o.Config.ParentProxy.Address = "proxy.example:3128"
		examine := func(want bool, detail string) {
			t.Helper()
			f := s.parentFinding(t.Context())
			if (f.State == doctor.OK) != want || f.Placement != "" || !strings.Contains(f.Seen, detail) || !strings.Contains(f.Fix, "proxy.example:3128") {
				t.Errorf("got %+v, want %v with %q", f, want, detail)
			}
		}
		examine(false, "the proxy has not said so")
		s.planes.reported(apitype.ParentHealth{At: time.Now()})
		examine(true, "")
		s.planes.reported(apitype.ParentHealth{At: time.Now().Add(time.Second), Error: "it does not answer"})
		examine(false, "it does not answer")
		time.Sleep(time.Minute)
		go func() {
			time.Sleep(time.Second)
			s.planes.reported(apitype.ParentHealth{At: time.Now()})
		}()
		examine(true, "")
		time.Sleep(time.Minute)
		examine(false, "the proxy has not said so")
	})
}

// TestTheParentIsWithinReach of the proxy, and nothing beside it.
func TestTheParentIsWithinReach(t *testing.T) {
	for address, want := range map[string]string{
		"":                       "[]",
		"10.9.0.1:3128":          "[{10.9.0.1/32 3128}]",
		"https://[fd00::1]:8443": "[{fd00::1/128 8443}]",
		"proxy.example:3128":     "[{10.8.0.0/16 3128}]",
	} {
		cfg := config.Default()
		cfg.ParentProxy.Address = address
		if strings.Contains(address, "example") {
			cfg.ParentProxy.Addresses = []string{"10.8.0.0/16"}
		}
		if err := cfg.Validate(); err != nil {
			t.Fatal(err)
		}
		s := &Server{planes: newPlanes(time.Now), o: Options{Config: cfg}}
		if got := fmt.Sprint(s.reachOf(apitype.Snapshot{}).Parents); got != want {
			t.Errorf("%q: reach %s, want %s", address, got, want)
		}
	}
}

// TestRulesThatAParentMakesUselessAreWarnedOf.
func TestRulesThatAParentMakesUselessAreWarnedOf(t *testing.T) {
	cfg := config.Default()
	s := &Server{o: Options{Config: cfg}}
	p, err := policy.Load([]byte(`version: 1
profiles:
  p:
    rules:
      - {host: a.example.com, addresses: [10.0.0.0/8]}
      - {host: b.example.com, addresses: [10.0.0.0/8]}
      - {host: "*.c.example.com", addresses: [10.0.0.0/8]}
      - {host: d.example.com}
`), policy.Known{})
	if err != nil {
		t.Fatal(err)
	}
	if w := s.parentWarnings(p); w != nil {
		t.Errorf("without a parent: %v", w)
	}
	s.o.Config.ParentProxy = config.ParentProxy{Address: "10.9.0.1:3128", Bypass: []string{"b.example.com", "x.c.example.com"}}
	got := strings.Join(s.parentWarnings(p), "\n")
	if strings.Count(got, "\n") != 1 || !strings.Contains(got, "line 5: p.1: ") || !strings.Contains(got, "line 7: p.3: ") {
		t.Errorf("warned:\n%s", got)
	}
}
