// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"bawn/internal/quota"
)

const (
	perPattern    = `/(s|second|min|minute|h|hour|day)`
	amountPattern = `[1-9][0-9]{0,11}([kMGT]i?)?B` + perPattern
	ratePattern   = `[1-9][0-9]{0,11}` + perPattern
	namesPattern  = `[1-9][0-9]{0,5}/(h|hour|day)`
)

// budgetKeys are the keys of the budgets of a profile or an agent.
func budgetKeys() []key {
	amounts := oneOrMore(word(amountPattern, "an amount such as 500MB/day"))
	rates := oneOrMore(word(ratePattern, "a rate such as 600/min"))
	return []key{
		{name: quota.EgressBytes.String(), shape: amounts, example: "500MB/day",
			doc: "Bytes that go to servers: heads and bodies of requests, messages of WebSockets, and what passes in tunnels. What would go beyond is not sent, and what it belongs to is cut."},
		{name: quota.IngressBytes.String(), shape: amounts, example: "5GB/day",
			doc: "Bytes that come from servers, likewise."},
		{name: quota.Requests.String(), shape: rates, example: "[600/min, 20000/day]",
			doc: "What is let through: a request, a stream of HTTP/2, a WebSocket and a tunnel that is not looked into count one each."},
		{name: quota.Messages.String(), shape: rates, example: "60/min",
			doc: "Messages that the agent sends on WebSockets."},
		{name: quota.Queries.String(), shape: rates, example: "300/min",
			doc: "Questions to the resolver, whatever the answer."},
		{name: quota.Names.String(), shape: oneOrMore(word(namesPattern, "a number of names such as 1000/day")), example: "1000/day",
			doc: "Different names that something is let through to."},
		{name: quota.NewConnections.String(), shape: rates, example: "1000/min",
			doc: "Connections of the agent that are accepted."},
		{name: quota.Connections.String(), shape: shape{kind: kindInt}, example: "64",
			doc: "Connections of the agent that are open at a time, of all of its sessions. One session may have 256 in any case."},
	}
}

// ruleBudgetKeys are those of the budgets of a rule.
func ruleBudgetKeys() []key {
	return slices.DeleteFunc(budgetKeys(), func(k key) bool {
		what, _ := quota.ParseWhat(k.name)
		return !what.OfRules()
	})
}

// oneOrMore is a list of elem that may be written without brackets if it is one.
func oneOrMore(elem shape) shape { return shape{kind: kindList, elem: &elem, single: true} }

// budgets reads a mapping of the right shape.
func (r *reader) budgets(n *yaml.Node, keys []key, where, origin string) []quota.Budget {
	m, ok := r.fields(n, keys, where)
	if !ok {
		return nil
	}
	var list []quota.Budget
	for _, what := range quota.Whats() {
		v := m.values[what.String()]
		if v == nil {
			continue
		}
		values := []*yaml.Node{v}
		if v.Kind == yaml.SequenceNode {
			values = v.Content
		}
		if len(values) == 0 {
			r.problems.add(v.Line, where+" "+what.String(), "leave the key away for no bound", "an empty list is no budget")
		}
		seen := map[quota.Period]bool{}
		for _, c := range values {
			limit, per, err := quota.Parse(what, c.Value)
			switch {
			case err != nil:
				r.problems.add(c.Line, where+" "+what.String(), "", "%s: %v", show(c.Value), err)
			case seen[per]:
				r.problems.add(c.Line, where+" "+what.String(), "write the smaller one", "a second budget for one period")
			default:
				seen[per] = true
				list = append(list, quota.Budget{Key: quota.Key{What: what, Per: per}, Limit: limit, Origin: origin, Line: c.Line})
			}
		}
	}
	return list
}

// budgeted finishes the budgets of a rule, once its id is known.
func (r *reader) budgeted(ru *rule) {
	if len(ru.budgets) > 0 && !ru.given && !strings.HasPrefix(ru.id, GrantPrefix) {
		r.problems.add(ru.at("budgets"), ru.id+" budgets", "write id: NAME beside it", "a rule with budgets needs an id: what is used up is kept under it")
	}
	for i := range ru.budgets {
		ru.budgets[i].Rule, ru.budgets[i].Origin = ru.id, "rule "+ru.id
	}
}

// Budgets lists the budgets of the agent as a whole: of each, the tightest that
// its profile and the agent itself have. It is not to be changed.
func (a *Agent) Budgets() []quota.Budget {
	if a == nil {
		return nil
	}
	return a.budgets
}

// AllBudgets lists the budgets of the agent as a whole, and those of its rules.
func (a *Agent) AllBudgets() []quota.Budget {
	if a == nil {
		return nil
	}
	list := slices.Clone(a.budgets)
	for _, ru := range a.rules {
		list = append(list, ru.budgets...)
	}
	return list
}

// budgetsText writes budgets as a policy has them.
func budgetsText(list []quota.Budget) string {
	var parts []string
	for _, what := range quota.Whats() {
		var amounts []string
		for _, b := range list {
			if b.What == what {
				amounts = append(amounts, b.Amount())
			}
		}
		switch len(amounts) {
		case 0:
		case 1:
			parts = append(parts, what.String()+": "+amounts[0])
		default:
			parts = append(parts, what.String()+": ["+strings.Join(amounts, ", ")+"]")
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}
