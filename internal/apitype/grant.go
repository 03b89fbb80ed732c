// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package apitype

import "time"

// AddGrant asks for a rule that one agent has for a time: POST /v1/grants.
type AddGrant struct {
	Agent   string `json:"agent"`
	Rule    string `json:"rule"`    // YAML in braces, or a short form such as "GET https://api.example.com/v1"
	Seconds int64  `json:"seconds"` // how long
	Reason  string `json:"reason,omitempty"`
}

// A Grant is a rule that one agent has, or had, for a time.
type Grant struct {
	ID      string     `json:"id"`
	Rule    string     `json:"rule"`   // id in records
	Agent   string     `json:"agent"`  // whose it is
	Allows  string     `json:"allows"` // YAML
	By      string     `json:"by"`     // account of who gave it
	UID     uint32     `json:"uid"`    // the same, from the kernel
	At      time.Time  `json:"at"`     // when
	Until   time.Time  `json:"until"`  // when it ends by itself
	InForce bool       `json:"in_force"`
	Ended   *time.Time `json:"ended,omitempty"`
	Why     string     `json:"why,omitempty"` // how it ended
	Reason  string     `json:"reason,omitempty"`
	// Warnings come with a new grant.
	Warnings []string `json:"warnings,omitempty"`
}

// A SnapshotGrant is a grant as planes see it.
type SnapshotGrant struct {
	ID     string    `json:"id"` // of the rule
	Agent  string    `json:"agent"`
	Rule   string    `json:"rule"` // YAML
	Until  time.Time `json:"until"`
	Ended  bool      `json:"ended,omitempty"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
}
