// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"bawn/internal/apitype"
	"bawn/internal/policy"
)

// Compile makes the policy of a snapshot. Admin checks a candidate with it
// before it is stored, and each plane uses it for what it enforces, so the two
// cannot differ. It returns nil for a snapshot without a policy.
func Compile(s apitype.Snapshot) (*policy.Policy, error) {
	return compile(s, Known(s.Agents))
}

// Check is Compile for a candidate, which may name known credentials only. One
// that goes later refuses the requests that need it, and nothing else.
func Check(s apitype.Snapshot, credentials map[string]policy.Credential) (*policy.Policy, error) {
	known := Known(s.Agents)
	known.Credentials, known.AnyCredential = credentials, false
	return compile(s, known)
}

func compile(s apitype.Snapshot, known policy.Known) (*policy.Policy, error) {
	if s.YAML == "" {
		return nil, nil
	}
	return policy.Load([]byte(s.YAML), known)
}

// Known is the registry of agents as policy wants it.
func Known(agents []apitype.SnapshotAgent) policy.Known {
	k := policy.Known{Agents: map[string]bool{}, Profiles: map[string]string{}, AnyCredential: true}
	for _, a := range agents {
		k.Agents[a.Name] = true
		if a.Profile != "" {
			k.Profiles[a.Name] = a.Profile
		}
	}
	return k
}
