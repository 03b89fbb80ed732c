// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package apitype

import "time"

// ReportEvery is how often a plane reports.
const ReportEvery = 1 * time.Second

// A PlaneReport is what a plane says of itself: POST /v1/plane/report. Admin keeps
// the newest of each plane.
type PlaneReport struct {
	Plane   string      `json:"plane"` // proxy
	Samples []Sample    `json:"samples"`
	Budgets []BudgetUse `json:"budgets"`
}

// A Sample is the value of one series of a metric that package metrics knows.
type Sample struct {
	Name    string   `json:"name"`
	Labels  []string `json:"labels,omitempty"` // values, in the order of the metric's labels
	Value   float64  `json:"value"`            // of a histogram, the sum
	Buckets []uint64 `json:"buckets,omitempty"`
}

// A BudgetUse is how much of one budget an agent has used.
type BudgetUse struct {
	Agent  string    `json:"agent"`
	Budget string    `json:"budget"`         // key of the policy: egress_bytes, requests, ...
	Per    string    `json:"per,omitempty"`  // s, min, h, day; empty: at a time
	Rule   string    `json:"rule,omitempty"` // empty: of the agent as a whole
	Limit  int64     `json:"limit"`          // bytes, or a number
	Used   int64     `json:"used"`           // of it, in the period
	Anew   time.Time `json:"anew,omitzero"`  // when it begins anew
	Origin string    `json:"origin"`         // "profile NAME", "agent NAME" or "rule ID"
	Line   int       `json:"line"`           // of the policy
}

// Budgets answers GET /v1/budgets.
type Budgets struct {
	At      time.Time   `json:"at"` // of the newest report; zero: there is none
	Budgets []BudgetUse `json:"budgets"`
}
