// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package apitype

import "time"

// ReplayPolicy asks what a policy would make of what is on record: POST
// /v1/policy/replay. The answer is a hindsight.Report.
type ReplayPolicy struct {
	YAML  string    `json:"yaml"`
	Agent string    `json:"agent,omitempty"` // only of this one
	Since time.Time `json:"since"`
	Until time.Time `json:"until,omitzero"`
}
