// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"bawn/internal/apitype"
	"bawn/internal/budget"
	"bawn/internal/metrics"
	"bawn/internal/quota"
)

// reports tells admin once a second what the proxy counts, until ctx is done. What
// cannot be told is told a second later: counts only grow.
func (p *proxy) reports(ctx context.Context) error {
	failing, now := false, wallClock()
	for tick := time.NewTicker(apitype.ReportEvery); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return nil
		case <-tick.C:
		}
		err := p.admin.PlaneReport(ctx, p.says(now()))
		if err != nil && !failing && ctx.Err() == nil {
			p.log.Warn("what the proxy counts cannot be reported", "error", err)
		}
		failing = err != nil
	}
}

// says is one report.
func (p *proxy) says(now time.Time) apitype.PlaneReport {
	connections, flows := p.egress.Open()
	list := append(p.counts.Samples(), metrics.OfJournal("proxy", p.journal.Stats())...)
	list = append(list,
		metrics.Value("bawn_process_start_time_seconds", metrics.Time(p.began), "proxy"),
		metrics.Value("bawn_connections", float64(connections)),
		metrics.Value("bawn_flows", float64(flows)))
	uses := p.uses(now)
	set, gone := map[string]int{}, map[string]int{}
	for _, u := range uses {
		set[u.Budget]++
		if u.Used >= u.Limit {
			gone[u.Budget]++
		}
	}
	for _, w := range quota.Whats() {
		name := w.String()
		list = append(list,
			metrics.Value("bawn_budget_refusals_total", float64(p.meter.Refused(w)), name),
			metrics.Value("bawn_budgets", float64(set[name]), name),
			metrics.Value("bawn_budgets_exhausted", float64(gone[name]), name))
	}
	return apitype.PlaneReport{Plane: "proxy", Samples: list, Budgets: uses}
}

// uses says what every agent has used of every budget of the policy in force.
func (p *proxy) uses(now time.Time) []apitype.BudgetUse {
	list := []apitype.BudgetUse{}
	policy, _, v := p.lease.Current()
	if !v.Allowed() {
		return list
	}
	for _, agent := range policy.Agents() {
		used, err := p.meter.Usage(agent, policy.Agent(agent).AllBudgets(), now)
		if err != nil {
			continue // its file is damaged; what it asks for says so in the log
		}
		for _, u := range used {
			list = append(list, use(agent, u))
		}
	}
	return list
}

func use(agent string, u budget.Usage) apitype.BudgetUse {
	return apitype.BudgetUse{
		Agent: agent, Budget: u.What.String(), Per: u.Per.String(), Rule: u.Rule,
		Limit: u.Limit, Used: u.Used, Anew: u.Ends, Origin: u.Origin, Line: u.Line,
	}
}
