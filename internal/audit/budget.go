// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"slices"

	"bawn/internal/codes"
	"bawn/internal/ids"
)

// A budget bounds the denials that get a record of their own, so that an agent
// cannot fill the disk by asking for what it may not have. It is for one
// goroutine at a time.
type budget struct {
	perSecond int // negative: no bound
	agents    map[ids.Identity]*denials
}

// denials are those of one identity in one second of its clock.
type denials struct {
	second int64
	spent  int      // records of their own
	over   *Summary // nil: none beyond
}

func newBudget(perSecond int) budget {
	return budget{perSecond: perSecond, agents: make(map[ids.Identity]*denials)}
}

// take reports whether the denial d may have a record of its own, and counts
// it where it may not.
func (b *budget) take(d *Decision) bool {
	if b.perSecond < 0 {
		return true
	}
	a := b.agents[d.Identity]
	if a == nil {
		b.prune(d.Time.Unix())
		a = new(denials)
		b.agents[d.Identity] = a
	}
	if s := d.Time.Unix(); s != a.second {
		a.second, a.spent = s, 0
	}
	if a.spent < b.perSecond {
		a.spent++
		return true
	}
	a.count(d)
	return false
}

func (a *denials) count(d *Decision) {
	if a.over == nil {
		a.over = &Summary{Identity: d.Identity, From: d.Time, Codes: make(map[codes.Code]uint64)}
	}
	a.over.To = d.Time
	a.over.Revision = d.Revision
	a.over.Denials++
	code := d.Code
	if _, known := a.over.Codes[code]; !known && len(a.over.Codes) >= maxCodes {
		code = "other"
	}
	a.over.Codes[code]++
}

// due returns the summaries so far, in the order of their first denial, and
// begins anew.
func (b *budget) due() []*Summary {
	var due []*Summary
	for _, a := range b.agents {
		if a.over != nil {
			due = append(due, a.over)
			a.over = nil
		}
	}
	slices.SortFunc(due, func(x, y *Summary) int {
		return cmp.Or(x.From.Compare(y.From), cmp.Compare(x.Agent, y.Agent), cmp.Compare(x.Session, y.Session))
	})
	return due
}

// prune forgets identities that had no denial lately, whenever there are many:
// leases come and go.
func (b *budget) prune(second int64) {
	if len(b.agents) < 1024 {
		return
	}
	for id, a := range b.agents {
		if a.over == nil && a.second != second {
			delete(b.agents, id)
		}
	}
}
