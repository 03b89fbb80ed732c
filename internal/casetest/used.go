// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package casetest

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"bawn/internal/budget"
	"bawn/internal/quota"
)

// A Used is how much of a budget was used before the case.
type Used struct {
	Key quota.Key
	N   int64
}

// readUsed reads "WHAT/PERIOD: AMOUNT", or "WHAT/PERIOD@RULE: AMOUNT".
func (c *Case) readUsed(node *yaml.Node) error {
	var used map[string]string
	if err := node.Decode(&used); err != nil {
		return err
	}
	for text, amount := range used {
		budget, rule, _ := strings.Cut(text, "@")
		word, period, _ := strings.Cut(budget, "/")
		what, known := quota.ParseWhat(word)
		per, timed := quota.ParsePeriod(period)
		if !known || !timed || what == quota.Names || what == quota.Connections {
			return fmt.Errorf("%q is not WHAT/PERIOD or WHAT/PERIOD@RULE of something that is counted", text)
		}
		n, err := quota.ParseUsed(what, amount)
		if err != nil {
			return fmt.Errorf("%s: %q: %w", text, amount, err)
		}
		c.Used = append(c.Used, Used{quota.Key{What: what, Per: per, Rule: rule}, n})
	}
	return nil
}

// meter counts the budgets of the case from what was used before it.
func (run *running) meter() (*budget.Meter, error) {
	m := budget.NewMeter()
	for _, u := range run.c.Used {
		if err := m.Use(run.agent, u.Key, u.N, run.now()); err != nil {
			return nil, err
		}
	}
	return m, nil
}
