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
//
// A grant that does not fit the policy any more, after an upgrade for example,
// is left out: it only ever allows.
func Compile(s apitype.Snapshot) (*policy.Policy, error) {
	known := Known(s.Agents)
	known.Grants = grants(s)
	p, err := compile(s, known)
	if err == nil || len(known.Grants) == 0 {
		return p, err
	}
	all := known.Grants
	known.Grants = nil
	if p, err = compile(s, known); err != nil {
		return nil, err
	}
	for _, g := range all {
		with := known
		with.Grants = append(known.Grants[:len(known.Grants):len(known.Grants)], g)
		if more, err := compile(s, with); err == nil {
			p, known = more, with
		}
	}
	return p, nil
}

// Check is Compile for a candidate, which may name known credentials only, and
// which every grant in force has to fit. A credential that goes later refuses the
// requests that need it, and nothing else.
func Check(s apitype.Snapshot, credentials map[string]policy.Credential) (*policy.Policy, error) {
	known := Known(s.Agents)
	known.Credentials, known.AnyCredential = credentials, false
	known.Grants = grants(s)
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

// grants are those of a snapshot as policy wants them.
func grants(s apitype.Snapshot) []policy.Grant {
	var list []policy.Grant
	for _, g := range s.Grants {
		list = append(list, policy.Grant{ID: g.ID, Agent: g.Agent, Rule: g.Rule, Until: g.Until, Ended: g.Ended, By: g.By, Reason: g.Reason})
	}
	return list
}
