// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"bawn/internal/apitype"
	"bawn/internal/quota"
	"bawn/internal/termfilter"
)

func (a *app) budgetCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "budget [AGENT]", Short: "Show what agents have used of their budgets, and when these begin anew", Args: mayHave("AGENT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			agent := ""
			if len(args) > 0 {
				agent = args[0]
			}
			b, err := a.client().Budgets(cmd.Context(), agent)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(a.stdout, b)
			}
			return printBudgets(a.stdout, b)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// mayHave takes the named argument or none.
func mayHave(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return wants(name)(cmd, args)
	}
}

func printBudgets(out io.Writer, b apitype.Budgets) error {
	switch {
	case b.At.IsZero():
		_, err := fmt.Fprintln(out, "no proxy has reported yet")
		return err
	case len(b.Budgets) == 0:
		_, err := fmt.Fprintln(out, "no budgets: the policy has none here (docs/budgets.md)")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "AGENT\tBUDGET\tUSED\tLEFT\tBEGINS ANEW\tFROM")
	for _, u := range b.Budgets {
		what, _ := quota.ParseWhat(u.Budget)
		per, _ := quota.ParsePeriod(u.Per)
		bound := quota.Budget{Key: quota.Key{What: what, Per: per}, Limit: u.Limit}
		anew := "-"
		if !u.Anew.IsZero() {
			anew = clock(u.Anew)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", termfilter.Line(u.Agent), bound, quota.Show(what, u.Used), quota.Show(what, max(0, u.Limit-u.Used)), anew,
			termfilter.Line(fmt.Sprintf("%s, line %d", u.Origin, u.Line)))
	}
	fmt.Fprintf(w, "as of %s: the proxy reports once a second\n", clock(b.At))
	return w.Flush()
}

func (a *app) metricsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "metrics", Short: "Print what Bawn counts, in the text format of Prometheus", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := a.client().Metrics(cmd.Context())
			if err != nil {
				return err
			}
			_, err = a.stdout.Write(text)
			return err
		},
	}
}
