// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package apitype

// CheckPolicy asks whether a policy could be applied: POST /v1/policy/check.
type CheckPolicy struct {
	YAML string `json:"yaml"`
}

// Checked answers CheckPolicy; a policy that is refused is an [Error].
type Checked struct {
	Warnings []string `json:"warnings,omitempty"`
}
