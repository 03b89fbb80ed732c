// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"bawn/internal/codes"
	"bawn/internal/ids"
	"bawn/internal/verdict"

	"github.com/google/go-cmp/cmp"
)

var testID = ids.Identity{
	Slot: 3, Gen: ids.Generation{Epoch: 7, Count: 42},
	Session: "s-0123456789abcdef", Agent: "dev", User: "ann",
}

func testDecision(request string) *Decision {
	return &Decision{
		Request: request, Identity: testID, Revision: 5, Arrival: "explicit", Client: "127.0.0.1:50123", Proto: "http/1.1",
		Method: "GET", Scheme: "https", Host: "api.example.com", Port: 443, SNI: "api.example.com",
		ALPN: "http/1.1", Path: "/v1/things", Query: QueryHash("a=b"), Verdict: verdict.Allow,
		Stage: "head", Rule: "r1", Inspect: "full",
	}
}

func testOutcome(request string) *Outcome {
	return &Outcome{
		Request: request, Identity: testID, Revision: 5, Status: 200, BytesUp: 120, BytesDown: 1300,
		Upstream: "203.0.113.9:443", Local: "192.0.2.7:40312", Queue: Span(time.Millisecond), DNS: Span(1500 * time.Microsecond), Dial: Span(2 * time.Millisecond),
		TLS: Span(3 * time.Millisecond), TTFB: Span(40 * time.Millisecond), Total: Span(41 * time.Millisecond),
	}
}

func testDial(request string) *Dial {
	return &Dial{Time: start, Request: request, Identity: testID, Local: "192.0.2.7:40312", Upstream: "203.0.113.9:443"}
}

func open(t *testing.T, dir string, opt Options) *Journal {
	t.Helper()
	if opt.Plane == "" {
		opt.Plane = "egress"
	}
	j, err := OpenJournal(dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

func decide(t *testing.T, j *Journal, d *Decision) {
	t.Helper()
	if err := j.Decide(d); err != nil {
		t.Fatal(err)
	}
}

// lines reads all records of a series, in order.
func lines(t *testing.T, dir string) []Record {
	t.Helper()
	series, err := listSeries(dir)
	if err != nil {
		t.Fatal(err)
	}
	var records []Record
	for _, name := range series["egress"] {
		raw, err := os.ReadFile(filepath.Join(dir, name.String()))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(raw)) {
			if rec, err := parseLine([]byte(strings.TrimSuffix(line, "\n"))); err == nil {
				records = append(records, rec)
			}
		}
	}
	return records
}

func verified(t *testing.T, dir string) SeriesReport {
	t.Helper()
	report, err := Verify(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Series) != 1 {
		t.Fatalf("got %d series, want 1", len(report.Series))
	}
	if !report.OK() {
		t.Fatalf("chain is broken: %+v", report.Series[0].Faults)
	}
	return report.Series[0]
}

func entries(t *testing.T, dir string, f Filter) []Entry {
	t.Helper()
	var got []Entry
	for e, err := range Scan(dir, f) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e)
	}
	return got
}

func TestI7DecisionIsInTheFileWhenDecideReturns(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, Options{})
	for i := range 5 {
		d := testDecision(fmt.Sprintf("r-%d", i))
		decide(t, j, d)
		got := lines(t, dir)
		last := got[len(got)-1]
		if last.Seq != d.Seq || last.Decision == nil || last.Decision.Request != d.Request {
			t.Fatalf("after decision %d (number %d) the file ends with %+v", i, d.Seq, last)
		}
	}
	verified(t, dir)
}

func TestOutcomeJoinsAndWaitsAtMostTheFlushTime(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, Options{})
	d, o := testDecision("r-1"), testOutcome("r-1")
	decide(t, j, d)
	if err := j.Outcome(o); err != nil {
		t.Fatal(err)
	}
	for range 3000 {
		if got := lines(t, dir); got[len(got)-1].Outcome != nil {
			break
		}
		time.Sleep(flushAfter / 10)
	}
	got := entries(t, dir, Filter{})
	o.Seq = d.Seq + 1
	d.Time, o.Time = d.Time.Truncate(time.Microsecond), o.Time.Truncate(time.Microsecond)
	if diff := cmp.Diff([]Entry{{Decision: d, Outcome: o}}, got); diff != "" {
		t.Error(diff)
	}
}

func TestCloseWritesOutcomesAndIsIdempotent(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, Options{})
	decide(t, j, testDecision("r-1"))
	j.Outcome(testOutcome("r-1"))
	for range 2 {
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if got := entries(t, dir, Filter{}); len(got) != 1 || got[0].Outcome == nil {
		t.Errorf("got %+v", got)
	}
	if err := j.Decide(testDecision("r-2")); err != ErrClosed {
		t.Errorf("Decide after Close: %v", err)
	}
	if err := j.Outcome(testOutcome("r-2")); err != ErrClosed {
		t.Errorf("Outcome after Close: %v", err)
	}
}

// TestConcurrentDecisionsAreEachRecordedOnce is also the case of parallel
// requests, half of them denied: as many rows, with unique numbers.
func TestConcurrentDecisionsAreEachRecordedOnce(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, Options{Denials: -1, FileBytes: 64 << 10})
	const workers, each = 12, 200
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				d := testDecision(fmt.Sprintf("r-%d-%d", w, i))
				if w%2 == 0 {
					d.Verdict, d.Code = verdict.Deny, codes.HostNotAllowed
				}
				if err := j.Decide(d); err != nil {
					t.Error(err)
				}
				if d.Verdict == verdict.Allow {
					j.Outcome(testOutcome(d.Request))
				}
			}
		})
	}
	wg.Wait()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	got := entries(t, dir, Filter{})
	seen := make(map[string]bool)
	for _, e := range got {
		seen[e.Decision.Request] = true
		if e.Decision.Verdict == verdict.Allow && e.Outcome == nil {
			t.Errorf("%s has no outcome", e.Decision.Request)
		}
	}
	if len(got) != workers*each || len(seen) != workers*each {
		t.Errorf("got %d entries of %d requests, want %d", len(got), len(seen), workers*each)
	}
	if report := verified(t, dir); report.Files < 3 {
		t.Errorf("got %d files, want several", report.Files)
	}
}

func TestEncoderAgreesWithEncodingJSON(t *testing.T) {
	hostile := "a\"b\\c\x00\x1b[31m\x7f\u009b\u202e\u2028\xff\xc3(é世🙂"
	at := time.Date(2026, 1, 2, 3, 4, 5, 6_789_123, time.UTC)
	d := testDecision("r-1")
	d.Seq, d.Time, d.Plane, d.Code, d.Asked, d.Detail, d.Sensitive = 9, at, "egress", codes.PathNotAllowed, "API.example.com.", hostile, true
	d.Credential, d.Vetted = hostile, "parent"
	o := testOutcome("r-1")
	o.Presented, o.Certificate = hostile, hostile
	l := testDial("r-1")
	l.Seq, l.Time, l.Plane, l.Local = 14, at, "egress", hostile
	o.Seq, o.Time, o.Plane, o.Code, o.Error, o.Cut, o.Reused = 10, at, "egress", codes.UpstreamUnreachable, hostile, "policy", true
	s := &Summary{
		Seq: 11, Time: at, Identity: testID, Plane: "egress", From: at.Add(-time.Second), To: at, Denials: 7, Revision: 5,
		Codes: map[codes.Code]uint64{codes.HostNotAllowed: 4, codes.PortNotAllowed: 3},
	}
	g := &Gap{Seq: 12, Time: at, Plane: "egress", From: at.Add(-time.Minute), Refused: 3, Lost: 1, Error: hostile}
	h := &FileHead{Seq: 13, Time: at, Plane: "egress", File: "a", After: "b", Torn: []Torn{{"b", 5, 6}, {"c", 0, 0}}}
	var e encoder
	cases := map[string]struct {
		body []byte
		seq  uint64
		want any
	}{
		"decision": {e.decision(nil, d), 9, d},
		"zero":     {e.decision(nil, &Decision{Time: at}), 0, &Decision{Time: at}},
		"outcome":  {e.outcome(nil, o), 10, o},
		"summary":  {e.summary(nil, s), 11, s},
		"gap":      {e.gap(nil, g), 12, g},
		"file":     {e.head(nil, h), 13, h},
		"dial":     {e.dial(nil, l), 14, l},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			line := chain(c.body, c.seq, &[32]byte{1})
			if strings.ContainsAny(string(line[:len(line)-1]), "\n\x1b\x7f") || strings.Contains(string(line), "\u009b") {
				t.Errorf("the line holds control characters: %q", line)
			}
			// The same value by encoding/json, in microseconds, read back both ways.
			std, err := json.Marshal(c.want)
			if err != nil {
				t.Fatal(err)
			}
			var fast, slow map[string]any
			if err := json.Unmarshal(line, &fast); err != nil {
				t.Fatalf("%v in %s", err, line)
			}
			if err := json.Unmarshal(std, &slow); err != nil {
				t.Fatal(err)
			}
			delete(fast, "v")
			delete(fast, "kind")
			delete(fast, "prev")
			for _, m := range []map[string]any{fast, slow} {
				for _, k := range []string{"time", "from", "to"} {
					if text, ok := m[k].(string); ok {
						at, err := time.Parse(time.RFC3339Nano, text)
						if err != nil {
							t.Fatal(err)
						}
						m[k] = at.Truncate(time.Microsecond)
					}
				}
			}
			if diff := cmp.Diff(slow, fast); diff != "" {
				t.Error(diff)
			}
		})
	}
}
