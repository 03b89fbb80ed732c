// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package hindsight

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"time"

	"bawn/internal/addr"
	"bawn/internal/audit"
	"bawn/internal/codes"
	"bawn/internal/policy"
	"bawn/internal/verdict"
)

// A Candidate is a policy that is to be asked about what is on record.
type Candidate struct {
	Policy  *policy.Policy
	InForce *policy.Policy // what enforces now, or nil; for what would be denied anyway
	Agents  map[string]bool
	// Past returns the policy of a revision, or nil where it cannot be had. It
	// tells which guards a request has passed already.
	Past func(revision uint64) *policy.Policy
	Now  time.Time
}

// A Row is records of one agent to which the same would happen. Text in it was
// written by agents.
type Row struct {
	Agent  string    `json:"agent"`
	Host   string    `json:"host,omitempty"`
	Port   uint16    `json:"port,omitempty"`
	Code   string    `json:"code,omitempty"` // that it would be denied with
	Rule   string    `json:"rule,omitempty"` // of the candidate, that would decide
	Was    string    `json:"was,omitempty"`  // the code that it was denied with
	By     string    `json:"by,omitempty"`   // the rule that decided then
	Why    string    `json:"why,omitempty"`  // of what is not known
	Count  uint64    `json:"count"`
	Anyway uint64    `json:"anyway,omitempty"` // of these, how many the policy in force treats so as well
	First  time.Time `json:"first,omitzero"`
	Last   time.Time `json:"last,omitzero"`
	Sample string    `json:"sample,omitempty"` // one of them
}

// A Report is what a candidate would change of what is on record.
type Report struct {
	Records      uint64 `json:"records"` // that were looked at
	StillAllowed uint64 `json:"still_allowed"`
	StillDenied  uint64 `json:"still_denied"`

	Denied   []Row `json:"denied"`   // was allowed, would be denied
	Allowed  []Row `json:"allowed"`  // was denied, would be allowed
	Content  []Row `json:"content"`  // depends on what is not on record
	Unjudged []Row `json:"unjudged"` // cannot be put to a policy again
	// Beyond counts records that have no row, since there are so many.
	Beyond uint64 `json:"beyond,omitempty"`
	Note   string `json:"note,omitempty"` // in which way the record is not whole; set by the caller
}

// maxRows bounds each list of a report while it is made.
const maxRows = 2000

// Replay puts every record to the candidate. An error ends it and comes with
// what there is so far.
func Replay(ctx context.Context, c Candidate, entries iter.Seq2[audit.Entry, error]) (Report, error) {
	r := &replay{c: c}
	for e, err := range entries {
		if err != nil {
			return r.report(), fmt.Errorf("reading the record: %w", err)
		}
		if ctx.Err() != nil {
			return r.report(), ctx.Err()
		}
		r.entry(&e)
	}
	return r.report(), nil
}

// A replay is a report in the making.
type replay struct {
	c                                  Candidate
	out                                Report
	denied, allowed, content, unjudged rows
}

// rows are found by what they have in common.
type rows map[string]*Row

func (r *replay) report() Report {
	out := r.out
	out.Denied, out.Allowed, out.Content, out.Unjudged = r.denied.sorted(), r.allowed.sorted(), r.content.sorted(), r.unjudged.sorted()
	return out
}

// sorted lists rows by agent, what is most often first.
func (m rows) sorted() []Row {
	list := make([]Row, 0, len(m))
	for _, row := range m {
		list = append(list, *row)
	}
	slices.SortFunc(list, func(a, b Row) int {
		return cmp.Or(strings.Compare(a.Agent, b.Agent), cmp.Compare(b.Count, a.Count), strings.Compare(a.Host, b.Host),
			cmp.Compare(a.Port, b.Port), strings.Compare(a.Code+a.Was+a.Why, b.Code+b.Was+b.Why), strings.Compare(a.Sample, b.Sample))
	})
	return list
}

// add counts one record, or more where a summary stands for them.
func (r *replay) add(m *rows, row Row, at time.Time, n uint64, anyway bool) {
	if *m == nil {
		*m = rows{}
	}
	key := fmt.Sprintf("%q", []string{row.Agent, row.Host, row.Code, row.Rule, row.Was, row.By, row.Why, fmt.Sprint(row.Port)})
	have := (*m)[key]
	if have == nil {
		if len(*m) >= maxRows {
			r.out.Beyond += n
			return
		}
		row.First = at
		have = &row
		(*m)[key] = have
	}
	have.Count += n
	if anyway {
		have.Anyway += n
	}
	if at.Before(have.First) {
		have.First = at
	}
	if at.After(have.Last) {
		have.Last = at
	}
}

// entry looks at one line of the log.
func (r *replay) entry(e *audit.Entry) {
	switch {
	case e.Decision != nil && e.Late:
		// it has been here before, without its outcome
	case e.Decision != nil:
		r.out.Records++
		r.decision(e)
	case e.Summary != nil:
		r.out.Records += e.Summary.Denials
		r.add(&r.unjudged, Row{Agent: e.Summary.Agent, Why: whySummary}, e.Summary.To, e.Summary.Denials, false)
	case e.Damage != nil:
		r.out.Records++
		r.add(&r.unjudged, Row{Why: whyDamage}, time.Time{}, 1, false)
	}
}

func (r *replay) decision(e *audit.Entry) {
	d := e.Decision
	if !r.c.Agents[d.Agent] {
		r.add(&r.unjudged, Row{Agent: d.Agent, Why: whyGone}, d.Time, 1, false)
		return
	}
	a, why := read(e)
	if why == whyProtocol && d.Verdict != verdict.Allow {
		r.out.StillDenied++ // whatever the rules are
		return
	}
	if why != "" {
		r.add(&r.unjudged, Row{Agent: d.Agent, Why: why}, d.Time, 1, false)
		return
	}
	got := a.judge(r.c.Policy.Agent(d.Agent), r.c.Now)
	if d.Verdict == verdict.Allow {
		r.wasAllowed(e, a, got)
		return
	}
	r.wasDenied(d, a, got)
}

// row is what records have in common with d.
func row(d *audit.Decision, a asked) Row {
	return Row{Agent: d.Agent, Host: d.Host, Port: d.Port, By: d.Rule, Sample: clipped(a.String())}
}

// maxSample bounds what a report repeats of a record, in bytes.
const maxSample = 300

func clipped(s string) string {
	if len(s) > maxSample {
		return strings.ToValidUTF8(s[:maxSample], "") + "..."
	}
	return s
}

// wasAllowed: would it be denied? The candidate may also have to see what is not
// on record.
func (r *replay) wasAllowed(e *audit.Entry, a asked, got policy.Decision) {
	d := e.Decision
	out := row(d, a)
	if !got.Verdict.Allowed() {
		out.Code, out.Rule = string(got.Verdict.Why()), got.Verdict.Rule
		now := a.judge(r.c.InForce.Agent(d.Agent), r.c.Now)
		r.add(&r.denied, out, d.Time, 1, !now.Verdict.Allowed())
		return
	}
	out.Rule = got.Verdict.Rule
	if detail, ok := vetted(e, got); !ok {
		out.Code, out.Why = string(codes.AddressNotPublic), detail
		now := a.judge(r.c.InForce.Agent(d.Agent), r.c.Now)
		_, fine := vetted(e, now)
		r.add(&r.denied, out, d.Time, 1, !now.Verdict.Allowed() || !fine)
		return
	}
	if out.Why = r.unknown(d, a, got); out.Why != "" {
		r.add(&r.content, out, d.Time, 1, false)
		return
	}
	r.out.StillAllowed++
}

// vetted reports whether the address that was dialled would be dialled again.
// What a parent proxy dialled is not known.
func vetted(e *audit.Entry, d policy.Decision) (detail string, ok bool) {
	if e.Outcome == nil || e.Decision.Vetted != "" {
		return "", true
	}
	to, err := netip.ParseAddrPort(e.Outcome.Upstream)
	if err != nil {
		return "", true // none was
	}
	return addr.Vet{Allowed: d.Addresses}.Check(to.Addr().Unmap())
}

// unknown says what the candidate would have to see of an allowed request that
// is not on record.
func (r *replay) unknown(d *audit.Decision, a asked, got policy.Decision) string {
	switch {
	case a.form == formDNS:
		return ""
	case a.form == formTunnel && got.Inspect < passedAs(d.Inspect):
		return "would be inspected, and what was sent inside is not on record"
	case a.form == formRequest && got.Credential != d.Credential:
		return "would go with credential " + cmp.Or(got.Credential, "none") + ", and went with " + cmp.Or(d.Credential, "none")
	case len(got.Guards) == 0:
		return ""
	}
	passed := r.passed(d, a)
	var list []string
	for _, g := range got.Guards {
		if !slices.Contains(passed, g.Name) {
			list = append(list, g.Name)
		}
	}
	if len(list) == 0 {
		return ""
	}
	return "guard " + strings.Join(list, ", ") + " would judge it, by what is not on record"
}

// passedAs is how a connection was looked into by its record.
func passedAs(inspect string) policy.Inspect {
	switch inspect {
	case "none":
		return policy.InspectNone
	case "sni":
		return policy.InspectSNI
	}
	return policy.InspectFull
}

// passed lists the guards that a request has passed when it was allowed. They
// are pure, so they let it pass again.
func (r *replay) passed(d *audit.Decision, a asked) []string {
	if r.c.Past == nil {
		return nil
	}
	var list []string
	if then := a.judge(r.c.Past(d.Revision).Agent(d.Agent), d.Time); then.Verdict.Allowed() {
		for _, g := range then.Guards {
			list = append(list, g.Name)
		}
	}
	return list
}

// wasDenied: would it be allowed? Only where rules denied it can they tell.
func (r *replay) wasDenied(d *audit.Decision, a asked, got policy.Decision) {
	if !got.Verdict.Allowed() {
		r.out.StillDenied++
		return
	}
	out := row(d, a)
	out.Was, out.Rule = string(d.Code), got.Verdict.Rule
	entry, _ := codes.Lookup(d.Code)
	switch {
	case d.Code == codes.DNSTypeDenied, a.form == formDNS && !a.answers():
		r.out.StillDenied++
	case d.Stage == "guard" || d.Stage == "body" || d.Stage == "message":
		out.Why = "a guard refused it, by what is not on record"
		r.add(&r.content, out, d.Time, 1, false)
	case matterOfRules(d) && len(got.Guards) > 0:
		out.Why = "rules would allow it, and guards would judge it by what is not on record"
		r.add(&r.content, out, d.Time, 1, false)
	case matterOfRules(d):
		now := a.judge(r.c.InForce.Agent(d.Agent), r.c.Now)
		r.add(&r.allowed, out, d.Time, 1, now.Verdict.Allowed())
	case entry.Group == codes.GroupRequests:
		r.out.StillDenied++ // its form is at fault
	case entry.Group == codes.GroupAddresses:
		r.add(&r.unjudged, Row{Agent: d.Agent, Was: string(d.Code), Why: whyAddress}, d.Time, 1, false)
	default:
		r.add(&r.unjudged, Row{Agent: d.Agent, Was: string(d.Code), Why: whyState}, d.Time, 1, false)
	}
}
