// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"fmt"
	"slices"

	"bawn/internal/apitype"
	"bawn/internal/codes"
	"bawn/internal/quota"
)

// A Kind is the kind of a metric.
type Kind string

// The kinds, in the words of the text format.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// A Label is one label of a metric, with all values that it can have.
type Label struct {
	Name   string
	Values []string
}

// A Family is one metric.
type Family struct {
	Name   string
	Kind   Kind
	Help   string
	Labels []Label
}

// buckets are the upper bounds of every histogram, in seconds; one without a bound
// follows them.
var buckets = []float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300}

// The values of labels that only this package makes.
var (
	planes     = []string{"egress", "resolver"}
	verdicts   = []string{"deny", "allow", "ask"} // as verdict.Effect counts
	stages     = []string{"judge", "journal", "dns", "dial", "tls", "ttfb", "total"}
	directions = []string{"up", "down"}
	cuts       = []string{"policy", "lease", "limit", "budget", "session", "shutdown", "other"}
	processes  = []string{"netd", "admin", "proxy"}
	journals   = []string{"proxy", "admin"}
	placements = []string{"netns", "uid", "vm"}
	abouts     = []string{"netns", "uid", "vm", "host"}
	groups     = []string{"place", "gate", "firewall", "files", "processes", "accounts", "kernel", "clock", "space", "parts", "other"} // as package doctor has them
	results    = []string{"ok", "warn", "fail", "not_applicable"}                                                                      // likewise
)

// Reporters are the processes that report what they count.
func Reporters() []string { return []string{"proxy"} }

// noCode stands for the code of what has none, and otherCode for one that the
// catalogue does not have.
const (
	noCode    = "none"
	otherCode = "other"
)

func codeValues() []string {
	list := []string{noCode, otherCode}
	for _, e := range codes.Catalogue() {
		list = append(list, string(e.Code))
	}
	return list
}

func budgetValues() []string {
	var list []string
	for _, w := range quota.Whats() {
		list = append(list, w.String())
	}
	return list
}

var (
	families = build()
	byName   = index(families)
)

// Families lists every metric, in the order in which they are written.
func Families() []Family { return families }

func build() []Family {
	return slices.Concat(traffic(), limits(), records(), state())
}

func traffic() []Family {
	return []Family{
		{"bawn_decisions_total", Counter, "Decisions, by the plane that made them, with the code of a refusal. Messages that a guard judges are among them.",
			[]Label{{"plane", planes}, {"verdict", verdicts}, {"code", codeValues()}}},
		{"bawn_stage_duration_seconds", Histogram, "How long stages of a request take: judge until it is judged, journal until it is on record, dns, dial and tls to reach the server, ttfb from the last byte of the request to the first of the response, total until its end.",
			[]Label{{"stage", stages}}},
		{"bawn_transferred_bytes_total", Counter, "Bytes that were passed on, up to servers and down to agents, counted when what they belong to ends.",
			[]Label{{"direction", directions}}},
		{"bawn_websocket_messages_total", Counter, "Messages of WebSockets that were passed on.", []Label{{"direction", directions}}},
		{"bawn_failures_total", Counter, "What was let through and ended with a code.", []Label{{"code", codeValues()}}},
		{"bawn_cuts_total", Counter, "What was let through and ended early by Bawn, by why.", []Label{{"why", cuts}}},
		{"bawn_connections", Gauge, "Connections of agents that are open.", nil},
		{"bawn_flows", Gauge, "Connections of agents, and streams of HTTP/2, that are open.", nil},
	}
}

func limits() []Family {
	return []Family{
		{"bawn_budget_refusals_total", Counter, "What was refused or cut for a budget.", []Label{{"budget", budgetValues()}}},
		{"bawn_budgets", Gauge, "Budgets of agents and rules that are in force.", []Label{{"budget", budgetValues()}}},
		{"bawn_budgets_exhausted", Gauge, "Budgets of agents and rules that are used up now.", []Label{{"budget", budgetValues()}}},
	}
}

func records() []Family {
	return []Family{
		{"bawn_journal_records_total", Counter, "Records that were written to a journal.", []Label{{"journal", journals}}},
		{"bawn_journal_written_bytes_total", Counter, "Bytes that were written to a journal.", []Label{{"journal", journals}}},
		{"bawn_journal_errors_total", Counter, "Writes to a journal that failed.", []Label{{"journal", journals}}},
		{"bawn_journal_available", Gauge, "1 if the journal can be written; while it cannot, everything is refused.", []Label{{"journal", journals}}},
		{"bawn_journal_queue_records", Gauge, "Records that wait to be written.", []Label{{"journal", journals}}},
		{"bawn_journal_unsynced_seconds", Gauge, "Age of the oldest record that is not on the disk yet.", []Label{{"journal", journals}}},
		{"bawn_index_lag_seconds", Gauge, "For how long the audit index has been behind the journals; 0 if it is not.", nil},
		{"bawn_index_behind_bytes", Gauge, "Bytes of journals that are not in the audit index yet.", nil},
		{"bawn_index_bytes", Gauge, "Size of the audit index.", nil},
		{"bawn_index_damages", Gauge, "Places at which a journal could not be read into the audit index.", nil},
		{"bawn_checkpoint_timestamp_seconds", Gauge, "Time of the newest signed checkpoint of a journal.", []Label{{"journal", journals}}},
		{"bawn_checkpoint_waiting_records", Gauge, "Records of a journal that no checkpoint covers yet.", []Label{{"journal", journals}}},
		{"bawn_journal_broken", Gauge, "1 if the chain of a journal was found broken.", []Label{{"journal", journals}}},
	}
}

func state() []Family {
	return []Family{
		{"bawn_ready", Gauge, "1 if agents are handed out.", nil},
		{"bawn_process_up", Gauge, "1 if the process answers.", []Label{{"process", processes}}},
		{"bawn_process_start_time_seconds", Gauge, "When the process started; it changes with each restart.", []Label{{"process", processes}}},
		{"bawn_lease_held", Gauge, "1 if the plane holds a lease; without one it refuses everything.", []Label{{"process", processes}}},
		{"bawn_lease_beat_timestamp_seconds", Gauge, "Time of the newest beat of the plane.", []Label{{"process", processes}}},
		{"bawn_lease_revision", Gauge, "Revision of the policy that the plane enforces.", []Label{{"process", processes}}},
		{"bawn_policy_revision", Gauge, "Revision of the policy in force; 0 if there is none.", nil},
		{"bawn_policy_applied_timestamp_seconds", Gauge, "When the policy in force was applied.", nil},
		{"bawn_agents", Gauge, "Agents that are registered.", nil},
		{"bawn_sessions", Gauge, "Sessions that run.", []Label{{"placement", placements}}},
		{"bawn_doctor_checks", Gauge, "Checks of the newest self-test, by group, by what they are about, and by how they ended.", []Label{{"group", groups}, {"about", abouts}, {"result", results}}},
		{"bawn_doctor_run_timestamp_seconds", Gauge, "When the newest self-test ended.", nil},
		{"bawn_report_timestamp_seconds", Gauge, "When the plane has last reported what it counts.", []Label{{"process", processes}}},
	}
}

func index(list []Family) map[string]int {
	m := make(map[string]int, len(list))
	for i, f := range list {
		m[f.Name] = i
	}
	return m
}

// Check says what of a sample is not of the list.
func Check(s apitype.Sample) error {
	i, known := byName[s.Name]
	if !known {
		return fmt.Errorf("checking a sample: no metric is called %q", s.Name)
	}
	f := &families[i]
	if len(s.Labels) != len(f.Labels) {
		return fmt.Errorf("checking a sample of %s: %d labels, want %d", f.Name, len(s.Labels), len(f.Labels))
	}
	for i, l := range f.Labels {
		if !slices.Contains(l.Values, s.Labels[i]) {
			return fmt.Errorf("checking a sample of %s: %q is no value of %s", f.Name, s.Labels[i], l.Name)
		}
	}
	if want := len(buckets) + 1; f.Kind == Histogram && len(s.Buckets) != want || f.Kind != Histogram && s.Buckets != nil {
		return fmt.Errorf("checking a sample of %s: %d buckets", f.Name, len(s.Buckets))
	}
	return nil
}
