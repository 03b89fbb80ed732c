// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package apitype

import (
	"time"

	"bawn/internal/ids"
)

// Doctor is the result of one self-test: POST /v1/doctor, and in [Status] the
// newest one.
type Doctor struct {
	At    time.Time    `json:"at"`
	OK    bool         `json:"ok"` // agents are handed out in the usual placement
	Lines []DoctorLine `json:"lines"`
	// Cause is what set the run off: operator, start, timer, policy, firewall.
	Cause string `json:"cause,omitempty"`
	// Took is how long it took, in milliseconds.
	Took int64 `json:"took_ms,omitempty"`
	// Next is when it runs again by itself; zero: never.
	Next time.Time `json:"next,omitzero"`
	// Failed and Warned count lines. Lines of a placement that is not the usual
	// one and has no agents are not counted.
	Failed int `json:"failed"`
	Warned int `json:"warned"`
}

// A DoctorLine is one check.
type DoctorLine struct {
	Placement ids.Placement `json:"placement"` // empty: of the host, whatever the placement
	Name      string        `json:"name"`      // never changes
	Group     string        `json:"group"`
	Check     string        `json:"check"` // for a person
	State     string        `json:"state"` // ok, warn, fail, not_applicable
	OK        bool          `json:"ok"`    // has not failed
	Detail    string        `json:"detail,omitempty"`
	Fix       string        `json:"fix,omitempty"`
	// Since is when the check came to be in this state, as far as this admin
	// has seen.
	Since time.Time `json:"since,omitzero"`
}
