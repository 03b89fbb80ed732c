// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"bawn/internal/codes"
	"bawn/internal/ids"
)

// ErrQuota is what [Journal.Decide] answers for a decision that would be let
// through while its agent has had its share of the journal. See
// [CodeOf].
var ErrQuota = errors.New("the agent has written its share of the journal")

// CodeOf gives the code with which a plane refuses after an error of
// [Journal.Decide].
func CodeOf(err error) codes.Code {
	if errors.Is(err, ErrQuota) {
		return codes.AuditQuota
	}
	return codes.JournalUnavailable
}

// A budget bounds what an agent can write by asking, so that it can fill the
// disk neither with what it may not have nor with what it may: a full disk
// would refuse everybody. It is for one goroutine at a time.
type budget struct {
	perSecond int // denials that get a record of their own; negative: no bound
	agents    map[ids.Identity]*denials

	flow   int64 // bytes that an agent's share grows by in a second; negative: no bound
	most   int64 // bytes
	shares map[string]*share
}

// A share is what is left to one agent, over all of its sessions.
type share struct {
	left float64 // bytes; below zero by what outcomes, which are never refused, took
	at   time.Time
}

// sensitiveDenials is how many sensitive denials an identity gets a second beyond
// all others: what matters most is not to be hidden in a flood of the rest.
const sensitiveDenials = 5

// denials are those of one identity in one second of its clock.
type denials struct {
	second int64
	spent  int      // records of their own
	over   *Summary // nil: none beyond

	sensitive int // records of their own beyond those
}

func newBudget(o Options) budget {
	return budget{
		perSecond: o.Denials, agents: make(map[ids.Identity]*denials),
		flow: o.AgentFlow, most: o.AgentBytes, shares: make(map[string]*share),
	}
}

// open reports whether the agent has anything left of its share.
func (b *budget) open(agent string, now time.Time) bool {
	return b.flow < 0 || b.share(agent, now).left > 0
}

// spend takes the bytes of a record from the agent's share.
func (b *budget) spend(agent string, now time.Time, bytes int) {
	if b.flow >= 0 {
		b.share(agent, now).left -= float64(bytes)
	}
}

func (b *budget) share(agent string, now time.Time) *share {
	s := b.shares[agent]
	if s == nil {
		s = &share{left: float64(b.most), at: now}
		b.shares[agent] = s
	}
	if gone := now.Sub(s.at); gone > 0 {
		s.left = min(float64(b.most), s.left+gone.Seconds()*float64(b.flow))
	}
	s.at = now
	return s
}

// take reports whether the denial d may have a record of its own, and counts
// it where it may not.
func (b *budget) take(d *Decision, now time.Time) bool {
	if b.perSecond < 0 && b.open(d.Agent, now) {
		return true
	}
	a := b.agents[d.Identity]
	if a == nil {
		b.prune(now.Unix())
		a = new(denials)
		b.agents[d.Identity] = a
	}
	if s := now.Unix(); s != a.second {
		a.second, a.spent, a.sensitive = s, 0, 0
	}
	if a.spent < b.perSecond && b.open(d.Agent, now) {
		a.spent++
		return true
	}
	if d.Sensitive && a.sensitive < sensitiveDenials {
		a.sensitive++
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
