// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"bawn/internal/apitype"
	"bawn/internal/termfilter"
)

func (a *app) allowCommand() *cobra.Command {
	var g apitype.AddGrant
	var long time.Duration
	cmd := &cobra.Command{
		Use:   "allow AGENT RULE --for DURATION",
		Short: "Give an agent a rule for a time; it is in force when this returns, and ends by itself",
		Long: `Give an agent a rule for a time, beside the policy. It is in force when this
returns. At its end it is void without anybody's doing, and connections that stand
on it are cut. RULE is a rule of a policy in braces, or a short form:

  bawn allow dev 'GET https://api.example.com/v1/items' --for 10m
  bawn allow dev 'GET,HEAD https://api.example.com/v1/**' --for 1h
  bawn allow dev wss://api.example.com/feed --for 1h
  bawn allow dev api.example.com --for 10m            every request there
  bawn allow dev db.example.com:5432/tcp --for 10m    any TCP, judged by name
  bawn allow dev '{host: api.example.com, methods: [POST], guard: json}' --for 5m

It is checked as a rule of the policy is, and only allows: rules that deny win.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 3 {
				return wrongUse(cmd, "%q is one argument too many: put RULE in quotes", args[3])
			}
			return wants("AGENT", "RULE")(cmd, args[:min(len(args), 2)])
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if long < time.Second {
				return wrongUse(cmd, "--for is missing or less than a second: how long, such as 10m or 2h")
			}
			g.Agent, g.Rule, g.Seconds = args[0], strings.Join(args[1:], " "), int64(long/time.Second)
			made, err := a.client().AddGrant(cmd.Context(), g)
			if err != nil {
				return err
			}
			for _, w := range made.Warnings {
				fmt.Fprintln(a.stderr, "warning: "+termfilter.Line(w))
			}
			fmt.Fprintf(a.stdout, "grant %s for agent %s is in force until %s: %s\n", termfilter.Line(made.ID), termfilter.Line(made.Agent), made.Until.Local().Format(time.DateTime), termfilter.Line(made.Allows))
			return nil
		},
	}
	cmd.Flags().DurationVar(&long, "for", 0, "`DURATION`, such as 10m or 2h")
	cmd.Flags().StringVar(&g.Reason, "reason", "", "`REASON`, kept with the grant")
	return cmd
}

func (a *app) grantsCommand() *cobra.Command {
	var asJSON, all bool
	cmd := &cobra.Command{
		Use: "grants", Short: "List the rules that agents have for a time", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := a.client().Grants(cmd.Context(), all)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(a.stdout, list)
			}
			w := tabwriter.NewWriter(a.stdout, 0, 8, 2, ' ', 0)
			fmt.Fprintln(w, "ID\tAGENT\tBY\tGIVEN\tENDS\tREASON\tRULE")
			for _, g := range list {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", termfilter.Line(g.ID), termfilter.Line(g.Agent), termfilter.Line(g.By), g.At.Local().Format(time.DateTime), ends(g), dash(g.Reason), termfilter.Line(g.Allows))
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&all, "all", false, "those that have ended, too")
	return cmd
}

// ends says when a grant ends, or how it has.
func ends(g apitype.Grant) string {
	if g.Ended == nil {
		return g.Until.Local().Format(time.DateTime)
	}
	return fmt.Sprintf("%s (%s)", g.Ended.Local().Format(time.DateTime), termfilter.Line(g.Why))
}

func (a *app) revokeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "revoke ID", Short: "End a grant before its time; connections that stand on it are cut", Args: wants("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.client().RevokeGrant(cmd.Context(), args[0]); err != nil {
				return err
			}
			fmt.Fprintf(a.stdout, "grant %s has ended\n", termfilter.Line(args[0]))
			return nil
		},
	}
}
