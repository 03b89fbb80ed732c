// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"math"
	"slices"
	"sync/atomic"
	"time"

	"bawn/internal/apitype"
	"bawn/internal/audit"
	"bawn/internal/codes"
	"bawn/internal/verdict"
)

// A Plane is a part of the proxy that decides.
type Plane int

// The planes, as in the label.
const (
	Egress Plane = iota
	Resolver
)

// A Stage is a part of the time that a request takes.
type Stage int

// The stages, as in the label.
const (
	Judge Stage = iota
	Journal
	DNS
	Dial
	TLS
	TTFB
	Total
)

// A Proxy is what the proxy counts. It may be used by many goroutines.
type Proxy struct {
	codes     map[codes.Code]int // place in codeValues
	values    []string
	decisions [][]atomic.Uint64 // by plane and verdict, then code
	failures  []atomic.Uint64   // by code
	stages    []histogram
	bytes     [2]atomic.Uint64 // by direction
	messages  [2]atomic.Uint64
	cuts      []atomic.Uint64
}

// NewProxy returns counters that stand at zero.
func NewProxy() *Proxy {
	p := &Proxy{codes: map[codes.Code]int{}, values: codeValues(), stages: make([]histogram, len(stages)), cuts: make([]atomic.Uint64, len(cuts))}
	for i, v := range p.values[2:] {
		p.codes[codes.Code(v)] = i + 2
	}
	p.failures = make([]atomic.Uint64, len(p.values))
	for range len(planes) * len(verdicts) {
		p.decisions = append(p.decisions, make([]atomic.Uint64, len(p.values)))
	}
	for i := range p.stages {
		p.stages[i].counts = make([]atomic.Uint64, len(buckets)+1)
	}
	return p
}

// place is that of a code among the values of its label.
func (p *Proxy) place(code codes.Code) int {
	if code == "" {
		return 0
	}
	if i, known := p.codes[code]; known {
		return i
	}
	return 1
}

// A histogram counts durations by bucket, and adds them up.
type histogram struct {
	counts []atomic.Uint64
	sum    atomic.Int64 // nanoseconds
}

func (h *histogram) observe(d time.Duration) {
	s := d.Seconds()
	i := 0
	for i < len(buckets) && s > buckets[i] {
		i++
	}
	h.counts[i].Add(1)
	h.sum.Add(int64(d))
}

// Took counts how long a stage took.
func (p *Proxy) Took(s Stage, d time.Duration) { p.stages[s].observe(max(d, 0)) }

// Judged counts how long it took to judge a request.
func (p *Proxy) Judged(d time.Duration) { p.Took(Judge, d) }

// A Recorder counts what goes through it to a journal.
type Recorder struct {
	p     *Proxy
	plane Plane
	to    *audit.Journal
}

// Recorder returns what counts the decisions of a plane on their way to j.
func (p *Proxy) Recorder(plane Plane, j *audit.Journal) *Recorder { return &Recorder{p, plane, j} }

// Decide puts a decision on record. One that cannot be, and would have let
// something through, is not counted: its refusal follows.
func (r *Recorder) Decide(d *audit.Decision) error {
	began := time.Now()
	err := r.to.Decide(d)
	r.p.Took(Journal, time.Since(began))
	if err == nil || d.Verdict == verdict.Deny {
		r.p.decided(r.plane, d.Verdict, d.Code)
	}
	return err
}

func (p *Proxy) decided(plane Plane, v verdict.Effect, code codes.Code) {
	if int(v) >= len(verdicts) {
		v = verdict.Deny
	}
	p.decisions[int(plane)*len(verdicts)+int(v)][p.place(code)].Add(1)
}

// Outcome puts an outcome on record.
func (r *Recorder) Outcome(o *audit.Outcome) error {
	p := r.p
	for _, t := range [...]struct {
		stage Stage
		took  audit.Span
	}{{DNS, o.DNS}, {Dial, o.Dial}, {TLS, o.TLS}, {TTFB, o.TTFB}, {Total, o.Total}} {
		if t.took > 0 {
			p.Took(t.stage, time.Duration(t.took))
		}
	}
	add(&p.bytes[0], o.BytesUp)
	add(&p.bytes[1], o.BytesDown)
	add(&p.messages[0], o.MessagesUp)
	add(&p.messages[1], o.MessagesDown)
	if o.Code != "" {
		p.failures[p.place(o.Code)].Add(1)
	}
	if o.Cut != "" {
		i := slices.Index(cuts, o.Cut)
		if i < 0 {
			i = len(cuts) - 1
		}
		p.cuts[i].Add(1)
	}
	return r.to.Outcome(o)
}

func add(to *atomic.Uint64, n int64) {
	if n > 0 {
		to.Add(uint64(n))
	}
}

// Dial puts on record that an upstream connection stands.
func (r *Recorder) Dial(d *audit.Dial) error { return r.to.Dial(d) }

// SyncNow brings what was recorded to the disk.
func (r *Recorder) SyncNow() error { return r.to.SyncNow() }

// Samples is what was counted so far: series that stand at zero are left out,
// except those of metrics with few.
func (p *Proxy) Samples() []apitype.Sample {
	var list []apitype.Sample
	for i := range p.decisions {
		plane, v := planes[i/len(verdicts)], verdicts[i%len(verdicts)]
		for j := range p.decisions[i] {
			n := p.decisions[i][j].Load()
			if n > 0 || j == 0 && v == "allow" {
				list = append(list, sample("bawn_decisions_total", n, plane, v, p.values[j]))
			}
		}
	}
	for i := range p.failures {
		if n := p.failures[i].Load(); n > 0 {
			list = append(list, sample("bawn_failures_total", n, p.values[i]))
		}
	}
	for i := range p.stages {
		h := &p.stages[i]
		s := apitype.Sample{Name: "bawn_stage_duration_seconds", Labels: []string{stages[i]}, Buckets: make([]uint64, len(h.counts))}
		for j := range h.counts {
			s.Buckets[j] = h.counts[j].Load()
		}
		s.Value = time.Duration(h.sum.Load()).Seconds()
		list = append(list, s)
	}
	for i, d := range directions {
		list = append(list, sample("bawn_transferred_bytes_total", p.bytes[i].Load(), d), sample("bawn_websocket_messages_total", p.messages[i].Load(), d))
	}
	for i, why := range cuts {
		list = append(list, sample("bawn_cuts_total", p.cuts[i].Load(), why))
	}
	return list
}

func sample(name string, n uint64, labels ...string) apitype.Sample {
	return apitype.Sample{Name: name, Labels: labels, Value: float64(n)}
}

// Value makes the sample of a gauge or counter.
func Value(name string, v float64, labels ...string) apitype.Sample {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		v = 0 // JSON has neither
	}
	return apitype.Sample{Name: name, Labels: labels, Value: v}
}

// Yes is 1 for true.
func Yes(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Time is a time as metrics have it, in seconds since 1970; 0 for none.
func Time(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

// OfJournal is what a journal says of itself.
func OfJournal(name string, s audit.Stats) []apitype.Sample {
	return []apitype.Sample{
		sample("bawn_journal_records_total", s.Records, name),
		sample("bawn_journal_written_bytes_total", s.Bytes, name),
		sample("bawn_journal_errors_total", s.Errors, name),
		Value("bawn_journal_available", Yes(s.Available), name),
		Value("bawn_journal_queue_records", float64(s.Waiting), name),
		Value("bawn_journal_unsynced_seconds", s.Unsynced.Seconds(), name),
	}
}
