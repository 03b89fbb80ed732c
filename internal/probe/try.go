// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"

	"bawn/internal/doctor"
)

// An Outcome is what came of a try.
type Outcome string

// The outcomes.
const (
	Blocked  Outcome = "blocked"  // an error, or silence
	Answered Outcome = "answered" // by Bawn itself
	GotOut   Outcome = "got_out"  // by anything else
)

// A Try is one line of the probe.
type Try struct {
	Check   Check   `json:"check"`
	Target  string  `json:"target"`
	Outcome Outcome `json:"outcome"`
	Code    string  `json:"code,omitempty"` // Bawn's code, where Bawn answered with one
	Detail  string  `json:"detail,omitempty"`
	// Silent marks a try that nothing refused and nobody answered: it may have
	// gone anywhere.
	Silent bool `json:"silent,omitempty"`
	// Canary marks a try that named the canary: its code is that of all.
	Canary bool `json:"canary,omitempty"`
	// Limit marks what this kernel cannot close in this placement, as the
	// documentation says: it is told, and is no failure.
	Limit bool `json:"limit,omitempty"`
}

// A Check is the group of tries that makes one line of doctor.
type Check = doctor.Name

// The bounds of what Read takes.
const (
	maxLine  = 16 << 10
	maxTries = 4096
)

// Read reads the probe's lines. A line that is no Try is an error: what stands
// in the agent's place may be anything.
func Read(r io.Reader) ([]Try, error) {
	var tries []Try
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var t Try
		if err := json.Unmarshal(lines.Bytes(), &t); err != nil {
			return nil, fmt.Errorf("reading the probe's line %d: %w", len(tries)+1, err)
		}
		if t.Check == "" || t.Outcome != Blocked && t.Outcome != Answered && t.Outcome != GotOut {
			return nil, fmt.Errorf("reading the probe's line %d: not a try", len(tries)+1)
		}
		if len(tries) == maxTries {
			return nil, fmt.Errorf("reading the probe: more than %d lines", maxTries)
		}
		tries = append(tries, t)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading the probe: %w", err)
	}
	return tries, nil
}
