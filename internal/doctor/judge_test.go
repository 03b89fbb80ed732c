// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"bawn/internal/doctor"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// A verdict is what one judgement is to say.
type verdict struct {
	got  doctor.Finding
	want doctor.State
	seen string
}

func jump(wall, steady time.Duration) doctor.Finding {
	return doctor.Jump(noon, noon.Add(wall), time.Hour, time.Hour+steady)
}

func others(c ...doctor.OtherChain) []doctor.Finding { return doctor.OfOthers(c) }

// breaks are the judgements of what others have seen, to their edges. Where
// something really fails, packages admin, netd and netkern show it (their
// TestI12...); only the wall clock cannot be broken by a test, since no
// namespace has one of its own.
var breaks = map[doctor.Name][]verdict{
	doctor.ClockJump: {
		{doctor.Jump(time.Time{}, noon, 0, time.Hour), doctor.OK, "first look"},
		{jump(time.Hour, time.Hour), doctor.OK, "0s apart in 1h0m0s"},
		{jump(time.Hour+3*time.Second, time.Hour), doctor.OK, "3s apart"}, // a time service slews
		{jump(time.Hour+5*time.Second, time.Hour), doctor.Warn, "the wall clock went 1h0m5s in 1h0m0s"},
		{jump(-24*time.Hour, time.Minute), doctor.Warn, "the wall clock went -24h0m0s in 1m0s"},
	},
	doctor.ClockBuild: {
		{doctor.Build(noon, time.Time{}), doctor.OK, "2026-06-01"},
		{doctor.Build(noon, noon.Add(12*time.Hour)), doctor.OK, "2026-06-01"}, // built in another time zone
		{doctor.Build(noon, noon.Add(48*time.Hour)), doctor.Fail, "before this program was built (2026-06-03)"},
		{doctor.Build(time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC), time.Time{}), doctor.Fail, "it is said to be 1970-01-01"},
	},
	doctor.CADates: {
		{doctor.Dates(noon, noon.Add(-time.Hour), noon.AddDate(1, 0, 0)), doctor.OK, "until 2027-06-01"},
		{doctor.Dates(noon, noon.Add(-time.Hour), noon.AddDate(0, 0, 29)), doctor.Warn, "ends on 2026-06-30"},
		{doctor.Dates(noon, noon.Add(-time.Hour), noon), doctor.Fail, "ended on 2026-06-01"},
		{doctor.Dates(noon, noon.Add(time.Minute), noon.AddDate(1, 0, 0)), doctor.Fail, "valid only from"},
	},
	doctor.Resolvers: {
		{doctor.OfResolvers(2, nil), doctor.OK, "2 of 2"},
		{doctor.OfResolvers(2, []string{"192.0.2.1:53: timeout"}), doctor.Warn, "192.0.2.1:53: timeout"},
		{doctor.OfResolvers(1, []string{"192.0.2.1:53: timeout"}), doctor.Fail, "timeout"},
		{doctor.OfResolvers(0, nil), doctor.Fail, ""},
	},
	doctor.Checkpoint: {
		{doctor.Checkpoints(noon, nil), doctor.NotApplicable, "no journal"},
		{doctor.Checkpoints(noon, []doctor.Covered{{Series: "proxy", Signed: noon.Add(-time.Hour)}}), doctor.OK, "1 journals"}, // nothing waits
		{doctor.Checkpoints(noon, []doctor.Covered{{Series: "proxy", Signed: noon.Add(-time.Hour), Waiting: 3}}), doctor.Warn, "proxy: 3 records wait since 11:00:00"},
		{doctor.Checkpoints(noon, []doctor.Covered{{Series: "proxy", Broken: "record 7 is missing"}}), doctor.Fail, "proxy: record 7 is missing"},
		{doctor.Checkpoints(noon, []doctor.Covered{{Series: "admin", Fault: "no key"}}), doctor.Fail, "admin: no key"},
	},
	doctor.IndexLag: {
		{doctor.Behind(0, 0, ""), doctor.OK, "0 bytes behind"},
		{doctor.Behind(1<<20, 59*time.Second, ""), doctor.OK, "1048576 bytes behind"},
		{doctor.Behind(1<<20, 2*time.Minute, ""), doctor.Warn, "1048576 bytes behind, for 2m0s"},
		{doctor.Behind(0, 0, "it was made anew"), doctor.Warn, "it was made anew"},
	},
	doctor.OnRecord: {
		{doctor.Recorded([]doctor.Record{{Host: "c"}, {Metadata: true, Sensitive: true}}, "c", nil), doctor.OK, "2 records, 1 of them of metadata"},
		{doctor.Recorded([]doctor.Record{{Metadata: true, Sensitive: true}}, "c", nil), doctor.Fail, "nothing of the canary"},
		{doctor.Recorded([]doctor.Record{{Host: "c"}}, "c", nil), doctor.Fail, "nothing of the metadata"},
		{doctor.Recorded([]doctor.Record{{Host: "c"}, {Metadata: true}}, "c", nil), doctor.Fail, "not marked as sensitive"},
		{doctor.Recorded([]doctor.Record{{Host: "c", Allowed: true}}, "c", nil), doctor.Fail, "a try was let through: c"},
		{doctor.Recorded(nil, "c", errors.New("no journal")), doctor.Fail, "no journal"},
	},
	doctor.Foreign: {
		{others()[0], doctor.OK, ""},
		// That it accepts, before or after, changes nothing: Bawn's own chain judges all the same.
		{others(doctor.OtherChain{Family: "inet", Table: "mine", Name: "output", Hook: "output", Type: "filter", Priority: -200})[0], doctor.OK, ""},
		{others(doctor.OtherChain{Family: "ip", Table: "nat", Name: "OUTPUT", Hook: "output", Type: "nat", Priority: -100})[0], doctor.OK, ""},
		{others(doctor.OtherChain{Family: "ip", Table: "late", Name: "o", Hook: "output", Type: "nat", Priority: 50})[0], doctor.Warn, "table ip late chain o (not known) can change destinations after Bawn's rules"},
		{others(doctor.OtherChain{Family: "ip", Table: "filter", Name: "OUTPUT", Hook: "output", Type: "filter", Drops: true, Beside: []string{"ufw-user-output"}})[0], doctor.Warn, "table ip filter chain OUTPUT (ufw) drops"},
		{others(doctor.OtherChain{Family: "inet", Table: "firewalld", Name: "filter_OUTPUT", Hook: "output", Type: "filter", Drops: true})[0], doctor.Warn, "(firewalld)"},
	},
	doctor.Forward: {
		{others(doctor.OtherChain{Family: "ip", Table: "filter", Name: "FORWARD", Hook: "forward", Type: "filter"})[1], doctor.OK, ""},
		{others(doctor.OtherChain{Family: "ip", Table: "filter", Name: "FORWARD", Hook: "forward", Type: "filter", Drops: true, Beside: []string{"DOCKER-USER"}})[1], doctor.Warn, "table ip filter chain FORWARD (Docker)"},
		{others(doctor.OtherChain{Family: "ip", Table: "filter", Name: "FORWARD", Hook: "forward", Type: "filter", Drops: true})[1], doctor.Warn, "(iptables)"},
	},
}

func TestJudgements(t *testing.T) {
	for name, list := range breaks {
		row, known := doctor.Find(name)
		worst := false
		for i, v := range list {
			l := v.got.Line()
			if !known || v.got.Name != name || doctor.State(l.State) != v.want || !strings.Contains(l.Detail, v.seen) {
				t.Errorf("%s %d: %+v, want %s with %q", name, i, l, v.want, v.seen)
			}
			if (v.want == doctor.Warn || v.want == doctor.Fail) != (l.Fix != "") {
				t.Errorf("%s %d: %s has the fix %q", name, i, l.State, l.Fix)
			}
			worst = worst || v.want == row.Worst
		}
		if !worst {
			t.Errorf("%s is never seen at its worst", name)
		}
	}
}

// TestI12TheZeroFindingHasFailed, and so has a check that nobody knows or made.
func TestI12TheZeroFindingHasFailed(t *testing.T) {
	for _, f := range []doctor.Finding{{}, {Name: doctor.TCP}, {Name: doctor.TCP, State: "fine"}, {Name: "no such check", State: doctor.OK}} {
		if l := f.Line(); l.OK || l.State != string(doctor.Fail) || l.Fix == "" {
			t.Errorf("%+v: %+v", f, l)
		}
	}
	lines := doctor.Lines("netns", []doctor.Name{doctor.TCP, doctor.UDP}, []doctor.Finding{{Name: doctor.TCP, Placement: "netns", State: doctor.OK}})
	if len(lines) != 2 || !lines[0].OK || lines[1].OK || lines[1].Name != string(doctor.UDP) || lines[1].Placement != "netns" {
		t.Errorf("%+v", lines)
	}
}

// TestOnlyWhatShowsAHoleShuts.
func TestOnlyWhatShowsAHoleShuts(t *testing.T) {
	for _, c := range doctor.All {
		l := doctor.Finding{Name: c.Name, State: doctor.Fail}.Line()
		shut := doctor.Shutting([]doctorLine{l}) != nil
		if shut != c.Shuts {
			t.Errorf("%s: shuts %v", c.Name, shut)
		}
		place := c.Group == doctor.Place || c.Group == doctor.Gate || c.Name == doctor.RulesPlanned
		if c.Shuts != place {
			t.Errorf("%s of %s shuts %v", c.Name, c.Group, c.Shuts)
		}
		if doctor.Shutting([]doctorLine{doctor.Finding{Name: c.Name, State: doctor.Warn}.Line()}) != nil {
			t.Errorf("%s shuts with a warning", c.Name)
		}
	}
	if doctor.Shutting([]doctorLine{doctor.Finding{Name: "no such check"}.Line()}) == nil {
		t.Error("what nobody knows does not shut")
	}
}
