// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"bawn/internal/codes"
	"bawn/internal/policy"
	"bawn/internal/quota"
	"bawn/internal/verdict"
)

// spend counts the request against the budgets of the agent and of the rules that
// let it through, or refuses it. It is the last thing before the record, so that
// what is refused for another reason costs nothing.
func (x *exchange) spend(a *policy.Agent) verdict.Verdict {
	c := x.c
	if x.pass == nil {
		x.pass = c.s.cfg.Meter.NewPass(c.src.Identity.Agent)
	}
	v := x.pass.Begin(a.Budgets(), x.d.Budgets, x.host, c.s.cfg.Now())
	if !v.Allowed() && v.Rule == "" {
		v.Rule = x.d.Verdict.Rule
	}
	return v
}

// An overspent is what octets answer that go beyond a budget. It says which in its
// verdict, and so does the exchange from then on.
type overspent struct{ v verdict.Verdict }

func (e *overspent) Error() string { return string(e.v.Why()) + ": " + e.v.Detail }

// passes counts octets before they go on. After an error they must not.
func (x *exchange) passes(what quota.What, n int) error {
	v := x.pass.Take(what, int64(n), x.c.s.cfg.Now)
	if v.Allowed() {
		return nil
	}
	x.over.CompareAndSwap(nil, &v)
	return &overspent{v}
}

func (x *exchange) goesUp(n int) error    { return x.passes(quota.EgressBytes, n) }
func (x *exchange) comesDown(n int) error { return x.passes(quota.IngressBytes, n) }

// payHead counts the head of the request before a connection to the server is
// looked for. On one that carries other streams it goes out with what these send,
// as soon as it is handed over; what could not be counted must not come so far.
func (x *exchange) payHead() verdict.Verdict {
	n := len(x.q.Method) + len(x.path) + len(x.query) + len(" HTTP/1.1\r\n\r\n") + 1 + headSize(x.q.Fields)
	if err := x.goesUp(n); err != nil {
		return x.cutVerdict(quota.Stage, codes.BudgetExceeded, err.Error())
	}
	return allowed
}

// unpaid cuts a tunnel whose octets go beyond a budget.
func (x *exchange) unpaid(err error) error {
	if v := x.over.Load(); v != nil {
		x.flow.cut(cut{code: v.Why(), why: cutBudget, detail: v.Detail})
	}
	return err
}

// cutBudget is what records say of what ended for a budget.
const cutBudget = "budget"

// afford judges again, by the policy that is in force now, whether what is open may
// go on using what it uses.
func (st *stand) afford(a *policy.Agent, d policy.Decision, s *Server) verdict.Verdict {
	if st.pass == nil {
		return allowed
	}
	return st.pass.Adopt(a.Budgets(), d.Budgets, s.cfg.Now())
}

// welcome counts a connection against the budgets of its agent. Without a policy
// there are none; then it gets nowhere.
func (c *conn) welcome() (v verdict.Verdict, revision uint64) {
	s, agent := c.s, c.src.Identity.Agent
	p, revision, v := s.cfg.Policies.Current()
	var budgets []quota.Budget
	if v.Allowed() {
		budgets = p.Agent(agent).Budgets()
	}
	return s.cfg.Meter.Connect(agent, c.t.open, budgets, s.cfg.Now()), revision
}
