// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"time"

	"bawn/internal/names"
	"bawn/internal/policy"
	"bawn/internal/verdict"
)

// A Budget bounds the names that an agent makes up under wildcards: it judges
// one that the wildcard under lets in, and counts it. The detail of a verdict
// that allows is for the record.
type Budget interface {
	Take(agent string, h names.Host, under names.Pattern, now time.Time) verdict.Verdict
}

// counted counts the name of an allowed decision, if the agent made it up, or
// turns the decision. It comes before the record and before the name is looked
// up; a name that was counted costs nothing more that day.
func (c *conn) counted(h names.Host, d policy.Decision) policy.Decision {
	if c.s.cfg.Budget == nil || !d.Verdict.Allowed() || d.Under.IsZero() {
		return d
	}
	v := c.s.cfg.Budget.Take(c.src.Identity.Agent, h, d.Under, c.s.cfg.Now())
	if !v.Allowed() {
		return policy.Decision{Verdict: v}
	}
	d.Verdict.Detail = v.Detail
	return d
}
