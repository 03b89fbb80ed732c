// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestWhatTheJournalWritesIsReadFast and by both readers the same.
func TestWhatTheJournalWritesIsReadFast(t *testing.T) {
	var e encoder
	d, o := testDecision("r-1"), testOutcome("r-1")
	d.Time, o.Time = start, start
	d.Sensitive, d.Clipped, d.Message, d.Asked, d.Detail, d.Credential, d.Vetted, d.Code = true, true, 7, "A", "b", "c", "parent", "host_not_allowed"
	o.Reused, o.Certificate, o.Presented, o.Code, o.Error, o.Cut, o.Close, o.MessagesUp, o.MessagesDown = true, "ab", "c", "limit", "e", "policy", 1005, 1, 2
	for name, body := range map[string][]byte{"decision": e.decision(nil, d), "outcome": e.outcome(nil, o)} {
		line := bytes.TrimSuffix(chain(body, 9, &[32]byte{7}), []byte("\n"))
		fast, ok := parseFast(line)
		slow, err := parseSlow(line)
		if !ok || err != nil {
			t.Fatalf("%s: %t, %v: %s", name, ok, err, line)
		}
		if diff := cmp.Diff(slow, fast); diff != "" {
			t.Errorf("%s: -slow +fast\n%s", name, diff)
		}
	}
}

func BenchmarkParseBothWays(b *testing.B) {
	var e encoder
	d := testDecision("r-1")
	d.Time = start
	line := bytes.TrimSuffix(chain(e.decision(nil, d), 9, &[32]byte{7}), []byte("\n"))
	for name, parse := range map[string]func([]byte) (Record, error){"fast": parseLine, "slow": parseSlow} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := parse(line); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
