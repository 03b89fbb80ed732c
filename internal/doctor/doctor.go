// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Package doctor is the closed set of checks that `bawn doctor` makes, and the
// decisions about what was seen. It looks at nothing itself: package probe
// tries from an agent's place, package inspect looks from outside, admin knows
// what the planes say.
//
// A check is in [All] or does not exist: its name never changes, since alerts
// are built on it. What a check needs and is not there on this host makes it
// not applicable; what could not be looked at has failed.
//
// # What shuts a placement
//
// Only a check that shows that something gets out of the placement, or that
// could not show the contrary. Whatever else fails is told at once and for as
// long as it lasts, and agents go on: stopping them would mend nothing.
package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"bawn/internal/apitype"
	"bawn/internal/ids"
)

// A Name names a check for good: in JSON, alerts and the documentation.
type Name string

// A State is what came of a check. The zero value is no state: it counts as
// failed.
type State string

// The states.
const (
	OK            State = "ok"
	Warn          State = "warn"           // it should be mended; nothing that Bawn promises is broken
	Fail          State = "fail"           // something that Bawn promises does not hold
	NotApplicable State = "not_applicable" // this host or configuration has no such thing
)

// A Check is one row of the catalogue.
type Check struct {
	Name  Name
	Group Group
	Title string
	Worst State         // what it is at worst: Fail or Warn
	Shuts bool          // a failure shuts the placement
	Only  ids.Placement // empty: every placement, or the host
	Looks string        // what is looked at, for the documentation
	Fix   string        // the usual remedy; a finding may have a better one
}

// A Group is a heading of the report.
type Group string

// The groups, in the order of the report.
const (
	Place     Group = "place"     // tried from an agent's place
	Gate      Group = "gate"      // that what must be refused is, on every path
	Firewall  Group = "firewall"  // rules of ours, and of others
	Files     Group = "files"     // owners and modes
	Processes Group = "processes" // Bawn's own
	Accounts  Group = "accounts"  // agents' accounts
	Kernel    Group = "kernel"    // features that are needed, and advice
	Clock     Group = "clock"     // and what ends with time
	Space     Group = "space"     // and the record
	Parts     Group = "parts"     // planes and what they depend on
)

// Headings are the groups with a heading for a person.
var Headings = []struct {
	Group Group
	Text  string
}{
	{Place, "From an agent's place"},
	{Gate, "What must be refused is refused"},
	{Firewall, "Firewall"},
	{Files, "Files"},
	{Processes, "Processes"},
	{Accounts, "Accounts of agents"},
	{Kernel, "Kernel"},
	{Clock, "Clock"},
	{Space, "Record and space"},
	{Parts, "Parts"},
}

// A Finding is what was seen of one check.
type Finding struct {
	Name Name `json:"name"`
	// Placement is that of the agents concerned; empty: the host's.
	Placement ids.Placement `json:"placement,omitempty"`
	State     State         `json:"state"`
	Seen      string        `json:"seen,omitempty"`
	Fix       string        `json:"fix,omitempty"` // instead of the catalogue's
}

// Find returns the row of name.
func Find(name Name) (Check, bool) {
	i := slices.IndexFunc(All, func(c Check) bool { return c.Name == name })
	if i < 0 {
		return Check{}, false
	}
	return All[i], true
}

// Line is the line of the report that f makes. A finding without a known name
// or state has failed: what was not shown does not hold.
func (f Finding) Line() apitype.DoctorLine {
	c, known := Find(f.Name)
	if !known {
		c = Check{Name: f.Name, Title: string(f.Name), Group: Parts, Worst: Fail, Fix: "client and server may be of different versions"}
	}
	state := f.State
	switch {
	case !known:
		state = Fail
	case state == OK || state == NotApplicable || state == Warn:
	default:
		state = c.Worst
	}
	l := apitype.DoctorLine{
		Placement: f.Placement, Name: string(c.Name), Group: string(c.Group), Check: c.Title,
		State: string(state), OK: state != Fail, Detail: f.Seen,
	}
	if state == Warn || state == Fail {
		l.Fix = f.Fix
		if l.Fix == "" {
			l.Fix = c.Fix
		}
	}
	return l
}

// Lines are the lines of all findings, in the order of the catalogue. A check
// of wanted of which there is no finding has failed, in placement p.
func Lines(p ids.Placement, wanted []Name, findings []Finding) []apitype.DoctorLine {
	var lines []apitype.DoctorLine
	for _, name := range wanted {
		if !slices.ContainsFunc(findings, func(f Finding) bool { return f.Name == name }) {
			findings = append(slices.Clone(findings), Finding{Name: name, Placement: p, State: Fail, Seen: "was not looked at", Fix: "run bawn doctor again; if this stays, look at the logs of netd and admin"})
		}
	}
	for _, f := range findings {
		lines = append(lines, f.Line())
	}
	Sort(lines)
	return lines
}

// Sort puts lines into the order of the catalogue, those of one placement
// together.
func Sort(lines []apitype.DoctorLine) {
	slices.SortStableFunc(lines, func(a, b apitype.DoctorLine) int {
		return cmp.Or(groupOf(a.Group)-groupOf(b.Group), strings.Compare(string(a.Placement), string(b.Placement)), index(a.Name)-index(b.Name))
	})
}

func groupOf(g string) int {
	for i, h := range Headings {
		if string(h.Group) == g {
			return i
		}
	}
	return len(Headings)
}

func index(name string) int {
	return slices.IndexFunc(All, func(c Check) bool { return c.Name == Name(name) })
}

// Shutting returns the first line that shuts its placement, or nil.
func Shutting(lines []apitype.DoctorLine) *apitype.DoctorLine {
	for i, l := range lines {
		c, known := Find(Name(l.Name))
		if !l.OK && (!known || c.Shuts) {
			return &lines[i]
		}
	}
	return nil
}

// In lists the names of the groups given.
func In(groups ...Group) (names []Name) {
	for _, c := range All {
		if slices.Contains(groups, c.Group) {
			names = append(names, c.Name)
		}
	}
	return names
}

// Summary names the first few of a list.
func Summary(list []string) string {
	const most = 3
	if len(list) <= most {
		return strings.Join(list, "; ")
	}
	return fmt.Sprintf("%s; and %d more", strings.Join(list[:most], "; "), len(list)-most)
}
