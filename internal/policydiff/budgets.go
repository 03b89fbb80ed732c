// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package policydiff

import (
	"slices"

	"bawn/internal/policy"
	"bawn/internal/quota"
)

// budgets says which bounds on how much differ. That of a rule which is gone, and
// whose host no other rule is about, is gone with it and not said.
func budgets(a, b *policy.Agent) []Change {
	var list []Change
	before, after := a.AllBudgets(), b.AllBudgets()
	for _, was := range before {
		i := slices.IndexFunc(after, func(o quota.Budget) bool { return o.Key == was.Key })
		switch {
		case i < 0 && was.Rule != "" && !reached(a, b, was.Rule):
		case i < 0:
			list = append(list, bound(Widened, BudgetMore, was, "is gone"))
		case after[i].Limit > was.Limit:
			list = append(list, bound(Widened, BudgetMore, after[i], "was "+was.Amount()))
		case after[i].Limit < was.Limit:
			list = append(list, bound(Narrowed, BudgetLess, after[i], "was "+was.Amount()))
		}
	}
	for _, is := range after {
		known := slices.ContainsFunc(before, func(o quota.Budget) bool { return o.Key == is.Key })
		if !known && (is.Rule == "" || reached(b, a, is.Rule)) {
			list = append(list, bound(Narrowed, BudgetLess, is, "is new"))
		}
	}
	return list
}

// boundName names what a budget of a rule counts, without its limit.
func boundName(k quota.Key) string {
	return k.What.String() + "/" + k.Per.String() + " of rule " + k.Rule
}

// stillBound are the budgets of rules that both have, as far as their names go.
// Where one does not count any more for something that is still allowed is for
// each request to say; all others are said once, by budgets.
func stillBound(a, b *policy.Agent) map[string]bool {
	both := map[string]bool{}
	for _, was := range a.AllBudgets() {
		if was.Rule != "" && slices.ContainsFunc(b.AllBudgets(), func(o quota.Budget) bool { return o.Key == was.Key }) {
			both[boundName(was.Key)] = true
		}
	}
	return both
}

// reached reports whether what the rule of one lets through may be let through by
// a rule of the other.
func reached(one, other *policy.Agent, rule string) bool {
	return slices.ContainsFunc(one.Rules(), func(r policy.Rule) bool {
		return r.ID == rule && slices.ContainsFunc(other.Rules(), func(o policy.Rule) bool {
			return !o.Deny && (o.Host.Covers(r.Host) || r.Host.Covers(o.Host))
		})
	})
}

func bound(kind Kind, what What, b quota.Budget, how string) Change {
	whose := "the agent"
	if b.Rule != "" {
		whose = "rule " + b.Rule
	}
	return Change{
		Kind: kind, What: what, More: b.String(), Rule: b.Rule,
		Text: "budget " + b.String() + " of " + whose + " " + how,
	}
}
