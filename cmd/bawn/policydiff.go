// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bawn/internal/apitype"
	"bawn/internal/policy"
	"bawn/internal/policydiff"
	"bawn/internal/termfilter"
)

// The exit statuses of commands that compare what two policies do.
const (
	statusNarrower = 3
	statusWider    = 4
)

func (a *app) policyDiff() *cobra.Command {
	var asJSON bool
	var failOn string
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "Say in words what B lets through that A does not, and the reverse; exit status 3 narrower, 4 wider",
		Long: `Say in words what policy B lets through that policy A does not, and the reverse,
for each agent. A and B are files ("-" reads standard input), revision numbers, or
"current" for the policy in force; with two files no running Bawn is needed. What
policies do is compared, not their text, by the code that enforces them. Grants
are left out: they stand beside either policy.

Exit status 0 when both let the same through, 3 when B only lets less through,
4 when it lets anything through that A does not, or cannot be compared with it.`,
		Args: wants("A", "B"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains([]string{"any", "widened"}, failOn) {
				return wrongUse(cmd, "--fail-on %q: not any or widened", failOn)
			}
			r, err := a.comparePolicies(cmd.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			if asJSON {
				err = printJSON(a.stdout, struct {
					Reach policydiff.Kind `json:"reach"`
					policydiff.Report
				}{r.Reach(), r})
			} else {
				err = a.printDiff(r)
			}
			return cmp.Or(err, diffStatus(r.Reach(), failOn))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&failOn, "fail-on", "any", "`WHAT` makes the exit status other than 0: any, or widened for that alone")
	return cmd
}

// diffStatus is the exit status of a comparison, as an error where it is not 0.
func diffStatus(reach policydiff.Kind, failOn string) error {
	switch {
	case reach == policydiff.Widened:
		return &statusError{statusWider}
	case reach == policydiff.Narrowed && failOn != "widened":
		return &statusError{statusNarrower}
	}
	return nil
}

func (a *app) comparePolicies(ctx context.Context, nameA, nameB string) (policydiff.Report, error) {
	known := policy.Known{AnyAgent: true, AnyCredential: true, Agents: map[string]bool{}, Profiles: map[string]string{}}
	textA, storedA, err := a.policyText(ctx, nameA)
	if err != nil {
		return policydiff.Report{}, err
	}
	textB, storedB, err := a.policyText(ctx, nameB)
	if err != nil {
		return policydiff.Report{}, err
	}
	if storedA || storedB {
		list, err := a.client().Agents(ctx)
		if err != nil {
			return policydiff.Report{}, err
		}
		for _, x := range list {
			known.Agents[x.Name], known.Profiles[x.Name] = true, x.Profile
		}
	}
	pA, pB, subjects, err := loadBoth(known, nameA, textA, nameB, textB)
	if err != nil {
		return policydiff.Report{}, err
	}
	return policydiff.Compare(pA, pB, subjects, time.Now()), nil
}

// policyText finds the policy that an operator names; stored says that it comes
// from the running Bawn.
func (a *app) policyText(ctx context.Context, name string) (text []byte, stored bool, err error) {
	n, numeric := strconv.ParseUint(name, 10, 64)
	if name == "current" || numeric == nil && n > 0 {
		r, err := a.client().Policy(ctx, n)
		return []byte(r.YAML), true, err
	}
	if text, err = a.read(name); err != nil {
		return nil, false, fmt.Errorf("reading policy: %w", err)
	}
	return text, false, nil
}

// loadBoth compiles two policies for the same agents: those that either names or
// that are registered, and for a profile that no agent has whoever may get it.
func loadBoth(known policy.Known, nameA string, textA []byte, nameB string, textB []byte) (pA, pB *policy.Policy, subjects []string, err error) {
	load := func(name string, text []byte) (*policy.Policy, error) {
		p, err := policy.Load(text, known)
		if err != nil {
			return nil, fmt.Errorf("policy %s cannot be compared:\n%w", name, err)
		}
		return p, nil
	}
	for range 2 { // once to see who there is
		if pA, err = load(nameA, textA); err != nil {
			return nil, nil, nil, err
		}
		if pB, err = load(nameB, textB); err != nil {
			return nil, nil, nil, err
		}
		held, agents := map[string]bool{}, map[string]bool{}
		for _, p := range []*policy.Policy{pA, pB} {
			for _, name := range p.Agents() {
				agents[name], held[p.Agent(name).Profile()] = true, true
			}
		}
		for _, profile := range append(pA.Profiles(), pB.Profiles()...) {
			if !held[profile] {
				name := "whoever has profile " + profile // no agent is called so
				known.Agents[name], known.Profiles[name] = true, profile
			}
		}
		for name := range known.Agents {
			agents[name] = true
		}
		subjects = slices.Sorted(maps.Keys(agents))
	}
	return pA, pB, subjects, nil
}

func (a *app) printDiff(r policydiff.Report) error {
	var b strings.Builder
	for _, g := range r.Groups {
		fmt.Fprintf(&b, "%s:\n", strings.Join(g.Agents, ", "))
		for _, c := range g.Changes {
			fmt.Fprintf(&b, "  %-10s  %s\n", c.Kind, c.Text)
		}
	}
	if len(r.Same) > 0 {
		fmt.Fprintf(&b, "no change for %s\n", strings.Join(r.Same, ", "))
	}
	b.WriteString(map[policydiff.Kind]string{
		policydiff.Neither:  "both let the same through\n",
		policydiff.Narrowed: "in all: narrower\n",
		policydiff.Widened:  "in all: wider\n",
	}[r.Reach()])
	return printLines(a.stdout, b.String())
}

func (a *app) policyCheck() *cobra.Command {
	var offline bool
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: `Check a policy as "apply" does, and change nothing ("-" reads standard input)`,
		Long: `Check a policy by the code that "policy apply" runs and every plane enforces, and
change nothing. With --offline no running Bawn is needed, and every agent and
credential that the policy names is taken to exist.`,
		Args: wants("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := a.read(args[0])
			if err != nil {
				return fmt.Errorf("reading policy: %w", err)
			}
			warnings, err := a.checkPolicy(cmd.Context(), text, offline)
			if err != nil {
				return err
			}
			for _, w := range warnings {
				fmt.Fprintln(a.stderr, "warning: "+termfilter.Line(w))
			}
			fmt.Fprintln(a.stdout, "the policy is fine")
			return nil
		},
	}
	cmd.Flags().BoolVar(&offline, "offline", false, "ask no running Bawn")
	return cmd
}

func (a *app) checkPolicy(ctx context.Context, text []byte, offline bool) ([]string, error) {
	if !offline {
		done, err := a.client().CheckPolicy(ctx, apitype.CheckPolicy{YAML: string(text)})
		return done.Warnings, err
	}
	p, err := policy.Load(text, policy.Known{AnyAgent: true, AnyCredential: true})
	if err != nil {
		return nil, fmt.Errorf("the policy is refused:\n%w", err)
	}
	var list []string
	for _, w := range p.Warnings(time.Now()) {
		list = append(list, w.Error())
	}
	return list, nil
}
